"""From a requested position (the ends of queues, offsets, times, a group) to one offset for each queue."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from pyromq.errors import ConfigError
from pyromq.spark.fetch import report
from pyromq.spark.option_kinds import EARLIEST, LATEST, Position
from pyromq.spark.options import ReadOptions
from pyromq.spark.queues import Queue, Span, nest


class OffsetSource(Protocol):
    """Knows the offsets of queues: brokers, or the tier."""

    def readable_queues(self, topic: str) -> list[Queue]: ...

    def earliest(self, queues: Iterable[Queue]) -> dict[Queue, int]: ...

    def latest(self, queues: Iterable[Queue]) -> dict[Queue, int]: ...

    def committed(self, group: str, queues: Iterable[Queue]) -> dict[Queue, int]: ...

    def at_time(self, timestamps: Mapping[Queue, int]) -> dict[Queue, int | None]:
        """The first offset stored at or after a time; None where everything is older."""
        ...


def resolve_start(cluster: OffsetSource, options: ReadOptions, queues: Sequence[Queue]) -> dict[Queue, int]:
    if options.selection.queues is not None:
        _check_assigned(cluster, queues)
    return _resolve(cluster, options.start, options, queues, "starting")


def resolve_late(
    cluster: OffsetSource, options: ReadOptions, ends: Mapping[Queue, int], since_ms: int | None
) -> dict[Queue, int]:
    """The start of queues whose broker was perhaps away when a stream started, at `since_ms`. `ends`: where
    they end now."""
    kind = options.start.kind
    if kind == "group":
        return cluster.earliest(ends) | cluster.committed(options.group or "", ends)
    time_ms = {"latest": since_ms, "timestamp": options.start.timestamp_ms}.get(kind)
    if time_ms is None:
        return cluster.earliest(ends)
    found = cluster.at_time(dict.fromkeys(ends, time_ms))
    return {queue: ends[queue] if offset is None else offset for queue, offset in found.items()}


def resolve_end(cluster: OffsetSource, options: ReadOptions, queues: Sequence[Queue]) -> dict[Queue, int]:
    return _resolve(cluster, options.end, options, queues, "ending")


def resolve_spans(cluster: OffsetSource, options: ReadOptions, queues: Sequence[Queue]) -> list[Span]:
    """The spans of a batch. An end before the start is a contradiction, or a loss of messages."""
    start, end = resolve_start(cluster, options, queues), resolve_end(cluster, options, queues)
    for queue in queues:
        if start[queue] <= end[queue] or options.start.kind == "earliest":
            continue
        if options.end.kind == "latest":
            what = f"{queue} ends at {end[queue]} now, before the start at {start[queue]}"
            report(
                f"{what}: messages are gone, or the topic was created again", fails=options.fail_on_data_loss
            )
        else:
            name = end_option(options)
            raise ConfigError(name, f"{queue} at {end[queue]}", f"no end before the start at {start[queue]}")
    if options.end.kind == "offsets":
        end = _existing_ends(cluster, end, options)
    return [Span(queue, start[queue], end[queue]) for queue in queues]


def end_option(options: ReadOptions) -> str:
    by_time = {"timestamp": "endingTimestamp", "timestamps": "endingOffsetsByTimestamp"}
    return by_time.get(options.end.kind, "endingOffsets")


def _existing_ends(cluster: OffsetSource, end: dict[Queue, int], options: ReadOptions) -> dict[Queue, int]:
    """A task would wait in vain for messages that do not exist."""
    newest = cluster.latest(list(end))
    for queue, offset in end.items():
        if offset > newest[queue]:
            what = f"{queue} ends at {newest[queue]} now, before the end at {offset} that endingOffsets gives"
            report(f"{what}: messages are gone, or were never there", fails=options.fail_on_data_loss)
    return {queue: min(offset, newest[queue]) for queue, offset in end.items()}


def _check_assigned(cluster: OffsetSource, queues: Sequence[Queue]) -> None:
    """Raise ConfigError for a queue that its broker does not have: it would stay empty for ever."""
    for topic in sorted({queue.topic for queue in queues}):
        known = cluster.readable_queues(topic)
        for queue in queues:
            there = [each for each in known if each.broker == queue.broker]
            if queue.topic == topic and there and queue not in there:
                raise ConfigError("assign", str(queue), f"one of {', '.join(map(str, there))}")


def _resolve(
    cluster: OffsetSource, position: Position, options: ReadOptions, queues: Sequence[Queue], side: str
) -> dict[Queue, int]:
    if position.kind == "earliest":
        return cluster.earliest(queues)
    if position.kind in ("latest", "tier"):
        return cluster.latest(queues)
    if position.kind == "group":
        # A queue the group never read is read whole, as new queues are.
        return cluster.earliest(queues) | cluster.committed(options.group or "", queues)
    if position.kind == "timestamp":
        return _at_times(cluster, dict.fromkeys(queues, position.timestamp_ms), options, side)
    numbers = _for_each(queues, position, side)
    if position.kind == "timestamps":
        return _at_times(cluster, numbers, options, side)
    return _at_offsets(cluster, numbers)


def _for_each(queues: Sequence[Queue], position: Position, side: str) -> dict[Queue, int]:
    given = dict(position.numbers or {})
    by_time = "ByTimestamp" if position.kind == "timestamps" else ""
    option, text = f"{side}Offsets{by_time}", json.dumps(nest(given))
    if missing := [str(queue) for queue in queues if queue not in given]:
        raise ConfigError(option, text, f"an entry for every queue; {', '.join(missing)} are missing")
    if unknown := [str(queue) for queue in given if queue not in set(queues)]:
        raise ConfigError(option, text, f"queues that are read; {', '.join(unknown)} are not")
    return given


def _at_offsets(cluster: OffsetSource, numbers: dict[Queue, int]) -> dict[Queue, int]:
    first = cluster.earliest([queue for queue, number in numbers.items() if number == EARLIEST])
    last = cluster.latest([queue for queue, number in numbers.items() if number == LATEST])
    return numbers | first | last


def _at_times(
    cluster: OffsetSource, timestamps: dict[Queue, int], options: ReadOptions, side: str
) -> dict[Queue, int]:
    found = cluster.at_time(timestamps)
    offsets = {queue: offset for queue, offset in found.items() if offset is not None}
    unmatched = [queue for queue, offset in found.items() if offset is None]
    if unmatched and side == "starting" and options.fail_without_match:
        names = ", ".join(f"{queue} at {timestamps[queue]}" for queue in unmatched)
        raise ConfigError(
            "startingTimestamp" if options.start.kind == "timestamp" else "startingOffsetsByTimestamp",
            names,
            "a time that is not after the newest message;"
            " startingOffsetsByTimestampStrategy=latest starts with the next one",
        )
    return offsets | cluster.latest(unmatched)
