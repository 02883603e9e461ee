"""Charts: readings of figures on one time axis, as the browser's chart wants them."""

import math
from typing import Any

from pyromq.console.visit import Visit

SPANS = {"15m": 900.0, "1h": 3600.0, "24h": 86_400.0}


def span_of(visit: Visit) -> float:
    return SPANS.get(visit.text("span", "1h"), SPANS["1h"])


def chart(visit: Visit, span_s: float, *figures: tuple[str, str, str]) -> dict[str, Any]:
    """`times` in seconds and one list of values for each figure; a moment without a reading is None."""
    assert visit.shown is not None
    told = [dict(visit.shown.watch.readings(*figure, span_s)) for figure in figures]
    times = sorted({at for readings in told for at in readings})
    return {
        "times": times,
        "values": [[_value(readings.get(at)) for at in times] for readings in told],
        "names": [figure[2] for figure in figures],
    }


def _value(value: float | None) -> float | None:
    return None if value is None or math.isnan(value) else round(value, 2)
