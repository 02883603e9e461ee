"""A store directory on this machine, read as files: what it holds, and whether all of it is sound.

    python -m pyromq.admin.local_stores summary DIR
    python -m pyromq.admin.local_stores verify DIR

Nothing is locked, written or mended; a broker may be running on it. It runs for minutes, so it is a separate
process. It writes lines of JSON: `ReadProgress`, and at last a `Summary` or `Verdict`.
"""

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from pyromq.errors import PyroError
from pyromq.store.offline import OfflineStore

_MAX_DAMAGE = 100
_TELL_S = 0.5
_NICE = 10


class ReadProgress(msgspec.Struct, frozen=True, tag=True, rename="camel"):
    read_bytes: int
    of_bytes: int


class Summary(msgspec.Struct, frozen=True, tag=True, rename="camel"):
    was_clean: bool
    """Whether no broker has it open now, and the last one stopped cleanly."""
    log_start: int
    log_end: int
    segments: int
    topics: int
    queues: int
    messages: int
    index_files: int
    deleted_topics: int
    oldest_ms: int | None
    checkpoint_ms: int | None
    remarks: list[str]


class Verdict(msgspec.Struct, frozen=True, tag=True, rename="camel"):
    is_sound: bool
    records: int
    record_bytes: int
    units: int
    damaged_bytes: int
    messages_missing: int
    damage: list[str]
    more_damage: int
    """How many findings are not in `damage`."""


class UnreadableStore(msgspec.Struct, frozen=True, tag=True, rename="camel"):
    """The directory cannot be read, or is not a store."""

    problem: str


Line = ReadProgress | Summary | Verdict | UnreadableStore


def summary(directory: Path) -> Summary:
    with OfflineStore(directory) as store:
        segments, queues = store.segments(), store.queues()
        first = next((each.first_store_timestamp for each in segments if each.first_store_timestamp), None)
        return Summary(
            was_clean=store.was_clean,
            log_start=store.log_start,
            log_end=store.log_end,
            segments=len(segments),
            topics=len({queue.topic for queue in queues}),
            queues=len(queues),
            messages=sum(queue.max_offset - queue.min_offset for queue in queues),
            index_files=len(store.index_files()),
            deleted_topics=len(store.deletions),
            oldest_ms=first,
            checkpoint_ms=store.checkpoint.log_timestamp or None,
            remarks=store.remarks,
        )


def verify(directory: Path, tell: Callable[[ReadProgress], None] = lambda _: None) -> Verdict:
    """Read every record and every unit, and compare them."""
    with OfflineStore(directory) as store:
        of_bytes, read_bytes, told_s = store.log_end - store.log_start, 0, time.monotonic()

        def count(more: int) -> None:
            nonlocal read_bytes, told_s
            read_bytes += more
            if time.monotonic() - told_s >= _TELL_S:
                told_s = time.monotonic()
                tell(ReadProgress(read_bytes, of_bytes))

        tell(ReadProgress(0, of_bytes))
        found = store.verify(count)
        return Verdict(
            is_sound=found.is_sound,
            records=found.records,
            record_bytes=found.record_bytes,
            units=found.units,
            damaged_bytes=found.damaged_bytes,
            messages_missing=found.messages_missing,
            damage=found.damage[:_MAX_DAMAGE],
            more_damage=max(0, len(found.damage) - _MAX_DAMAGE),
        )


def _say(line: Line) -> None:
    sys.stdout.buffer.write(msgspec.json.encode(line) + b"\n")
    sys.stdout.buffer.flush()


def main(what: str, directory: str) -> None:
    os.nice(_NICE)
    try:
        _say(verify(Path(directory), _say) if what == "verify" else summary(Path(directory)))
    except (PyroError, OSError) as problem:
        _say(UnreadableStore(str(problem)))


if __name__ == "__main__":
    main(*sys.argv[1:])
