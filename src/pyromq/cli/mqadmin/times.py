"""Parses and prints times, in the local time zone."""

from datetime import datetime

import click

from pyromq.clock import SystemClock

NOW = "now"
_FORMS = ("%Y-%m-%d#%H:%M:%S:%f", "%Y-%m-%d#%H:%M:%S", "%Y-%m-%d %H:%M:%S", "%Y-%m-%dT%H:%M:%S", "%Y-%m-%d")
_EXPECTED = f"milliseconds since 1970, {NOW!r} or yyyy-MM-dd#HH:mm:ss:SSS"


def time(value: str | int) -> int:
    """Milliseconds, `now`, or a date in Apache's form; click shows the name of this function in its help."""
    text = str(value).strip()
    if text == NOW:
        return SystemClock().now_ms()
    if text.removeprefix("-").isdigit():
        return int(text)
    for form in _FORMS:
        try:
            return round(datetime.strptime(text, form).timestamp() * 1000)
        except ValueError:
            continue
    raise click.BadParameter(f"{text!r} is not a time; expected {_EXPECTED}")


def to_seconds(timestamp_ms: int) -> str:
    """`2024-05-01 12:30:00`; the number itself if it is not a valid date."""
    return _text(timestamp_ms, "%Y-%m-%d %H:%M:%S")


def to_milliseconds(timestamp_ms: int) -> str:
    """`2024-05-01 12:30:00,123`."""
    seconds = _text(timestamp_ms, "%Y-%m-%d %H:%M:%S")
    return f"{seconds},{timestamp_ms % 1000:03d}" if seconds != str(timestamp_ms) else seconds


def _text(timestamp_ms: int, form: str) -> str:
    try:
        return datetime.fromtimestamp(timestamp_ms // 1000).strftime(form)
    except (OverflowError, ValueError, OSError):
        return str(timestamp_ms)
