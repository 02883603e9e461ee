"""The transactions of a broker without sockets: a real store, real tables, and producers that only listen."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.support.broker_parts import BrokerParts, FakeChannel, at_once, broker_parts, caller_on

from pyromq.broker.flow.open_transactions import OpenTransactions
from pyromq.broker.services.sending import Sending
from pyromq.broker.services.transaction_checks import TransactionChecks
from pyromq.broker.services.transactions import Transactions
from pyromq.broker.tables.clients import Client
from pyromq.clock import ManualClock
from pyromq.errors import Refused
from pyromq.filesystem import Files
from pyromq.protocol import names
from pyromq.protocol.catalogue import Answer
from pyromq.protocol.codes import ResponseCode
from pyromq.protocol.frame import ONEWAY_FLAG
from pyromq.protocol.message_id import decode_offset_message_id
from pyromq.protocol.properties import encode_properties
from pyromq.protocol.record import StoredMessage, SysFlag
from pyromq.protocol.requests.pushes import CheckTransactionState
from pyromq.protocol.requests.sending import SendMessage
from pyromq.protocol.requests.transactions import EndTransaction, ResumeTransactionCheck
from pyromq.remoting.slices import Slices

TOPIC = "Orders"
PRODUCERS = "tills"
COMMIT, ROLLBACK, UNKNOWN = SysFlag.TRANSACTION_COMMIT, SysFlag.TRANSACTION_ROLLBACK, 0
HALF, OPS = names.HALF_TOPIC, names.OP_HALF_TOPIC


class Half:
    """What a producer knows of its half message."""

    def __init__(self, unique_key: str, log_offset: int, queue_offset: int) -> None:
        self.unique_key = unique_key
        self.log_offset = log_offset
        self.queue_offset = queue_offset


class TransactionBench:
    def __init__(self, parts: BrokerParts) -> None:
        self.parts = parts
        self.clock = parts.clock
        parts.add_topic(TOPIC)
        slices = Slices(parts.clock)
        self.open = OpenTransactions(
            parts.live, parts.store, parts.tables, parts.appending, slices, parts.clock
        )
        self.sending = Sending(parts.live, parts.inbound, parts.tables, parts.clock)
        self.service = Transactions(
            parts.live, parts.store, parts.tables, parts.appending, self.open, parts.clock
        )
        self.checks = TransactionChecks(
            parts.live, parts.store, parts.tables, parts.appending, self.open, slices, parts.clock
        )
        self.producer = self.connect("p1")

    def connect(self, client_id: str, group: str = PRODUCERS) -> FakeChannel:
        channel = FakeChannel()
        self.parts.producers.register(group, Client(channel, client_id, 0, 0, 0))
        return channel

    # As a producer

    def prepare(self, unique_key: str, **properties: str) -> Half:
        pairs = {"TRAN_MSG": "true", "PGROUP": PRODUCERS, "UNIQ_KEY": unique_key, "TAGS": "t", "KEYS": "k"}
        request = SendMessage(
            producer_group=PRODUCERS,
            topic=TOPIC,
            default_topic=names.AUTO_CREATE_TOPIC,
            default_topic_queue_nums=4,
            queue_id=2,
            sys_flag=SysFlag.TRANSACTION_PREPARED,
            born_timestamp=self.clock.now_ms(),
            flag=7,
            properties=encode_properties(pairs | properties),
            body=unique_key.encode(),
        )
        ext = at_once(self.sending.send(request, caller_on())).ext
        return Half(unique_key, decode_offset_message_id(ext["msgId"]).log_offset, int(ext["queueOffset"]))

    def end(self, half: Half, state: int, *, oneway: bool = False, **changes: Any) -> None:
        """Raises Refused."""
        assert isinstance(self._end(half, state, oneway=oneway, **changes), Answer)

    async def end_later(self, half: Half, state: int) -> None:
        """The broker cannot end it yet; raises Refused."""
        answer = self._end(half, state)
        assert isinstance(answer, asyncio.Future)
        await answer

    def _end(
        self, half: Half, state: int, *, oneway: bool = False, **changes: Any
    ) -> "Answer | asyncio.Future[Answer]":
        fields: dict[str, Any] = {
            "producer_group": PRODUCERS,
            "tran_state_table_offset": half.queue_offset,
            "commit_log_offset": half.log_offset,
            "commit_or_rollback": state,
            "msg_id": half.unique_key,
        }
        caller = caller_on()
        caller.frame.flag |= ONEWAY_FLAG if oneway else 0
        return self.service.end(EndTransaction(**fields | changes), caller)

    def refused(self, half: Half, state: int, **changes: Any) -> Refused:
        try:
            self.end(half, state, **changes)
        except Refused as refused:
            return refused
        raise AssertionError("expected a refusal")

    def asked(self, channel: FakeChannel | None = None) -> list[CheckTransactionState]:
        """What a producer was asked since the last time."""
        channel = channel or self.producer
        questions = [each for each in channel.oneways if isinstance(each, CheckTransactionState)]
        channel.oneways.clear()
        return questions

    def answer(self, question: CheckTransactionState, state: int) -> None:
        assert question.msg_id is not None
        half = Half(question.msg_id, question.commit_log_offset, question.tran_state_table_offset)
        try:
            self.end(half, state, oneway=True, from_transaction_check=True)
        except Refused as refused:
            if refused.code != ResponseCode.ILLEGAL_OPERATION:
                raise

    async def resume(self, message_id: str) -> None:
        await self.service.resume(ResumeTransactionCheck(msg_id=message_id), caller_on())

    # As the broker

    async def check(self, after_s: float = 0) -> None:
        self.clock.advance(after_s)
        self.dispatch()
        await self.checks.check_round()
        self.dispatch()

    def dispatch(self) -> None:
        while self.parts.store.dispatch():
            pass

    # What there is

    def messages(self, topic: str = TOPIC, queue_id: int = 2) -> list[StoredMessage]:
        return self.parts.messages(topic, queue_id)

    def delivered(self) -> list[str]:
        return [message.body.decode() for message in self.messages()]

    def given_up(self) -> list[StoredMessage]:
        return self.messages(names.CHECK_MAX_TIME_TOPIC, 0)


@asynccontextmanager
async def transaction_bench(
    root: Path,
    clock: ManualClock | None = None,
    *,
    crash: bool = False,
    store: dict[str, Any] | None = None,
    files: Files | None = None,
    **broker: Any,
) -> AsyncIterator[TransactionBench]:
    """The same root again is a restart. `crash`: at the end nothing is saved or flushed."""
    store = {"file_reserved_hours": 72} | (store or {})
    with broker_parts(root, clock=clock, broker=broker, store=store, files=files) as parts:
        bench = TransactionBench(parts)
        await bench.open.rebuild()
        yield bench
        if crash:
            parts.store.abandon()
        else:
            bench.checks.save_now()
            parts.offsets.persist()
