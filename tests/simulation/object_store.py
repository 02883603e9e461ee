"""A simulated object store: what every store promises to a tier, and how requests to it go wrong.

Requests are carried out one at a time, as wholes, and nothing is ever lost. It creates an object only if
there is none of its name. A request can fail before it is carried out or afterwards, or be carried out when
whoever asked has given up, or is dead. Its clock is another one than the brokers': an hour passes in a few
seconds, so that leftovers become old in a run.
"""

from asyncio import sleep
from collections.abc import Callable
from contextvars import Context
from pathlib import Path
from random import Random
from typing import NamedTuple, TypeVar

from tests.simulation.blocking import current_code
from tests.simulation.loop import SimulatedLoop
from tests.simulation.network import Network
from tests.simulation.processes import EPOCH_MS, Host, Process

from pyromq.errors import TransportError
from pyromq.tier.objects import ObjectExists, ObjectInfo, ObjectMissing

T = TypeVar("T")

HOUR_S = 10.0
"""So long the store's clock takes for an hour."""
PATIENCE_S = 3.0
"""Whoever gets no answer waits for so long; a late request is carried out within twice this time."""
_WAY_S = (0.001, 0.03)
_BUSY = TransportError("503 SlowDown")


class StoredObject(NamedTuple):
    content: bytes
    modified_ms: int


class Trouble:
    """How requests go wrong at the moment: which part of them."""

    def __init__(self) -> None:
        self.end()

    def end(self) -> None:
        self.refused = self.unanswered = self.late = 0.0
        """Not carried out; carried out without an answer; carried out later than the asker waits."""
        self.slow_s = 0.0


class ObjectData:
    """The state of the store."""

    def __init__(self, loop: SimulatedLoop, chance: Random) -> None:
        self.loop = loop
        self.chance = chance
        self.objects: dict[str, StoredObject] = {}
        self.trouble = Trouble()
        self.watch: Callable[[str, int], None] = _nobody
        """Called with the name of an object that was created, replaced or removed, and the process that asked
        for it."""

    @property
    def now_ms(self) -> int:
        return EPOCH_MS + int(self.loop.time() * 3_600_000 / HOUR_S)

    def names(self, *prefixes: str) -> list[str]:
        return [name for name in self.objects if name.startswith(prefixes)]

    def put(self, name: str, content: bytes, by: int) -> None:
        self.objects[name] = StoredObject(content, self.now_ms)
        self._changed(name, by)

    def create(self, name: str, content: bytes, by: int) -> None:
        if name in self.objects:
            raise ObjectExists(name)
        self.put(name, content, by)

    def remove(self, name: str, by: int) -> None:
        if self.objects.pop(name, None) is not None:
            self._changed(name, by)

    def _changed(self, name: str, by: int) -> None:
        self.loop.trace.add(self.loop.time(), by, len(self.objects), name.encode())
        self.watch(name, by)

    def read(self, name: str, start: int, size_bytes: int | None) -> bytes:
        found = self.objects.get(name)
        if found is None:
            raise ObjectMissing(name)
        return found.content[start : None if size_bytes is None else start + size_bytes]

    def info(self, name: str) -> ObjectInfo | None:
        found = self.objects.get(name)
        return ObjectInfo(name, len(found.content), found.modified_ms) if found is not None else None

    def list(self, prefix: str) -> "list[ObjectInfo]":
        return [ObjectInfo(name, *_described(self.objects[name])) for name in sorted(self.names(prefix))]


class SimulatedObjects:
    """The store as one process sees it. Its methods wait: a program calls them in a thread."""

    place = "the store"

    def __init__(self, data: ObjectData, host: Host, network: Network, process: Process) -> None:
        """`host`: where the store is."""
        self._data = data
        self._host = host
        self._network = network
        self._own, self._id = process.host, process.id

    def create(self, name: str, content: bytes) -> None:
        # A store may answer "conflict" while another request for the same name is under way.
        self._change(lambda: self._data.create(name, content, self._id), refusal=ObjectExists(name))

    def replace(self, name: str, content: bytes) -> None:
        self._change(lambda: self._data.put(name, content, self._id))

    def put_file(self, name: str, path: Path) -> None:
        content = path.read_bytes()
        self._change(lambda: self._data.put(name, content, self._id))

    def remove(self, name: str) -> None:
        self._change(lambda: self._data.remove(name, self._id))

    def read(self, name: str, start: int = 0, size_bytes: int | None = None) -> bytes:
        return self._ask(lambda: self._data.read(name, start, size_bytes))

    def info(self, name: str) -> ObjectInfo | None:
        return self._ask(lambda: self._data.info(name))

    def list(self, prefix: str) -> "list[ObjectInfo]":
        return self._ask(lambda: self._data.list(prefix))

    def _change(self, deed: Callable[[], None], refusal: Exception = _BUSY) -> None:
        self._ask(deed, refusal, is_change=True)

    def _ask(self, deed: Callable[[], T], refusal: Exception = _BUSY, *, is_change: bool = False) -> T:
        code = current_code.get()
        assert code is not None, "the object store is asked on the event loop"
        return code.await_(self._answer(deed, refusal, is_change=is_change))

    async def _answer(self, deed: Callable[[], T], refusal: Exception, *, is_change: bool) -> T:
        data, trouble, chance = self._data, self._data.trouble, self._data.chance
        if self._network.is_blocked(self._own, self._host):
            raise await self._silence()
        if chance.random() < trouble.refused:
            await sleep(chance.uniform(*_WAY_S))
            raise chance.choice((refusal, _BUSY))
        is_late = is_change and chance.random() < trouble.late
        way_s = chance.uniform(*_WAY_S) + trouble.slow_s
        done: list[Callable[[], T]] = []

        def carry_out() -> None:
            done.append(_outcome(deed))

        # Also if whoever asked is gone.
        came_s = way_s + (chance.uniform(1.0, 2.0) * PATIENCE_S if is_late else 0.0)
        data.loop.call_later(came_s, carry_out, context=Context())
        if is_late or came_s > PATIENCE_S:
            raise await self._silence()
        await sleep(way_s + chance.uniform(*_WAY_S))
        is_lost = is_change and chance.random() < trouble.unanswered
        if is_lost or self._network.is_blocked(self._host, self._own):
            raise await self._silence()
        return done[0]()

    async def _silence(self) -> TransportError:
        await sleep(PATIENCE_S)
        return TransportError("no answer")


def _outcome(deed: Callable[[], T]) -> Callable[[], T]:
    """Carry it out now; what came of it is for whoever waits for the answer."""
    try:
        result = deed()
    except (ObjectExists, ObjectMissing) as problem:
        failure = problem

        def fail() -> T:
            raise failure

        return fail
    return lambda: result


def _described(found: StoredObject) -> tuple[int, int]:
    return len(found.content), found.modified_ms


def _nobody(_: str, __: int) -> None:
    """No one looks."""
