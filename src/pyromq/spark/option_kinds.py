"""How the text of an option becomes a value; a text that cannot is refused with the reason."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Literal

from pyromq.config.kinds import BadValue, Kind, quantity
from pyromq.errors import BadExpression, ConnectFailed
from pyromq.filtering.sql_parser import compile_sql
from pyromq.protocol.names import group_problem, topic_problem
from pyromq.remoting.addresses import parse_address
from pyromq.spark.from_json.times import zone_of
from pyromq.spark.from_json.unfit import Unfit
from pyromq.spark.queues import LARGEST, Queue, parse_assignment, parse_numbers

EARLIEST, LATEST = -2, -1
"""Kafka's numbers for the two ends of a queue, allowed inside JSON offsets."""


@dataclass(frozen=True, slots=True)
class Position:
    """Where reading begins or ends; exactly one of the kinds is meant."""

    kind: Literal["earliest", "latest", "group", "tier", "offsets", "timestamp", "timestamps"]
    numbers: Mapping[Queue, int] | None = None
    timestamp_ms: int = 0


def _addresses(text: str) -> tuple[str, ...]:
    addresses = tuple(filter(None, (part.strip() for part in re.split("[;,]", text))))
    for address in addresses:
        try:
            parse_address(address)
        except ConnectFailed as problem:
            raise BadValue(problem) from None
    return addresses


def _count(text: str) -> int:
    number = int(text.replace("_", ""))
    if number > LARGEST:
        raise BadValue(f"it is more than {LARGEST}")
    return number


def _topics(text: str) -> tuple[str, ...]:
    topics = tuple(sorted({part.strip() for part in text.split(",") if part.strip()}))
    if not topics:
        raise ValueError(text)
    for topic in topics:
        _without_problem(topic_problem)(topic)
    return topics


def _traceparent(text: str) -> str:
    if not re.fullmatch("[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}", text):
        raise BadValue("digits are 0 to 9 and a to f")
    return text


def _without_problem(problem_of: Callable[[str], str | None]) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if problem := problem_of(text):
            raise BadValue(problem)
        return text

    return parse


def _pattern_problem(text: str) -> str | None:
    try:
        re.compile(text)
    except re.error as problem:
        return str(problem)
    return None


def _zone_problem(text: str) -> str | None:
    try:
        zone_of(text)
    except Unfit as problem:
        return str(problem)
    return None


def _sql_problem(text: str) -> str | None:
    try:
        compile_sql(text)
    except BadExpression as problem:
        return str(problem)
    return None


def _timestamps(text: str) -> Mapping[Queue, int]:
    timestamps = parse_numbers(text)
    if min(timestamps.values()) < 0:
        raise BadValue("timestamps are milliseconds of at least 0")
    return timestamps


def _offsets(words: tuple[Literal["earliest", "latest", "group", "tier"], ...], lowest: int) -> Kind:
    def parse(text: str) -> Position:
        for word in words:
            if text.lower() == word:
                return Position(word)
        if not text.startswith("{"):
            raise ValueError(text)
        numbers = parse_numbers(text)
        if min(numbers.values()) < lowest:
            raise BadValue(f"only {LATEST}, the latest, and {EARLIEST}, the earliest start, may be negative")
        return Position("offsets", numbers)

    return Kind(f'{", ".join(words)} or JSON like {{"Orders": {{"broker-a:0": 42}}}}', parse)


_SIZES = {
    name: 1024**power
    for power, letter in enumerate(("", "k", "m", "g", "t"))
    for name in (letter, f"{letter}i", f"{letter}b", f"{letter}ib")
}
_TIMES = {
    name: factor
    for names, factor in (
        ("ms millisecond milliseconds", 1),
        ("s second seconds", 1000),
        ("m min minute minutes", 60_000),
        ("h hour hours", 3_600_000),
        ("d day days", 86_400_000),
    )
    for name in names.split()
}

Addresses = Annotated[
    tuple[str, ...], Kind("addresses of name servers like 127.0.0.1:9876", _addresses, ";".join)
]
Count = Annotated[int, Kind("a whole number", _count)]
Size = Annotated[int, quantity("a number of bytes", " (like 1048576 or 1m)", _SIZES)]
Duration = Annotated[int, quantity("a time", " (like 500ms, 30s or 15m)", _TIMES | {"": 1})]
Topic = Annotated[str, Kind("a topic name", _without_problem(topic_problem))]
Topics = Annotated[tuple[str, ...], Kind("topics separated by commas", _topics, ",".join)]
Pattern = Annotated[str, Kind("a regular expression", _without_problem(_pattern_problem))]
Assigned = Annotated[
    frozenset[Queue], Kind('JSON like {"Orders": ["broker-a:0", "broker-a:1"]}', parse_assignment)
]
Group = Annotated[str, Kind("a group name", _without_problem(group_problem))]
Sql = Annotated[str, Kind("an SQL92 expression", _without_problem(_sql_problem))]
TimeZone = Annotated[str, Kind("a time zone like Europe/Berlin or +02:00", _without_problem(_zone_problem))]
Traceparent = Annotated[str, Kind("a trace context like 00-<32 digits>-<16 digits>-01", _traceparent)]
Timestamps = Annotated[
    Mapping[Queue, int], Kind('JSON like {"Orders": {"broker-a:0": 1700000000000}}', _timestamps)
]
StartOffsets = Annotated[Position, _offsets(("earliest", "latest", "group"), EARLIEST)]
EndOffsets = Annotated[Position, _offsets(("latest", "tier"), LATEST)]
