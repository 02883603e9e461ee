"""The store of a single controller, which always leads: groups in memory, committed through the journal."""

import asyncio
import logging
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor

from pyromq.controller.groups import GroupRecord
from pyromq.controller.journal import COMPACT_ABOVE_BYTES, Journal
from pyromq.controller.store import Leader, NotLeading, Stored
from pyromq.errors import StoreError

_log = logging.getLogger(__name__)

_NEVER_STORED = Stored(None, 0)


class FileStore:
    """One write at a time. Memory changes after the disk, so a crash cannot undo anything that was read."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._stored: dict[str, Stored] = {}
        self._revision = 0
        self._own: Leader | None = None
        self._compact_above = COMPACT_ABOVE_BYTES
        self._writing = asyncio.Lock()
        self._failed: asyncio.Future[None] | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="controller-journal")

    def __repr__(self) -> str:
        return f"<FileStore {self._journal!r} groups={len(self._stored)}>"

    @property
    def leader(self) -> Leader | None:
        return self._own if self.is_leading else None

    @property
    def is_leading(self) -> bool:
        return self._own is not None and self._failed is not None and not self._failed.done()

    @property
    def size_bytes(self) -> int:
        return self._journal.size_bytes

    def on_leading(self, begun: Callable[[], None]) -> None:
        """There is no other one to take the place of."""

    async def open(self, own: Leader) -> None:
        loop = asyncio.get_running_loop()
        groups = await loop.run_in_executor(self._thread, self._journal.open)
        if self._journal.torn_bytes:
            _log.warning(
                "cut off an unfinished entry file=%s bytes=%d", self._journal.path, self._journal.torn_bytes
            )
        for name, group in groups.items():
            self._revision += 1
            self._stored[name] = Stored(group, self._revision)
        self._failed = loop.create_future()
        self._own = own

    async def run(self) -> None:
        assert self._failed is not None, "the store is not open"
        await asyncio.shield(self._failed)

    async def close(self) -> None:
        self._own = None
        if self._failed is not None and not self._failed.done():
            self._failed.cancel()
        await asyncio.get_running_loop().run_in_executor(self._thread, self._journal.close)
        self._thread.shutdown()

    async def read(self, name: str) -> Stored:
        self._require_lead()
        return self._stored.get(name, _NEVER_STORED)

    async def read_all(self) -> Mapping[str, Stored]:
        self._require_lead()
        return dict(self._stored)

    async def replace(self, name: str, group: GroupRecord, revision: int) -> bool:
        async with self._writing:
            self._require_lead()
            if self._stored.get(name, _NEVER_STORED).revision != revision:
                return False
            # A caller that leaves must not leave memory and disk apart.
            await asyncio.shield(asyncio.ensure_future(self._commit(name, group)))
            return True

    async def _commit(self, name: str, group: GroupRecord) -> None:
        loop = asyncio.get_running_loop()
        try:
            await loop.run_in_executor(self._thread, self._journal.append, group)
            self._revision += 1
            self._stored[name] = Stored(group, self._revision)
            if self._journal.size_bytes > self._compact_above:
                present = [each.group for each in self._stored.values() if each.group is not None]
                await loop.run_in_executor(self._thread, self._journal.compact, present)
                self._compact_above = max(COMPACT_ABOVE_BYTES, 4 * self._journal.size_bytes)
        except StoreError as problem:
            if self._failed is not None and not self._failed.done():
                self._failed.set_exception(problem)
                self._failed.exception()  # Retrieved here; `run` may not be waiting.
            raise

    def _require_lead(self) -> None:
        if not self.is_leading:
            raise NotLeading("this controller's store is closed or has failed")
