"""Blocks of segments in memory: what readers need is fetched by a few threads, once for all who wait.

The event loop asks and is never kept waiting. A block that cannot be fetched, or that does not match its
checksum, is asked for again a little later for as long as somebody wants it; it is never passed over.
"""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from pyromq.errors import PyroError, TransportError
from pyromq.tier.objects import ObjectMissing, Objects
from pyromq.tier.packing import records_of
from pyromq.tier.segment_format import BadObject, PackedBlock, Piece, unpack_block

_log = logging.getLogger(__name__)

_PAUSE_S: Final = 1.0
"""Between two attempts."""

Key = tuple[str, int]
"""The name of a segment and the number of a block."""


class LoadedBlock:
    __slots__ = ("_pieces", "content")

    def __init__(self, content: bytes) -> None:
        self.content = memoryview(content)
        self._pieces: dict[int, list[tuple[int, int]]] = {}

    def records(self, piece: Piece) -> list[tuple[int, int]]:
        """Where the records of a piece are in `content`, and their sizes. Raises BadObject."""
        found = self._pieces.get(piece.start)
        if found is None:
            part = self.content[piece.start : piece.start + piece.size_bytes]
            found = [(piece.start + place, size) for place, size in records_of(part)]
            self._pieces[piece.start] = found
        return found


class Blocks:
    def __init__(self, objects: Objects, max_bytes: int, threads: int) -> None:
        self._objects = objects
        self._max_bytes = max_bytes
        self._loop = asyncio.get_running_loop()
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="tier-read")
        self._loaded: OrderedDict[Key, LoadedBlock] = OrderedDict()
        self._waiting: dict[Key, list[Callable[[], None]]] = {}
        self._is_closed = False
        self.size_bytes = 0
        self.fetched = self.fetched_bytes = self.failures = self.hits = 0
        self.last_problem = ""

    def __repr__(self) -> str:
        return f"<Blocks {len(self._loaded)} with {self.size_bytes} bytes, {len(self._waiting)} wanted>"

    def get(self, key: Key) -> LoadedBlock | None:
        found = self._loaded.get(key)
        if found is not None:
            self._loaded.move_to_end(key)
            self.hits += 1
        return found

    def want(self, key: Key, block: PackedBlock, when_there: Callable[[], None] | None = None) -> None:
        """Fetch a block, unless that is under way. `when_there` is called once it is there, and now and then
        while it cannot be fetched."""
        if key in self._loaded or self._is_closed:
            return
        waiting = self._waiting.get(key)
        if waiting is None:
            waiting = self._waiting[key] = []
            future = self._loop.run_in_executor(self._threads, self._fetch, key, block)
            future.add_done_callback(lambda done: self._fetched(key, done))
        if when_there is not None:
            waiting.append(when_there)

    def _fetch(self, key: Key, block: PackedBlock) -> bytes:
        return unpack_block(block, self._objects.read(key[0], block.position, block.size_bytes))

    def _fetched(self, key: Key, done: "asyncio.Future[bytes]") -> None:
        if self._is_closed or done.cancelled():
            return
        problem = done.exception()
        if problem is None:
            self._keep(key, LoadedBlock(done.result()))
            self._tell(key)
            return
        if not isinstance(problem, PyroError):
            raise problem
        self.failures += 1
        text = f"{self._objects.place}/{key[0]}: {problem}"
        if isinstance(problem, BadObject | ObjectMissing) and text != self.last_problem:
            _log.error("old messages cannot be read, their readers wait: %s", text)
        elif isinstance(problem, TransportError) and not self.last_problem:
            _log.warning("old messages cannot be read now, their readers wait: %s", problem)
        self.last_problem = text
        self._loop.call_later(_PAUSE_S, self._tell, key)

    def _keep(self, key: Key, loaded: LoadedBlock) -> None:
        self.last_problem = ""
        self.fetched += 1
        self.fetched_bytes += len(loaded.content)
        self._loaded[key] = loaded
        self.size_bytes += len(loaded.content)
        while self.size_bytes > self._max_bytes and len(self._loaded) > 1:
            _, oldest = self._loaded.popitem(last=False)
            self.size_bytes -= len(oldest.content)

    def _tell(self, key: Key) -> None:
        for when_there in self._waiting.pop(key, ()):
            when_there()

    def close(self) -> None:
        self._is_closed = True
        self._threads.shutdown(wait=False, cancel_futures=True)
