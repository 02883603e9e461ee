"""How people write times on the command line: `10m`, `2026-12-24T18:00` in local time, `@MILLISECONDS`."""

import re
from datetime import datetime

_UNIT_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_DURATION = re.compile(r"(\d{1,9})(ms|s|m|h|d)")
_MILLISECONDS = re.compile(r"@(\d{1,18})")

DURATIONS = "a number with a unit (500ms 90s 10m 2h 7d)"
MOMENTS = "a time (2030-12-31, 2030-12-31T23:59, @MILLISECONDS)"


def duration_ms(text: str) -> int | None:
    """None if the text is not a duration."""
    found = _DURATION.fullmatch(text)
    return int(found[1]) * _UNIT_MS[found[2]] if found else None


def moment_ms(text: str) -> int | None:
    """Milliseconds since 1970; None if the text is not a time. Without a time zone it is local time."""
    if found := _MILLISECONDS.fullmatch(text):
        return int(found[1])
    try:
        return round(datetime.fromisoformat(text).timestamp() * 1000)
    except (ValueError, OverflowError, OSError):
        return None
