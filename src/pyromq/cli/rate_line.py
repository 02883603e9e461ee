"""A progress line on stderr, rewritten in place, and a final line: how many messages, and how fast."""

import sys

import click

from pyromq.clock import Clock, SystemClock

_INTERVAL_S = 0.2
_ERASE_LINE = "\r\x1b[K"
_UNITS = ("B", "kB", "MB", "GB", "TB")


class RateLine:
    """`is_live`: show progress if stderr is a terminal. `is_quiet`: no final line either."""

    def __init__(self, verb: str, *, is_live: bool, is_quiet: bool, clock: Clock | None = None) -> None:
        self._verb = verb
        self._is_live = is_live and not is_quiet and sys.stderr.isatty()
        self._is_quiet = is_quiet
        self._clock = clock if clock is not None else SystemClock()
        self._started = self._shown_at = self._clock.monotonic()
        self.messages = 0
        self.size_bytes = 0

    def __repr__(self) -> str:
        return f"<RateLine {self._text()}>"

    def begin(self) -> None:
        """Count the time from now on, not from when this was made."""
        self._started = self._clock.monotonic()

    def add(self, messages: int, size_bytes: int) -> None:
        self.messages += messages
        self.size_bytes += size_bytes
        now = self._clock.monotonic()
        if self._is_live and now - self._shown_at >= _INTERVAL_S:
            self._shown_at = now
            click.echo(_ERASE_LINE + self._text(), err=True, nl=False)

    def clear(self) -> None:
        """Make room for other lines in its place."""
        if self._is_live:
            click.echo(_ERASE_LINE, err=True, nl=False)

    def end(self, remark: str = "") -> None:
        if self._is_quiet:
            return
        erase = _ERASE_LINE if self._is_live else ""
        click.echo(f"{erase}{self._text()}{remark}", err=True)

    def _text(self) -> str:
        seconds = self._clock.monotonic() - self._started
        plural = "" if self.messages == 1 else "s"
        rate = f", {self.messages / seconds:,.0f}/s" if seconds > 0 else ""
        size = amount(self.size_bytes)
        return f"{self._verb} {self.messages:,} message{plural} ({size}) in {seconds:.1f} s{rate}"


def amount(size_bytes: float) -> str:
    for unit in _UNITS[:-1]:
        if size_bytes < 1000:
            return f"{size_bytes:.3g} {unit}"
        size_bytes /= 1000
    return f"{size_bytes:,.3g} {_UNITS[-1]}"
