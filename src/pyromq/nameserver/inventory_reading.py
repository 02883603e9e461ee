"""Decodes registrations without delaying other requests.

A small body is decoded at once. A large or compressed one is decoded in a thread, one at a time; meanwhile
other requests about the same broker name wait.
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
from pyromq.protocol import registration
from pyromq.protocol.codes import V3_0_11, ResponseCode

_log = logging.getLogger(__name__)

_MAX_DECOMPRESSED_BYTES: Final = 32 * 1024 * 1024
"""The limit of a decompressed registration: five times the size of a hundred thousand topics."""

_MAX_SHORT_BYTES: Final = 16 * 1024
_MAX_SHAPES: Final = 1_000
_MAX_WAITING_BYTES: Final = 256 * 1024 * 1024
_MAX_WAITING_BYTES_PER_HOST: Final = 64 * 1024 * 1024


class UnreadRegistration(NamedTuple):
    """The body of a registration that is not decoded yet."""

    body: bytes
    compressed: bool
    version: int
    digest: tuple[object, ...]
    """Equal digests mean equal inventories."""

    @property
    def is_short(self) -> bool:
        is_compressed = registration.is_compressed(self.body, compressed=self.compressed)
        return len(self.body) <= _MAX_SHORT_BYTES and not is_compressed


def unread_registration(body: bytes, *, compressed: bool, version: int) -> UnreadRegistration:
    # Python's own hash is the fastest good one at hand. It does not protect against forged bodies, but
    # a broker could forge only its own registration.
    return UnreadRegistration(body, compressed, version, (len(body), hash(body), compressed, version))


class InventoryLimits(NamedTuple):
    topics: int
    queues: int


def read_inventory(unread: UnreadRegistration, limits: InventoryLimits, broker: str) -> Inventory:
    """Decode a registration; topics with an invalid number of queues are omitted, the others are kept."""
    try:
        read = registration.decode(
            unread.body,
            compressed=unread.compressed,
            version=unread.version,
            max_bytes=_MAX_DECOMPRESSED_BYTES,
            max_topics=limits.topics,
        )
    except RemoteProtocolError as problem:
        raise Refused(ResponseCode.SYSTEM_ERROR, f"RegisterBroker: {problem}") from None
    content = read.topic_config_serialize_wrapper
    # Thousands of topics have few different shapes: share one object for each.
    known: dict[tuple[int, int, int, int], QueueShape | None] = {}
    shapes: dict[str, QueueShape] = {}
    left_out: list[str] = []
    for topic in content.topic_config_table.values():
        numbers = (topic.read_queue_nums, topic.write_queue_nums, topic.perm, topic.topic_sys_flag)
        if numbers in known:
            shape = known[numbers]
        else:
            shape = QueueShape(*numbers)
            shape = known[numbers] = shape if shape.max_queues <= limits.queues else None
        if shape is not None and shape.min_queues >= 0:
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
            "left out topics with invalid queue counts broker=%s limit=%d count=%d topics=%s",
            *(broker[:100], limits.queues, len(left_out), ",".join(left_out[:5])),
        )
    return Inventory(
        content.data_version,
        shapes,
        content.topic_queue_mapping_info_map,
        read.filter_server_list if unread.version >= V3_0_11 else None,
    )


class Turn:
    """A lock for the requests about one broker; removed when its last taker has left."""

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
    """The decoding thread and its queue."""

    def __init__(self) -> None:
        # Only one thread, so that the event loop gets its share of the interpreter.
        self._thread = ThreadPoolExecutor(1, "registration reader")
        self._turns: dict[str, Turn] = {}
        self._waiting: Counter[str] = Counter()
        self._waiting_bytes = 0

    def __repr__(self) -> str:
        return f"<InventoryReading brokers={len(self._turns)} waiting_bytes={self._waiting_bytes}>"

    def is_busy_with(self, broker: str) -> bool:
        return broker in self._turns

    def take_turn(self, broker: str) -> "Turn":
        """Requests about one broker name are handled one after the other, in the order of arrival."""
        turn = self._turns.get(broker)
        if turn is None:
            turn = self._turns[broker] = Turn(lambda: self._turns.pop(broker))
        turn.takers += 1
        return turn

    async def read(
        self, unread: UnreadRegistration, limits: InventoryLimits, broker: str, host: str
    ) -> Inventory:
        size_bytes = len(unread.body)
        if (
            self._waiting_bytes + size_bytes > _MAX_WAITING_BYTES
            or self._waiting[host] + size_bytes > _MAX_WAITING_BYTES_PER_HOST
        ):
            raise Refused(ResponseCode.SYSTEM_BUSY, "too many large registrations are waiting")
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
