"""Times and days written as text, as Spark casts them: `2024-1-2`, `2024`, `10:00`, zones by name.

A moment is in microseconds since the epoch, a day in days: Spark's range is wider than that of `datetime`.
"""

import re
import time
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

from pyromq.spark.from_json.unfit import Unfit

Zone = ZoneInfo | int
"""A zone of the tz database, or seconds east of Greenwich."""

MICROS = 1_000_000
DAY_S = 86_400

_EPOCH = date(1970, 1, 1).toordinal()
_CYCLE_YEARS, _CYCLE_DAYS = 400, 146_097
_BLANKS = "".join(map(chr, [*range(0x21), 0x7F]))
_CLOCK = r"([0-9]{1,2})(?::([0-9]{1,2})(?::([0-9]{1,2})(?:\.([0-9]*))?([^0-9].*)?)?)?"
_MOMENT = re.compile(
    rf"([+-]?)([0-9]{{4,6}})(?:-([0-9]{{1,2}})(?:-([0-9]{{1,2}})(?:[ T]{_CLOCK})?)?)?", re.DOTALL
)
_TIME = re.compile(rf"(?:T|(?=[0-9]+:)){_CLOCK}", re.DOTALL)
_DAY = re.compile(r"([+-]?)([0-9]{4,7})(?:-([0-9]{1,2})(?:-([0-9]{1,2})(?:[ T].*)?)?)?", re.DOTALL)
_DAYS = re.compile(r"[+-]?\d+")
_OFFSET = re.compile(r"([+-])(?:(\d)|(\d\d)(?:(\d\d)(\d\d)?|:(\d\d)(?::(\d\d))?)?)", re.ASCII)
_ONE_HOUR_DIGIT = re.compile(r"([+-])(\d):", re.ASCII)
_ONE_MINUTE_DIGIT = re.compile(r"([+-])(\d\d):(\d)$", re.ASCII)
_MOST_OFFSET_S = 18 * 3600
_FIRST_GREGORIAN_DAY = -141_427

# java: the short names that java.time knows; others of them mean several zones
_SHORT_NAMES = {
    "ACT": "Australia/Darwin",
    "AET": "Australia/Sydney",
    "AGT": "America/Argentina/Buenos_Aires",
    "ART": "Africa/Cairo",
    "AST": "America/Anchorage",
    "BET": "America/Sao_Paulo",
    "BST": "Asia/Dhaka",
    "CAT": "Africa/Harare",
    "CNT": "America/St_Johns",
    "CST": "America/Chicago",
    "CTT": "Asia/Shanghai",
    "EAT": "Africa/Addis_Ababa",
    "ECT": "Europe/Paris",
    "EST": "-05:00",
    "HST": "-10:00",
    "IET": "America/Indiana/Indianapolis",
    "IST": "Asia/Kolkata",
    "JST": "Asia/Tokyo",
    "MIT": "Pacific/Apia",
    "MST": "-07:00",
    "NET": "Asia/Yerevan",
    "NST": "Pacific/Auckland",
    "PLT": "Asia/Karachi",
    "PNT": "America/Phoenix",
    "PRT": "America/Puerto_Rico",
    "PST": "America/Los_Angeles",
    "SST": "Pacific/Guadalcanal",
    "VST": "Asia/Ho_Chi_Minh",
}
_NOT_IN_JAVA = {"Factory", "localtime", "ROC"}


@lru_cache(maxsize=1024)
def zone_of(name: str) -> Zone:
    """Unfit if Java knows no such zone."""
    name = _ONE_HOUR_DIGIT.sub(r"\g<1>0\2:", name, count=1)
    name = _ONE_MINUTE_DIGIT.sub(r"\1\2:0\3", name, count=1)
    name = _SHORT_NAMES.get(name, name)
    if name == "Z":
        return 0
    for prefix in ("UTC", "GMT", "UT", ""):
        rest = name.removeprefix(prefix)
        if name.startswith(prefix) and (not rest or rest[0] in "+-"):
            return _offset(rest) if rest else 0
    try:
        if name in _NOT_IN_JAVA or name not in _all_names():
            raise Unfit(f"{name!r} is not a time zone")
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError):
        raise Unfit(f"{name!r} is not a time zone") from None


@lru_cache(maxsize=1)
def _all_names() -> frozenset[str]:
    return frozenset(available_timezones())


def _offset(text: str) -> int:
    match = _OFFSET.fullmatch(text)
    if match is None:
        raise Unfit(f"{text!r} is not an offset of a time zone")
    sign, hour, hours, minutes, seconds, minutes_too, seconds_too = match.groups()
    minute, second = int(minutes or minutes_too or 0), int(seconds or seconds_too or 0)
    total = int(hour or hours) * 3600 + minute * 60 + second
    if minute > 59 or second > 59 or total > _MOST_OFFSET_S:
        raise Unfit(f"{text!r} is not an offset of a time zone")
    return -total if sign == "-" else total


def moment(text: str, zone: Zone) -> int:
    """With its own zone, or in `zone`."""
    try:
        return _moment(text, zone)
    except Unfit:
        if "GMT" not in text:
            raise
        # Spark then tries it once more without.
        return _moment(text.replace("GMT", ""), zone)


def _moment(text: str, zone: Zone) -> int:
    trimmed = text.strip(_BLANKS)
    if (match := _MOMENT.fullmatch(trimmed)) is not None:
        sign, year, month, day, *clock = match.groups()
        days = days_of(int(sign + year), int(month or 1), int(day or 1))
    elif (match := _TIME.fullmatch(trimmed)) is not None and not (trimmed[0] == "T" and text[0] != "T"):
        clock, days = list(match.groups()), None
    else:
        raise Unfit(f"{text!r} is not a time")
    if clock[4] is not None:
        zone = zone_of(clock[4].strip(_BLANKS[:-1]))
    micros = _of_day(clock)
    if days is None:
        days = _today(zone)
    local = days * DAY_S * MICROS + micros
    return _in_64_bits(local - _offset_s(local // MICROS, zone) * MICROS)


def local_moment(text: str) -> int:
    """A time that has no zone, nor may have one."""
    match = _MOMENT.fullmatch(text.strip(_BLANKS))
    if match is None or match[9] is not None:
        raise Unfit(f"{text!r} is not a time without a zone")
    sign, year, month, day, *clock = match.groups()
    days = days_of(int(sign + year), int(month or 1), int(day or 1))
    return _in_64_bits(days * DAY_S * MICROS + _of_day(clock))


def _of_day(clock: list[str | None]) -> int:
    hour, minute, second = (int(part or 0) for part in clock[:3])
    if hour > 23 or minute > 59 or second > 59:
        raise Unfit(f"no clock shows {hour}:{minute}:{second}")
    return (hour * 3600 + minute * 60 + second) * MICROS + int(f"{clock[3] or '':0<6.6}")


def _in_64_bits(micros: int) -> int:
    if not -(2**63) <= micros < 2**63:
        raise Unfit("a time too far away")
    return micros


def day(text: str) -> int:
    match = _DAY.fullmatch(text.strip(_BLANKS)) or _DAY.fullmatch(text.replace("GMT", "").strip(_BLANKS))
    if match is not None:
        sign, year, month, day_of_month = match.groups()
        try:
            days = days_of(int(sign + year), int(month or 1), int(day_of_month or 1))
        except Unfit:
            days = 2**31
        if days < 2**31:
            return days
    # Spark once stored days as numbers, counted in the calendar of their time.
    if _DAYS.fullmatch(text) is None or not -(2**31) <= int(text) < 2**31:
        raise Unfit(f"{text!r} is not a date")
    return _from_julian(int(text))


def days_of(year: int, month: int, day_of_month: int) -> int:
    """Of any year, in today's calendar."""
    cycles, within = divmod(year, _CYCLE_YEARS)
    try:
        ordinal = date(within + _CYCLE_YEARS, month, day_of_month).toordinal()
    except ValueError as problem:
        raise Unfit(str(problem)) from None
    return ordinal + (cycles - 1) * _CYCLE_DAYS - _EPOCH


def _from_julian(days: int) -> int:
    """The day of the same name in today's calendar."""
    if days >= _FIRST_GREGORIAN_DAY:
        return days
    # Days since 1 March of the year 0, in cycles of four Julian years.
    cycles, in_cycle = divmod(days + 719_470, 1461)
    years = min(in_cycle // 365, 3)
    in_year = in_cycle - 365 * years
    month = (5 * in_year + 2) // 153
    day_of_month = in_year - (153 * month + 2) // 5 + 1
    year = 4 * cycles + years + (month >= 10)
    found = days_of(year, month + 3 if month < 10 else month - 9, 1) + day_of_month - 1
    if found < -(2**31):
        raise Unfit("a day too far away")
    return found


def _today(zone: Zone) -> int:
    now = int(time.time())
    offset_s = (
        zone if isinstance(zone, int) else int(_delta(datetime.fromtimestamp(now, UTC).astimezone(zone)))
    )
    return (now + offset_s) // DAY_S


def _delta(moment_: datetime) -> float:
    offset = moment_.utcoffset()
    return offset.total_seconds() if offset is not None else 0.0


def _offset_s(local_s: int, zone: Zone) -> int:
    """The offset from UTC of a clock that shows this; for a time shown twice, the first one."""
    if isinstance(zone, int):
        return zone
    days, second = divmod(local_s, DAY_S)
    ordinal = days + _EPOCH
    last = date.max.toordinal()
    if not 1 <= ordinal <= last:
        # Rules repeat every 400 years, and there are none before the first.
        ordinal %= _CYCLE_DAYS
        ordinal += 1 if days < 0 else last - last % _CYCLE_DAYS - _CYCLE_DAYS
    shown = datetime.combine(date.fromordinal(max(ordinal, 1)), datetime.min.time()) + timedelta(
        seconds=second
    )
    return int(_delta(shown.replace(tzinfo=zone)))
