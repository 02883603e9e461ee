"""A broker's pops over real parts: messages are sent, popped, acknowledged, and time passes."""

import asyncio
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support.broker_cluster import BROKER_NAME, BrokerClient
from tests.support.broker_parts import BrokerParts, FakeChannel, broker_parts, caller_on
from tests.support.small_stores import BORN_HOST

from pyromq.broker.flow.draft import Draft
from pyromq.broker.flow.lite.delivery import LiteDelivery
from pyromq.broker.flow.popping.changed_receipts import ChangedReceipts
from pyromq.broker.flow.popping.held_pops import HeldPops
from pyromq.broker.flow.popping.popped_offsets import PoppedOffsets
from pyromq.broker.flow.popping.popper import Popper
from pyromq.broker.flow.popping.revival import Revival
from pyromq.broker.flow.popping.revive_log import ReviveLog
from pyromq.broker.flow.reading import Reading
from pyromq.broker.services.acknowledging import Acknowledging
from pyromq.broker.services.popping import Popping
from pyromq.broker.services.reviving import Reviving
from pyromq.broker.services.timers import Timers
from pyromq.clock import ManualClock
from pyromq.protocol import properties as props
from pyromq.protocol.catalogue import Answer, RawAnswer
from pyromq.protocol.pop_receipt import (
    PopReceipt,
    decode_pop_receipt,
    decode_start_offsets,
    encode_pop_receipt,
    marked_topic,
)
from pyromq.protocol.properties import encode_properties
from pyromq.protocol.record import StoredMessage, decode_records
from pyromq.protocol.requests.popping import (
    AckMessage,
    BatchAck,
    BatchAckMessageRequestBody,
    ChangeInvisibleTime,
    ChangeInvisibleTimeAnswer,
    PopMessage,
)

TOPIC, GROUP = "Orders", "billing"


class Popped:
    """A popped message and its receipt, as a client puts them together."""

    def __init__(self, message: StoredMessage, receipt: PopReceipt) -> None:
        self.body = bytes(message.body)
        self.message = message
        self.receipt = receipt
        self.stored_in = marked_topic(message.topic, GROUP, receipt.retry_mark)

    def __repr__(self) -> str:
        return f"<Popped {self.body!r} times={self.message.reconsume_times} {self.receipt}>"


class PopBench:
    def __init__(self, parts: BrokerParts, dice: int = 50) -> None:
        """`dice`: 0 to 19 look for retries first."""
        self.parts = parts
        self.clock = parts.clock
        self.store = parts.store
        self.tables = parts.tables
        context = parts.context
        slices = context.slices
        appending = parts.appending
        reading = Reading(parts.live, parts.store, parts.tables, slices)
        log = ReviveLog(parts.store, appending, parts.tables.pop_counts, parts.live.now.broker_cluster_name)
        self.timers = Timers(parts.store, appending, parts.tables, parts.clock, slices)
        self.held, self.notices = HeldPops(slices), HeldPops(slices)
        appending.on_advance(self.held.advanced)
        appending.on_advance(self.notices.advanced)
        self.changed = ChangedReceipts()
        self.popping = Popping(
            context,
            reading,
            Popper(parts.live, parts.store, parts.tables, reading, log),
            (self.held, self.notices),
            parts.durability,
            parts.quotas,
            random_below=lambda _: dice,
        )
        self.acknowledging = Acknowledging(
            parts.store,
            parts.tables,
            log,
            self.changed,
            (self.held, self.notices),
            parts.durability,
            LiteDelivery(context, parts.durability, HeldPops(slices)),
        )
        self.reviving = Reviving(
            context,
            appending,
            log,
            Revival(parts.live, parts.store, parts.tables, parts.inbound.writable_queues, appending),
            PoppedOffsets(parts.store, parts.tables.offsets, log.topic),
            self.changed,
            self.timers,
        )
        self.revive_topic = log.topic
        if parts.topics.get(TOPIC) is None:
            parts.add_topic(TOPIC, 2)
        parts.groups.find(GROUP)

    # What clients do

    def send(self, body: bytes, queue_id: int = 0, **properties: str) -> None:
        raw = encode_properties({"UNIQ_KEY": body.decode()} | properties).encode()
        draft = Draft(TOPIC, queue_id, body, raw, 1_600_000_000_000, BORN_HOST)
        assert self.parts.appending.append(draft).is_ok
        self.dispatch()

    def dispatch(self) -> None:
        """Dispatch, and tell those who wait."""
        while self.store.has_dispatch_work:
            self.parts.appending._dispatch()

    def request(self, **changes: Any) -> PopMessage:
        fields: dict[str, Any] = {
            "consumer_group": GROUP,
            "topic": TOPIC,
            "queue_id": -1,
            "max_msg_nums": 32,
            "invisible_time": 10_000,
            "poll_time": 0,
            "born_time": self.clock.now_ms(),
            "init_mode": 0,
        }
        return PopMessage(**fields | changes)

    def ask(
        self, channel: FakeChannel | None = None, **changes: Any
    ) -> "RawAnswer | asyncio.Future[RawAnswer]":
        return self.popping.pop(self.request(**changes), caller_on(channel))

    def pop(self, **changes: Any) -> list[Popped]:
        answer = self.ask(**changes)
        assert isinstance(answer, RawAnswer), "the pop waits"
        return popped_in(answer)

    def ask_to_ack(self, popped: Popped) -> "Answer | asyncio.Future[Answer]":
        return self.acknowledging.acknowledge(
            AckMessage(
                consumer_group=GROUP,
                topic=popped.stored_in,
                queue_id=popped.receipt.queue_id,
                extra_info=encode_pop_receipt(popped.receipt),
                offset=popped.message.queue_offset,
            ),
            caller_on(),
        )

    def ack(self, popped: Popped) -> Answer:
        answer = self.ask_to_ack(popped)
        if isinstance(answer, asyncio.Future):
            self.acknowledging.write_gathered()
            answer = answer.result()
        return answer

    def change(self, popped: Popped, invisible_ms: int) -> Popped:
        """The same message with its new receipt."""
        answer = self.acknowledging.change(
            ChangeInvisibleTime(
                consumer_group=GROUP,
                topic=popped.stored_in,
                queue_id=popped.receipt.queue_id,
                extra_info=encode_pop_receipt(popped.receipt),
                offset=popped.message.queue_offset,
                invisible_time=invisible_ms,
            ),
            caller_on(),
        )
        assert isinstance(answer, ChangeInvisibleTimeAnswer)
        offset, old = popped.message.queue_offset, popped.receipt
        receipt = PopReceipt(
            offset,
            answer.pop_time,
            answer.invisible_time,
            answer.revive_qid,
            old.retry_mark,
            old.broker_name,
            old.queue_id,
            offset,
        )
        return Popped(popped.message, receipt)

    # What the broker does

    def work(self) -> None:
        """Until there is nothing to do at this moment."""
        is_idle = False
        while not is_idle:
            self.dispatch()
            is_idle = self.timers.step() > 0
            wait_s = self.reviving.step()
            waits_for_timers = self.reviving._line is not None
            is_idle &= wait_s > 0 and not waits_for_timers and not self.store.has_dispatch_work

    def pass_time(self, ms: int, step_ms: int = 500) -> None:
        self.work()
        while ms > 0:
            self.clock.advance(min(step_ms, ms) / 1000)
            ms -= step_ms
            self.work()

    def messages(self, topic: str, queue_id: int = 0) -> list[StoredMessage]:
        return self.parts.messages(topic, queue_id)


def popped_in(answer: RawAnswer) -> list[Popped]:
    starts = decode_start_offsets(answer.ext.get("startOffsetInfo", ""))
    popped = []
    for message in decode_records(answer.body):
        own = message.get(props.POP_CK)
        if own is not None:
            receipt = decode_pop_receipt(own)
        else:
            receipt = PopReceipt(
                starts["0", message.queue_id],
                int(answer.ext["popTime"]),
                int(answer.ext["invisibleTime"]),
                int(answer.ext["reviveQid"]),
                "0",
                "broker-a",
                message.queue_id,
                message.queue_offset,
            )
        popped.append(Popped(message, receipt))
    return popped


def batch_ack(receipt: PopReceipt, *offsets: int, group: str) -> BatchAckMessageRequestBody:
    """The body that acknowledges messages of one pop by their queue offsets."""
    ack = BatchAck(
        bit_set=bytes([sum(1 << offset - receipt.checkpoint_offset for offset in offsets)]),
        consumer_group=group,
        invisible_time=receipt.invisible_time_ms,
        pop_time=receipt.pop_time_ms,
        queue_id=receipt.queue_id,
        retry="0",
        revive_queue_id=receipt.revive_queue_id,
        start_offset=receipt.checkpoint_offset,
        topic=TOPIC,
    )
    return BatchAckMessageRequestBody(acks=[ack], broker_name=BROKER_NAME)


def bodies(popped: Sequence[Popped]) -> list[bytes]:
    return [each.body for each in popped]


@contextmanager
def pop_bench(
    root: Path,
    clock: ManualClock | None = None,
    *,
    broker: dict[str, Any] | None = None,
    dice: int = 50,
    **store: Any,
) -> Iterator[PopBench]:
    """The same root again is a restart."""
    settings = {"timer_log_file_bytes": 4096} | store
    with broker_parts(root, clock=clock, broker=broker, store=settings) as parts:
        yield PopBench(parts, dice)


async def pop_over(client: BrokerClient, messages: int, invisible_ms: int, poll_ms: int) -> list[Popped]:
    """Pop from a running broker, by its own clock."""
    request = PopMessage(
        consumer_group=GROUP,
        topic=TOPIC,
        queue_id=-1,
        max_msg_nums=messages,
        invisible_time=invisible_ms,
        poll_time=poll_ms,
        born_time=time.time_ns() // 1_000_000,
        init_mode=0,
    )
    answer = await client.call(request)
    fields = {
        "popTime": answer.pop_time,
        "invisibleTime": answer.invisible_time,
        "reviveQid": answer.revive_qid,
        "startOffsetInfo": answer.start_offset_info or "",
    }
    return popped_in(RawAnswer(answer.body, {name: str(value) for name, value in fields.items()}))
