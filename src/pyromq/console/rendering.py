"""Templates: everything that is put into a page is escaped and made visible; a missing value is an error
of ours.

There is no way around the escaping: no template says `safe`, and a test holds that.
"""

from collections.abc import Sequence
from datetime import UTC, datetime
from functools import lru_cache
from itertools import islice
from typing import Any
from urllib.parse import quote

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from pyromq.console.visible import visible
from pyromq.remoting.slices import Slices

UNKNOWN = "–"
OPEN_PLACE = "<!-- person -->"
"""In `layout.html` where a shared page names its viewer; values cannot contain it: they are escaped."""
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_PIECES = 50
"""Number of pieces of a page, about two rows, that are rendered between two looks at the clock."""
_SPARK_WIDTH, _SPARK_HEIGHT = 96.0, 20.0


def _finished(value: object) -> object:
    """A value as a page shows it: None is unknown, no hidden characters; templates' own markup passes."""
    if value is None:
        return UNKNOWN
    if isinstance(value, Markup):
        return value
    return visible(value) if isinstance(value, str) else value


def number(value: float | None) -> str:
    """1,234,567; 0.25; unknown as a dash."""
    if value is None:
        return UNKNOWN
    if abs(value) < 100 and value != int(value):
        return f"{value:,.2f}" if abs(value) < 10 else f"{value:,.1f}"
    return f"{round(value):,}"


def size(value: float | None) -> str:
    if value is None:
        return UNKNOWN
    amount, unit = float(value), 0
    while abs(amount) >= 1024 and unit < len(_UNITS) - 1:
        amount, unit = amount / 1024, unit + 1
    return f"{amount:.0f} {_UNITS[unit]}" if unit == 0 else f"{amount:.1f} {_UNITS[unit]}"


def percent(ratio: float | None) -> str:
    return UNKNOWN if ratio is None else f"{ratio * 100:.1f} %"


def duration(milliseconds: float | None) -> str:
    """The two largest units: 3 h 20 min."""
    if milliseconds is None:
        return UNKNOWN
    if milliseconds < 1000:
        return f"{milliseconds:.0f} ms"
    left = round(milliseconds / 1000)
    parts: list[str] = []
    for unit, length in (("d", 86_400), ("h", 3600), ("min", 60), ("s", 1)):
        if left >= length:
            parts.append(f"{left // length} {unit}")
            left %= length
        elif parts:
            break
        if len(parts) == 2:
            break
    return " ".join(parts)


def about(milliseconds: float) -> str:
    """A length of time that was guessed: one unit, and minutes in tens above ten."""
    minutes = milliseconds / 60_000
    if minutes < 90:
        return f"{max(1, round(minutes, -1 if minutes > 10 else None)):.0f} min"
    return f"{minutes / 60:.0f} h" if minutes < 36 * 60 else f"{minutes / 1440:.0f} d"


def moment(at_ms: int | None) -> str:
    """ISO 8601 with milliseconds, in UTC: as forms read it, whatever the zone of the browser is."""
    if not at_ms or at_ms < 0:
        return UNKNOWN
    try:
        whole = datetime.fromtimestamp(at_ms // 1000, UTC).strftime("%Y-%m-%dT%H:%M:%S")
        return f"{whole}.{at_ms % 1000:03}Z"
    except (OverflowError, ValueError, OSError):
        return str(at_ms)


def segment(name: object) -> str:
    """A name as one part of a path: `%RETRY%g` survives a proxy."""
    return quote(str(name), safe="")


def points(values: Sequence[float]) -> str:
    """The line of a sparkline, for SVG."""
    top = max(values, default=0.0) or 1.0
    step = _SPARK_WIDTH / max(1, len(values) - 1)
    return " ".join(
        f"{index * step:.1f},{_SPARK_HEIGHT - 1 - value / top * (_SPARK_HEIGHT - 2):.1f}"
        for index, value in enumerate(values)
    )


@lru_cache(1)
def environment() -> Environment:
    made = Environment(
        loader=PackageLoader("pyromq.console"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_finished,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    made.filters |= {
        "number": number,
        "size": size,
        "percent": percent,
        "duration": duration,
        "about": about,
        "moment": moment,
        "segment": segment,
        "points": points,
    }
    return made


def compile_all() -> None:
    """Compile every template, which takes a while: no viewer shall wait for it."""
    for name in environment().list_templates():
        environment().get_template(name)


def render(template: str, context: dict[str, Any]) -> str:
    return environment().get_template(template).render(context)


async def render_in_turns(template: str, context: dict[str, Any], turns: Slices) -> str:
    """A page that may have many rows: it is made in as many turns of the loop as it needs."""
    pieces: list[str] = []
    made = environment().get_template(template).generate(context)
    while some := list(islice(made, _PIECES)):
        pieces += some
        if turns.is_over():
            await turns.wait_for_turn()
    return "".join(pieces)
