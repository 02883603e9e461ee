"""Cron expressions: minute, hour, day of the month, month, day of the week; when their next time comes.

A field has numbers or names, ranges, steps and lists, as in `*/10`, `1-5` or `mon,fri`. As in every cron, if
both days are given, one of them is enough. Our own, because schedules need the next time and nothing else:
croniter brings dateutil, and an extra would be one more thing to install for these lines.
"""

from collections.abc import Iterator
from datetime import UTC, date, datetime, time, timedelta
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pyromq.errors import ConfigError

_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_FIELDS = (
    ("minute", 0, 59, ()),
    ("hour", 0, 23, ()),
    ("day of the month", 1, 31, ()),
    ("month", 1, 12, _MONTHS),
    ("day of the week", 0, 7, _DAYS),
)
_MAX_DAYS = 366 * 8 + 1
"""A 29th of February may be eight years away."""


class Cron:
    def __init__(self, expression: str, tz: str = "UTC") -> None:
        """Raises ConfigError for what is not an expression, or never comes, and for an unknown zone."""
        fields = str(expression).split()
        if len(fields) != len(_FIELDS):
            raise ConfigError("cron", expression, "five fields, as in '0 3 * * mon-fri'")
        parsed = [_numbers(field, *allowed) for field, allowed in zip(fields, _FIELDS, strict=True)]
        self._minutes, self._hours, self._days, self._months, weekdays = parsed
        self._weekdays = frozenset(number % 7 for number in weekdays)
        self._takes_any_hour = fields[1].startswith("*")
        self._needs_both_days = fields[2].startswith("*") or fields[4].startswith("*")
        try:
            self._zone = ZoneInfo(tz)
        except (ZoneInfoNotFoundError, ValueError, OSError, TypeError):
            raise ConfigError("tz", tz, "the name of a time zone, as in 'Europe/Berlin'") from None
        self._text = expression
        self.next_after(0)

    def __repr__(self) -> str:
        return f"<Cron {self._text!r} {self._zone}>"

    def next_after(self, moment_ms: int) -> int:
        """The first time after a moment, both in milliseconds since the epoch."""
        after = datetime.fromtimestamp(moment_ms / 1000, UTC)
        # The day before, too: a change of the clocks at midnight may move its times.
        first = after.astimezone(self._zone).date() - timedelta(days=1)
        for number in range(_MAX_DAYS):
            day = first + timedelta(days=number)
            if self._has(day):
                times = [at for at in self._times_of(day) if at > after]
                if times:
                    return round(min(times).timestamp() * 1000)
        raise ConfigError("cron", self._text, "an expression with a time that comes")

    def _has(self, day: date) -> bool:
        in_month, in_week = day.day in self._days, day.isoweekday() % 7 in self._weekdays
        fits = in_month and in_week if self._needs_both_days else in_month or in_week
        return fits and day.month in self._months

    def _times_of(self, day: date) -> Iterator[datetime]:
        for hour in self._hours:
            for minute in self._minutes:
                # A local time that comes twice has two folds.
                for fold in (0, 1) if self._takes_any_hour else (0,):
                    at = datetime.combine(day, time(hour, minute, fold=fold), self._zone).astimezone(UTC)
                    if not self._takes_any_hour or at.astimezone(self._zone).hour in self._hours:
                        yield at


def _numbers(field: str, what: str, least: int, most: int, names: tuple[str, ...]) -> frozenset[int]:
    def number(text: str) -> int:
        if text.lower() in names:
            return names.index(text.lower()) + least
        if text.isdecimal() and least <= int(text) <= most:
            return int(text)
        raise ConfigError("cron", field, f"a {what} from {least} to {most}, not {text!r}")

    found: set[int] = set()
    for part in field.split(","):
        span, _, step = part.partition("/")
        if step and not (step.isdecimal() and int(step) > 0):
            raise ConfigError("cron", field, f"a step of 1 or more, not {step!r}")
        first, dash, last = span.partition("-")
        if span == "*":
            begin, end = least, most
        else:
            begin = number(first)
            end = number(last) if dash else most if step else begin
        if begin > end:
            raise ConfigError("cron", field, f"a range that begins before it ends, not {span!r}")
        found.update(range(begin, end + 1, int(step or 1)))
    return frozenset(found)
