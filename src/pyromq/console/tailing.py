"""Live tails: one reader for each set of topics and filter, however many people watch it; no group's offsets
are touched.

The broker filters by tag or SQL, we by text or JSON. The reader keeps the latest thousand matches; a
browser gets at most fifty rows a second, and the number of those it did not get. A reader ends some time
after its last viewer has left.
"""

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from pyromq.admin import browsing
from pyromq.admin.cluster import Cluster
from pyromq.console.bodies import row_of
from pyromq.console.masking import Masks
from pyromq.errors import PyroError
from pyromq.filtering.tags import ALL
from pyromq.protocol.body import MessageQueue

_log = logging.getLogger(__name__)

KEPT_ROWS = 1000
ROWS_PER_SECOND = 50
_PAUSE_S = 0.5
_AFTER_FAILURE_S = 3.0
_ROWS_AT_ONCE = 500
LINGER_S = 900.0
MAX_READERS = 64


@dataclass(frozen=True, slots=True)
class TailFilter:
    """The messages that a tail shows."""

    cluster: str
    topics: tuple[str, ...]
    tags: str = ALL
    sql: str = ""
    text: str = ""
    json: str = ""


@dataclass(frozen=True, slots=True)
class Batch:
    """Rows for one browser, and the counters of the reader so far."""

    rows: list[dict[str, Any]]
    last: int
    seen: int
    matched: int
    skipped: int
    problem: str


class TailReader:
    """Reads topics from now on, until it is stopped."""

    def __init__(self, cluster: Cluster, wanted: TailFilter, masks: Masks | None = None) -> None:
        self._cluster = cluster
        self._clock = cluster.clock
        self.wanted = wanted
        self._masks = masks if masks is not None else Masks()
        self._only = self._masks.filter(wanted.text, wanted.json)
        self._kept: deque[tuple[int, dict[str, Any]]] = deque(maxlen=KEPT_ROWS)
        self.seen = 0
        self.matched = 0
        self.problem = ""
        self.viewers = 0
        self.unwatched_since: float | None = None
        self._task: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        seen = f"seen={self.seen} matched={self.matched}"
        return f"<TailReader {self.wanted.topics} viewers={self.viewers} {seen}>"

    def is_forgotten(self) -> bool:
        """Whether it has had no viewers for a while."""
        since = self.unwatched_since
        return since is not None and self._clock.monotonic() - since > LINGER_S

    def leave(self) -> None:
        """One viewer less."""
        self.viewers -= 1
        if not self.viewers:
            self.unwatched_since = self._clock.monotonic()

    def start(self) -> None:
        self._task = asyncio.create_task(self._run(), name=f"console tail {','.join(self.wanted.topics)}")

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    async def _run(self) -> None:
        positions: dict[str, dict[MessageQueue, int]] = {}
        while not self.is_forgotten():
            found: list[browsing.Place] = []
            problems: list[str] = []
            for topic in self.wanted.topics:
                try:
                    found += await self._read(topic, positions)
                except PyroError as problem:
                    problems.append(str(problem))
                except Exception:
                    _log.exception("a tail failed topic=%s", topic)
                    problems.append("the console failed; its log says why")
            self._keep(found)
            self.problem = "; ".join(problems)
            await asyncio.sleep(_AFTER_FAILURE_S if problems else _PAUSE_S)

    async def _read(self, topic: str, positions: dict[str, dict[MessageQueue, int]]) -> list[browsing.Place]:
        """New messages of a topic since its positions; the first time they are its end."""
        wanted = self.wanted
        if topic not in positions:
            end = await browsing.look(self._cluster, topic, browsing.Wanted(limits=browsing.Limits(rows=0)))
            positions[topic] = end.positions
        new = browsing.Wanted(
            newest_first=False,
            positions=positions[topic],
            tags=wanted.tags,
            sql=wanted.sql,
            only=self._only,
            limits=browsing.Limits(rows=_ROWS_AT_ONCE, seconds=5.0),
        )
        look = await browsing.look(self._cluster, topic, new)
        positions[topic] = look.positions
        self.seen += look.seen
        return list(look.found)

    def _keep(self, found: list[browsing.Place]) -> None:
        if len(self.wanted.topics) > 1:
            found.sort(key=lambda each: each.message.store_timestamp)
        for each in found:
            self.matched += 1
            body = self._masks.body(each.message.body)
            self._kept.append((self.matched, row_of(each.broker_name, each.message, body)))

    def since(self, last: int, limit: int) -> Batch:
        """The newest rows after a number; older ones that do not fit are skipped, and counted."""
        fresh = [(number, row) for number, row in self._kept if number > last]
        shown = fresh[-limit:]
        skipped = self.matched - last - len(shown)
        return Batch([row for _, row in shown], self.matched, self.seen, self.matched, skipped, self.problem)


class Readers:
    """All readers; `watching` starts one, or joins the one that is there."""

    def __init__(self, masks: Masks | None = None) -> None:
        self._masks = masks
        self._readers: dict[TailFilter, TailReader] = {}

    def __repr__(self) -> str:
        return f"<Readers {list(self._readers.values())}>"

    def __len__(self) -> int:
        return len(self._readers)

    @contextmanager
    def watching(self, cluster: Cluster, wanted: TailFilter) -> Iterator[TailReader]:
        reader = self._readers.get(wanted)
        if reader is None or reader.is_forgotten():
            reader = self._readers[wanted] = TailReader(cluster, wanted, self._masks)
            reader.start()
        reader.viewers += 1
        reader.unwatched_since = None
        try:
            yield reader
        finally:
            reader.leave()

    def has_room(self, wanted: TailFilter) -> bool:
        """Whether this can be read: it is read already, or the limit is not reached."""
        return wanted in self._readers or len(self._readers) < MAX_READERS

    async def make_room(self) -> None:
        """Drop readers that have ended and, at the limit, those without viewers for longest."""
        idle = [each for each in self._readers.values() if each.unwatched_since is not None]
        idle.sort(key=lambda each: each.unwatched_since or 0.0)
        for reader in idle:
            if reader.is_forgotten() or len(self._readers) >= MAX_READERS:
                del self._readers[reader.wanted]
                await reader.stop()

    async def stop(self) -> None:
        readers, self._readers = list(self._readers.values()), {}
        for reader in readers:
            await reader.stop()


async def batches(reader: TailReader, last: int) -> AsyncIterator[Batch]:
    """Once a second what is new; `last` is the number of the last row that the browser has."""
    last = min(last, reader.matched) if last > 0 else max(0, reader.matched - ROWS_PER_SECOND)
    while True:
        batch = reader.since(last, ROWS_PER_SECOND)
        yield batch
        last = batch.last
        await asyncio.sleep(1.0)
