"""Blocks and footers of segments in memory: a few threads fetch what readers need, once for all who wait.

The event loop asks and is never kept waiting. What cannot be fetched, or does not match its checksum, is
asked for again a little later for as long as somebody wants it; it is never passed over.
"""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final, NamedTuple, Protocol

from pyromq.errors import PyroError, TransportError
from pyromq.tier.manifest import SegmentEntry
from pyromq.tier.objects import ObjectMissing, Objects
from pyromq.tier.segment_format import BadObject, Footer, PackedBlock, Piece, records_of, unpack_block

_log = logging.getLogger(__name__)

_PAUSE_S: Final = 1.0
"""Between two attempts."""
_FOOTER_GROWTH: Final = 8
"""A footer in memory is about this many times larger than the stored one."""

Wake = Callable[[], None]
Key = tuple[str, int]
"""The name of a segment and the number of a block; -1 for the footer."""


class FooterSource(Protocol):
    """Where footers come from: this disk, or the object store. It blocks."""

    def footer(self, entry: SegmentEntry) -> Footer | None: ...


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


class _Kept(NamedTuple):
    part: LoadedBlock | Footer
    size_bytes: int


class Blocks:
    def __init__(self, objects: Objects, footers: FooterSource, max_bytes: int, threads: int) -> None:
        self._objects = objects
        self._footers = footers
        self._max_bytes = max_bytes
        self._loop = asyncio.get_running_loop()
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="tier-read")
        self._kept: OrderedDict[Key, _Kept] = OrderedDict()
        self._waiting: dict[Key, list[Wake]] = {}
        self._is_closed = False
        self.size_bytes = 0
        self.fetched = self.fetched_bytes = self.failures = self.hits = 0
        self.problems: dict[str, str] = {}
        """Of the segments that could not be read the last time, by their names."""

    def __repr__(self) -> str:
        return f"<Blocks {len(self._kept)} with {self.size_bytes} bytes, {len(self._waiting)} wanted>"

    def block(self, name: str, number: int) -> LoadedBlock | None:
        """A block, if it is in memory."""
        found = self._get((name, number))
        assert found is None or isinstance(found, LoadedBlock)
        if found is not None:
            self.hits += 1
        return found

    def footer(self, name: str) -> Footer | None:
        """A footer, if it is in memory."""
        found = self._get((name, -1))
        assert found is None or isinstance(found, Footer)
        return found

    def _get(self, key: Key) -> LoadedBlock | Footer | None:
        kept = self._kept.get(key)
        if kept is None:
            return None
        self._kept.move_to_end(key)
        return kept.part

    def want_block(self, name: str, block: PackedBlock, piece: Piece, when_there: Wake | None = None) -> None:
        """Fetch a block, unless that is under way. `when_there` is called once it is there, and now and then
        while it cannot be fetched."""
        self._want((name, piece.block), partial(self._load_block, name, block, piece), when_there)

    def want_footer(self, entry: SegmentEntry, when_there: Wake | None = None) -> None:
        self._want((entry.name, -1), partial(self._load_footer, entry), when_there)

    def _load_block(self, name: str, block: PackedBlock, piece: Piece) -> _Kept:
        loaded = LoadedBlock(unpack_block(block, self._objects.read(name, block.position, block.size_bytes)))
        loaded.records(piece)  # here, in a thread, where it delays no request
        return _Kept(loaded, len(loaded.content))

    def _load_footer(self, entry: SegmentEntry) -> _Kept:
        footer = self._footers.footer(entry)
        assert footer is not None
        return _Kept(footer, _FOOTER_GROWTH * (entry.size_bytes - entry.footer_at))

    def _want(self, key: Key, load: Callable[[], _Kept], when_there: Wake | None) -> None:
        if key in self._kept or self._is_closed:
            return
        waiting = self._waiting.get(key)
        if waiting is None:
            waiting = self._waiting[key] = []
            future = self._loop.run_in_executor(self._threads, load)
            future.add_done_callback(lambda done: self._loaded(key, done))
        if when_there is not None:
            waiting.append(when_there)

    def _loaded(self, key: Key, done: "asyncio.Future[_Kept]") -> None:
        if self._is_closed or done.cancelled():
            return
        problem = done.exception()
        if problem is None:
            self._keep(key, done.result())
            self._tell(key)
            return
        if not isinstance(problem, PyroError):
            raise problem
        self._failed(key, problem)

    def reject(self, key: Key, problem: BadObject, when_there: Wake) -> None:
        """A block is not what the footer says: forget it, and fetch it again a little later."""
        kept = self._kept.pop(key, None)
        self.size_bytes -= kept.size_bytes if kept is not None else 0
        self._waiting.setdefault(key, []).append(when_there)
        self._failed(key, problem)

    def _failed(self, key: Key, problem: PyroError) -> None:
        self.failures += 1
        text = f"{self._objects.place}/{key[0]}: {problem}"
        if isinstance(problem, BadObject | ObjectMissing) and text != self.problems.get(key[0]):
            _log.error("old messages cannot be read, their readers wait: %s", text)
        elif isinstance(problem, TransportError) and not self.problems:
            _log.warning("old messages cannot be read now, their readers wait: %s", problem)
        self.problems[key[0]] = text
        self._loop.call_later(_PAUSE_S, self._tell, key)

    def _keep(self, key: Key, kept: _Kept) -> None:
        self.problems.pop(key[0], None)
        if key[1] >= 0:
            self.fetched += 1
            self.fetched_bytes += kept.size_bytes
        self._kept[key] = kept
        self.size_bytes += kept.size_bytes
        while self.size_bytes > self._max_bytes and len(self._kept) > 2:
            _, oldest = self._kept.popitem(last=False)
            self.size_bytes -= oldest.size_bytes

    def _tell(self, key: Key) -> None:
        for when_there in self._waiting.pop(key, ()):
            when_there()

    def forget(self, name: str) -> None:
        """A segment is no longer needed."""
        self.problems.pop(name, None)
        for key in [each for each in self._kept if each[0] == name]:
            self.size_bytes -= self._kept.pop(key).size_bytes

    def close(self) -> None:
        self._is_closed = True
        self._threads.shutdown(wait=False, cancel_futures=True)
