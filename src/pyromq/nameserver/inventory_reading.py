"""Registrations as they arrive, read into what the tables take; whatever they cost, nobody waits for it.

What is small is read at once. What may be large, a packed body above all, is read in a thread of its own,
one after the other, and the broker's other requests about itself wait until it is done.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, NamedTuple

from pyromq.errors import Refused, RemoteProtocolError
from pyromq.nameserver.queue_layouts import QueueShape
from pyromq.nameserver.registration import Inventory
from pyromq.protocol.bodies import registration
from pyromq.protocol.codes import V3_0_11, ResponseCode

_log = logging.getLogger(__name__)

_MAX_UNPACKED_BYTES: Final = 32 * 1024 * 1024
"""What a packed registration may become; a hundred thousand topics are five times less."""

_MAX_SHORT_BYTES: Final = 16 * 1024
_MAX_SHAPES: Final = 1_000
_MAX_WAITING_BYTES: Final = 256 * 1024 * 1024
_MAX_WAITING_BYTES_PER_HOST: Final = 64 * 1024 * 1024


class Sent(NamedTuple):
    """The body of a registration, unread."""

    body: bytes
    compressed: bool
    version: int
    digest: tuple[object, ...]
    """Stands for all of this: equal digests, equal inventories."""

    @property
    def is_short(self) -> bool:
        is_packed = registration.is_packed(self.body, compressed=self.compressed)
        return len(self.body) <= _MAX_SHORT_BYTES and not is_packed


def sent(body: bytes, *, compressed: bool, version: int) -> Sent:
    # Python's own hash is the fastest good one at hand. It guards against chance, not against malice:
    # with a forged body a broker would deceive the name server about nobody but itself.
    return Sent(body, compressed, version, (len(body), hash(body), compressed, version))


class InventoryLimits(NamedTuple):
    topics: int
    queues: int


def read_inventory(unread: Sent, limits: InventoryLimits, broker: str) -> Inventory:
    """Topics with absurd numbers of queues are left out: the others have done nothing wrong."""
    try:
        read = registration.decode(
            unread.body,
            compressed=unread.compressed,
            version=unread.version,
            max_bytes=_MAX_UNPACKED_BYTES,
            max_topics=limits.topics,
        )
    except RemoteProtocolError as problem:
        raise Refused(ResponseCode.SYSTEM_ERROR, f"RegisterBroker: {problem}") from None
    content = read.topic_config_serialize_wrapper
    # Thousands of topics, few different shapes: one object each.
    known: dict[tuple[int, int, int, int], QueueShape | None] = {}
    shapes: dict[str, QueueShape] = {}
    left_out: list[str] = []
    for topic in content.topic_config_table.values():
        numbers = (topic.read_queue_nums, topic.write_queue_nums, topic.perm, topic.topic_sys_flag)
        if numbers in known:
            shape = known[numbers]
        else:
            shape = QueueShape(*numbers)
            shape = known[numbers] = shape if shape.most_queues <= limits.queues else None
        if shape is not None and shape.fewest_queues >= 0:
            shapes[topic.topic_name] = shape
        else:
            left_out.append(
                f"{topic.topic_name[:100]}({topic.read_queue_nums} read, {topic.write_queue_nums} write)"
            )
    if len(known) > _MAX_SHAPES:
        raise Refused(
            ResponseCode.SYSTEM_ERROR,
            f"RegisterBroker: topics with {len(known)} different queue counts, permissions and flags; "
            f"{_MAX_SHAPES} are allowed",
        )
    if left_out:
        _log.warning(
            "left out topics with absurd queue counts broker=%s limit=%d count=%d topics=%s",
            *(broker[:100], limits.queues, len(left_out), ",".join(left_out[:5])),
        )
    return Inventory(
        content.data_version,
        shapes,
        content.topic_queue_mapping_info_map,
        read.filter_server_list if unread.version >= V3_0_11 else None,
    )


class Turn:
    """Held by one at a time; whoever has taken it enters it."""

    def __init__(self, forget: Callable[[], object]) -> None:
        self.takers = 0
        self._lock = asyncio.Lock()
        self._forget = forget

    async def __aenter__(self) -> None:
        await self._lock.acquire()

    async def __aexit__(self, *_: object) -> None:
        self._lock.release()
        self.takers -= 1
        if not self.takers:
            self._forget()


class InventoryReading:
    """The thread, and who waits for it."""

    def __init__(self) -> None:
        # One thread, so that the loop has every second turn at the interpreter.
        self._thread = ThreadPoolExecutor(1, "registration reader")
        self._turns: dict[str, Turn] = {}
        self._waiting: Counter[str] = Counter()
        self._waiting_bytes = 0

    def __repr__(self) -> str:
        return f"<InventoryReading brokers={len(self._turns)} waiting_bytes={self._waiting_bytes}>"

    def is_busy_with(self, broker: str) -> bool:
        return broker in self._turns

    def take_turn(self, broker: str) -> "Turn":
        """Requests about one broker name are handled one after the other, as they arrived."""
        turn = self._turns.get(broker)
        if turn is None:
            turn = self._turns[broker] = Turn(lambda: self._turns.pop(broker))
        turn.takers += 1
        return turn

    async def read(self, unread: Sent, limits: InventoryLimits, broker: str, host: str) -> Inventory:
        size_bytes = len(unread.body)
        if (
            self._waiting_bytes + size_bytes > _MAX_WAITING_BYTES
            or self._waiting[host] + size_bytes > _MAX_WAITING_BYTES_PER_HOST
        ):
            raise Refused(ResponseCode.SYSTEM_BUSY, "too many large registrations are waiting to be read")
        self._waiting_bytes += size_bytes
        self._waiting[host] += size_bytes
        try:
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(self._thread, read_inventory, unread, limits, broker)
        finally:
            self._waiting_bytes -= size_bytes
            self._waiting[host] -= size_bytes
            if not self._waiting[host]:
                del self._waiting[host]

    def close(self) -> None:
        self._thread.shutdown(wait=False, cancel_futures=True)
