"""The file of a table, written with every change, or later after a disk error.

An operator's change fails if it cannot be written. A change that a consumer causes, such as an auto-created
group, does not fail: consumers can read while the disk is full, and the file is written when there is space.

Under a loop, threads write the file, and the loop waits neither for the disk nor for the encoding of a large
table. A promise to somebody waits for `saved`. Changes that come while a thread writes are written together.
"""

import asyncio
import errno
import logging
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec

from pyromq.errors import Refused
from pyromq.protocol.codes import ResponseCode
from pyromq.store.json_table import JsonTable

_log = logging.getLogger(__name__)


class TableFile:
    def __init__(self, file: JsonTable, content: Callable[[], msgspec.Struct]) -> None:
        """`content` gives a copy that later changes of the table leave alone."""
        self._file = file
        self._content = content
        self._is_in_threads = False
        self._is_closed = False
        self._lock = threading.Lock()
        self._write: asyncio.Task[tuple[int, OSError | None]] | None = None
        self._problem = ""
        self.changes = 0
        """How many changes there were."""
        self.written = 0
        """How many of them are safe."""

    def __repr__(self) -> str:
        return f"<TableFile {self._file.path.name} unwritten={self.changes - self.written}>"

    @property
    def path(self) -> Path:
        return self._file.path

    def write_in_threads(self) -> None:
        """From now on leave writing to threads; there must be a running loop."""
        self._is_in_threads = True

    def save(self) -> None:
        """Note a change and write the table; on return it is safe, or under a loop after `saved`.

        After an OSError `retry` and `persist` try again.
        """
        self.changes += 1
        if self._is_in_threads:
            self._start()
        else:
            self._write_here()

    def save_now(self) -> None:
        """Note a change and write the table here; on return it is safe, also under a loop."""
        self.changes += 1
        self._write_here()

    def save_or_wait(self) -> None:
        """Write the table. A failure is logged once, and `retry` tries again."""
        try:
            self.save()
        except OSError as problem:
            self._tell(problem)

    async def saved(self) -> None:
        """Return when all changes up to this call are safe; raises OSError if the disk does not let us."""
        mine = self.changes
        while self.written < mine:
            if not self._is_in_threads:
                self._write_here()
                return
            # A caller that leaves does not take the write away from the others.
            covered, problem = await asyncio.shield(self._start())
            if problem is not None and covered >= mine:
                raise problem

    def retry(self) -> None:
        """Try again after a failure."""
        if self.written < self.changes:
            if self._is_in_threads:
                self._start()
                return
            try:
                self._write_here()
            except OSError as problem:
                self._tell(problem)

    def persist(self) -> None:
        """Write what is not written yet, for the last time: on return no thread writes any more."""
        try:
            if self.written < self.changes:
                self._write_here()
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Reject all writes from now on."""
        with self._lock:
            self._is_closed = True

    def _write_here(self) -> None:
        self._put(self.changes, self._content(), self._file.save)
        self._tell_success()

    def _start(self) -> "asyncio.Task[tuple[int, OSError | None]]":
        if self._write is None:
            self._write = asyncio.create_task(self._write_in_thread(), name=f"save {self._file.path.name}")
        return self._write

    async def _write_in_thread(self) -> tuple[int, OSError | None]:
        covered = self.changes
        try:
            await asyncio.to_thread(self._put, covered, self._content(), self._file.save_from_thread)
        except OSError as problem:
            self._tell(problem)
            return covered, problem
        finally:
            self._write = None
        self._tell_success()
        if self.changes > covered:
            self._start()
        return covered, None

    def _put(self, covered: int, content: msgspec.Struct, save: Callable[[msgspec.Struct], None]) -> None:
        """A thread that was slow to start does not write over something newer."""
        with self._lock:
            if covered > self.written:
                if self._is_closed:
                    raise OSError(errno.ESHUTDOWN, "the broker stops, and its tables are closed")
                save(content)
                self.written = covered

    def _tell(self, problem: OSError) -> None:
        if self._problem != str(problem) and not self._is_closed:
            self._problem = str(problem)
            _log.warning(
                "table could not be written, kept in memory and tried again file=%s: %s",
                self._file.path.name,
                problem,
            )

    def _tell_success(self) -> None:
        if self._problem:
            self._problem = ""
            _log.info("table could be written again file=%s", self._file.path.name)


class FiledTable:
    """A table with a file; see the methods of `TableFile`."""

    _file: TableFile
    copied: Callable[[], Callable[[], Awaitable[object]]] | None = None
    """Gives a function that waits for the replicas that must have the changes, too."""

    async def written(self) -> None:
        """Return when all changes up to this call are on this broker's disk; raises OSError."""
        await self._file.saved()

    async def saved(self) -> None:
        """Return when replicas that may take over have all changes up to this call, too; raises Refused if
        the disk does not let us, or if they are late."""
        await self.promise()()

    def promise(self) -> Callable[[], Awaitable[None]]:
        """The same for a change that takes several steps: call this first, and what it returns in the end. It
        also raises Refused if this broker was replaced as master meanwhile."""
        copied = self.copied() if self.copied is not None else None

        async def keep() -> None:
            try:
                await self.written()
            except OSError as problem:
                raise Refused(
                    ResponseCode.SYSTEM_ERROR,
                    f"{self._file.path.name} cannot be written: {problem}. The change counts until this"
                    " broker stops, and it tries again until then",
                ) from problem
            if copied is not None:
                await copied()

        return keep

    def write_in_threads(self) -> None:
        self._file.write_in_threads()

    def retry(self) -> None:
        self._file.retry()

    def persist(self) -> None:
        self._file.persist()

    def abandon(self) -> None:
        self._file.abandon()
