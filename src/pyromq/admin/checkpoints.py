"""A topic's life on Spark, from the checkpoints of streaming queries: plain files, no Spark session.

`offsets/N` of a checkpoint is what batch N reads up to, written before it runs; `commits/N` is written when
it is done. The third line of the former has the positions of our source: `{"v": 2, "q": {"t": {"b": [42]}}}`,
or, from earlier versions, `{"v": 1, "q": {"t": {"b:0": 42}}}`.
"""

from collections.abc import Iterable
from pathlib import Path

import msgspec

from pyromq.admin import topics
from pyromq.admin.cluster import Cluster
from pyromq.protocol.body import MessageQueue
from pyromq.protocol.catalogue import Int64
from pyromq.protocol.queue_runs import unpack
from pyromq.protocol.requests.inspection import TopicOffset

_MAX_FILE_BYTES = 16 * 1024 * 1024


class QueryCheckpoint(msgspec.Struct, frozen=True, rename="camel"):
    """A streaming query as its checkpoint shows it. `problem` is why nothing could be read."""

    directory: str
    problem: str = ""
    batch: int | None = None
    """The newest batch that was planned."""
    planned_ms: int | None = None
    committed_batch: int | None = None
    committed_ms: int | None = None
    positions: dict[MessageQueue, Int64] = {}
    """Up to where the newest committed batch has read."""

    @property
    def is_running(self) -> bool:
        """Whether a batch was planned that is not done: it runs, or it failed."""
        return self.batch is not None and self.batch != self.committed_batch

    def of_topic(self, topic: str) -> dict[MessageQueue, int]:
        return {queue: offset for queue, offset in self.positions.items() if queue.topic == topic}


class Gap(msgspec.Struct, frozen=True, rename="camel"):
    """A query in one queue, against the broker: None where the broker did not answer."""

    queue: MessageQueue
    position: Int64
    first: Int64 | None = None
    end: Int64 | None = None

    @property
    def unread(self) -> int | None:
        return None if self.end is None else max(0, self.end - self.position)

    @property
    def lost(self) -> int | None:
        """Messages that were deleted before the query read them."""
        return None if self.first is None else max(0, self.first - self.position)


def read(directory: Path) -> QueryCheckpoint:
    """The checkpoint in a directory, or in the `_checkpoint` of a table in it."""
    place = directory / "_checkpoint" if (directory / "_checkpoint").is_dir() else directory
    try:
        planned, committed = _newest(place / "offsets"), _newest(place / "commits")
        if planned is None:
            return QueryCheckpoint(
                str(directory), problem="it has no batches: is it the checkpoint of a query?"
            )
        positions: dict[MessageQueue, int] = {}
        if committed is not None:
            positions = _positions(place / "offsets" / str(committed))
        return QueryCheckpoint(
            directory=str(directory),
            batch=planned,
            planned_ms=_written_ms(place / "offsets" / str(planned)),
            committed_batch=committed,
            committed_ms=None if committed is None else _written_ms(place / "commits" / str(committed)),
            positions=positions,
        )
    except (OSError, ValueError) as problem:
        return QueryCheckpoint(str(directory), problem=str(problem))


def _newest(directory: Path) -> int | None:
    """The number of the newest batch; other files, such as `.1.crc` and `.1.tmp`, are none."""
    return max((int(path.name) for path in directory.iterdir() if path.name.isdecimal()), default=None)


def _written_ms(path: Path) -> int:
    return path.stat().st_mtime_ns // 1_000_000


def _positions(path: Path) -> dict[MessageQueue, int]:
    """The positions of all our sources of a query; Spark deletes old files, so one may be missing."""
    if path.stat().st_size > _MAX_FILE_BYTES:
        raise ValueError(f"{path} has {path.stat().st_size} bytes; {_MAX_FILE_BYTES} are read")
    lines = path.read_text(encoding="utf-8").splitlines()
    if not lines or not lines[0].startswith("v"):
        raise ValueError(f"{path} is not an offset file of Spark: it begins with {lines[:1]}")
    found: dict[MessageQueue, int] = {}
    for line in lines[2:]:
        found |= _of_source(line)
    return found


def _of_source(line: str) -> dict[MessageQueue, int]:
    """The positions in one line; none if it is of another source."""
    try:
        offset = msgspec.json.decode(line)
    except msgspec.DecodeError:
        return {}
    if not isinstance(offset, dict) or offset.get("v") not in (1, 2) or not isinstance(offset.get("q"), dict):
        return {}
    found = {}
    for topic, places in offset["q"].items():
        for place, position in places.items() if isinstance(places, dict) else ():
            broker, _, queue_id = place.rpartition(":")
            if isinstance(position, list):
                for number, each in unpack(position).items():
                    found[MessageQueue(topic, place, number)] = each
            elif broker and queue_id.isdecimal() and isinstance(position, int):
                found[MessageQueue(topic, broker, int(queue_id))] = position
    return found


async def gaps(cluster: Cluster, checkpoint: QueryCheckpoint, topic: str) -> list[Gap]:
    """A query in each queue of a topic: how far it is behind, and what was deleted before it came."""
    positions = checkpoint.of_topic(topic)
    (stats,) = await cluster.known([topics.stats(cluster, topic)])
    ends: dict[MessageQueue, TopicOffset] = {} if stats is None else stats.offset_table
    return [
        Gap(queue, position, ends[queue].min_offset, ends[queue].max_offset)
        if queue in ends
        else Gap(queue, position)
        for queue, position in sorted(positions.items())
    ]


def reading(directories: Iterable[Path], topic: str) -> list[QueryCheckpoint]:
    """The checkpoints that have read a topic, and those that could not be read."""
    return [each for each in map(read, directories) if each.problem or each.of_topic(topic)]
