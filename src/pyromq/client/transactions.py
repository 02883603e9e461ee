"""Transactional messages: consumers see them only if a local transaction succeeds.

The producer sends a half message, which no consumer sees, runs the local transaction, and tells the broker to
commit or roll back. A broker without an answer asks a producer of the group. A producer that closes waits for
its open transactions first; checks that are under way then are left to other producers.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator
from concurrent.futures import Executor
from contextlib import contextmanager, suppress
from contextvars import ContextVar, Token, copy_context
from dataclasses import dataclass
from datetime import timedelta
from enum import Enum
from inspect import isawaitable, iscoroutinefunction
from typing import Self, TypeAlias, Unpack

import msgspec

from pyromq.client.application_log import application_log
from pyromq.client.application_threads import ApplicationThreads
from pyromq.client.producer import Producer, ProducerParts, in_middleware
from pyromq.client.producer_settings import ProducerOptions
from pyromq.client.sending import SendOutcome
from pyromq.client.timing import given_times
from pyromq.client.trace_records import EndedRecord
from pyromq.client.values import Message, ReceivedMessage, SendResult
from pyromq.cluster.sending.request import PreparedMessage
from pyromq.errors import BadMessage, PyroError, SendFailed, StateError, TransportError
from pyromq.protocol import names
from pyromq.protocol import properties as props
from pyromq.protocol.message_id import decode_offset_message_id
from pyromq.protocol.names import MASTER_ID
from pyromq.protocol.record import SysFlag
from pyromq.protocol.requests.pushes import CheckTransactionState
from pyromq.protocol.requests.transactions import EndTransaction

_log = logging.getLogger(__name__)

_MAX_CHECKS_WAITING = 2000
_CHECKS_AT_ONCE = 4

_running: "ContextVar[TransactionProducer | None]" = ContextVar("running", default=None)
"""The producer whose local transaction this code is part of."""


class TransactionState(Enum):
    """How a local transaction ended. If it is unknown, the broker asks again later."""

    COMMIT = SysFlag.TRANSACTION_COMMIT
    ROLLBACK = SysFlag.TRANSACTION_ROLLBACK
    UNKNOWN = 0

    @property
    def java_name(self) -> str:
        # java: sic
        return {"COMMIT": "COMMIT_MESSAGE", "ROLLBACK": "ROLLBACK_MESSAGE", "UNKNOWN": "UNKNOW"}[self.name]


LocalTransaction: TypeAlias = Callable[[Message], TransactionState | Awaitable[TransactionState]]
"""The local transaction of a message; a plain function runs on a thread."""

Check: TypeAlias = Callable[[ReceivedMessage], TransactionState | Awaitable[TransactionState]]
"""Finds out how the transaction of a message ended; a plain function runs on a thread."""


class TransactionResult(msgspec.Struct, frozen=True):
    send_result: SendResult
    state: TransactionState

    def __repr__(self) -> str:
        return f"TransactionResult({self.state.name}, {self.send_result!r})"


@dataclass(slots=True)
class HalfMessage:
    """A half message: stored, not visible to consumers yet."""

    message: Message
    prepared: PreparedMessage
    outcome: SendOutcome
    result: SendResult
    log_offset: int
    is_left_open: bool = False
    """Whether the producer may close before the transaction ends: the broker asks another one then."""


class Transaction:
    """A message that is delivered if the block succeeds; made by `TransactionProducer.transaction`."""

    def __init__(
        self, producer: "TransactionProducer", message: Message, check_after: timedelta | None
    ) -> None:
        self._producer = producer
        self.message = message
        self._check_after = check_after
        self._half: HalfMessage | None = None
        self._state: TransactionState | None = None
        self._token: Token[TransactionProducer | None] | None = None

    def __repr__(self) -> str:
        half, state = self._half, self._state
        how = "not begun" if half is None else "open" if state is None else state.name
        return f"<Transaction {how} {self.message!r}>"

    @property
    def message_id(self) -> str:
        """The id by which `check` is asked: write it into the database, in the same transaction."""
        return self._begun().result.message_id

    def rollback(self) -> None:
        """Have the message thrown away when the block ends."""
        self._begun()
        self._state = TransactionState.ROLLBACK

    async def begin(self) -> None:
        """Done by `async with`. Raises SendFailed if the half message is not stored safely."""
        if self._half is not None:
            raise StateError("a transaction can begin only once: create another one")
        half = await self._producer._prepare(self.message, self._check_after)
        if not half.result.is_ok:
            # java: the transaction does not run if the half message may be lost
            await self._producer._end(half, TransactionState.ROLLBACK)
            raise SendFailed(f"the half message {half.result.message_id}", [half.result.status.name])
        self._half = half

    async def end(self, problem: BaseException | None = None) -> None:
        """Done by `async with`; if the block has failed, the broker gets UNKNOWN."""
        half, remark = self._begun(), None
        if self._state is None:
            self._state = TransactionState.COMMIT
            if problem is not None:
                self._state, remark = TransactionState.UNKNOWN, f"{type(problem).__name__}: {problem}"
        await self._producer._end(half, self._state, remark=remark)

    def leave_open(self) -> None:
        """The producer may close without waiting for the end: the broker asks `check` then."""
        half = self._begun()
        if not half.is_left_open:
            half.is_left_open = True
            self._producer._ended()

    def _begun(self) -> HalfMessage:
        if self._half is None:
            raise StateError("the transaction has not begun: use it in a `with` block")
        return self._half

    def enter_block(self) -> None:
        """The producer cannot be closed in the block: it would wait for the transaction for ever."""
        self._token = _running.set(self._producer)

    def leave_block(self) -> None:
        assert self._token is not None
        with suppress(ValueError):  # a framework may end the block in another context
            _running.reset(self._token)

    async def __aenter__(self) -> Self:
        await self.begin()
        self.enter_block()
        return self

    async def __aexit__(self, kind: object, problem: BaseException | None, trace: object) -> None:
        self.leave_block()
        await self.end(problem)


class TransactionProducer(Producer):
    """`await producer.send_in_transaction(message, work)`; `check` answers brokers that ask how it ended."""

    def __init__(
        self,
        group: str,
        namesrv: str | Iterable[str] | None = None,
        *,
        check: Check,
        topics: Iterable[str] = (),
        **options: Unpack[ProducerOptions],
    ) -> None:
        """`topics`: their brokers may ask from the start; other brokers after a message was sent to them."""
        super().__init__(group, namesrv, **options)
        self._check = check
        self._topics = tuple(topics)
        self._checks: set[asyncio.Task[None]] = set()
        self._checks_at_once = asyncio.Semaphore(_CHECKS_AT_ONCE)
        # Its own threads: local transactions that wait must not keep brokers waiting.
        self._check_threads = ApplicationThreads(_CHECKS_AT_ONCE, "pyromq-check")
        self._open = 0
        self._none_open = asyncio.Event()

    async def start(self) -> None:
        await super().start()
        try:
            session = self._started().session
            session.keep_connected(self)
            await asyncio.gather(
                *map(self._find_brokers, {*map(session.wrap, self._topics), self.settings.create_topic_key})
            )
            # Brokers with unfinished transactions of this group learn which client to ask.
            await session.heartbeat_now()
        except BaseException:
            await self.close()
            raise

    async def _find_brokers(self, topic: str) -> None:
        try:
            await self._started().session.routes.get(topic)
        except PyroError as problem:
            _log.info("brokers of a topic not found, they cannot ask yet topic=%s: %s", topic, problem)

    async def close(self) -> None:
        if _running.get() is self:
            raise StateError(f"the producer {self.group} cannot be closed by one of its local transactions")
        await super().close()
        self._check_threads.shutdown(wait=False, cancel_futures=True)

    async def send_in_transaction(
        self, message: Message, work: LocalTransaction, *, check_after: timedelta | None = None
    ) -> TransactionResult:
        """Send a half message, run `work`, and commit or roll back as it returns.

        If `work` raises, the broker gets UNKNOWN, and the error is raised again. If `work` takes longer
        than `check_after` (whole seconds; by default the broker's settings decide), the broker asks.
        """
        half = await self._prepare(message, check_after)
        if not half.result.is_ok:
            # java: the transaction does not run if the half message may be lost
            return await self._end(half, TransactionState.ROLLBACK)
        try:
            with self._in_transaction():
                state = checked(await _run(work, message, None))
        except BaseException as problem:
            await self._end(half, TransactionState.UNKNOWN, remark=f"{type(problem).__name__}: {problem}")
            raise
        return await self._end(half, state)

    @contextmanager
    def _in_transaction(self) -> Iterator[None]:
        """A local transaction runs in this block."""
        token = _running.set(self)
        try:
            yield
        finally:
            _running.reset(token)

    def transaction(self, message: Message, *, check_after: timedelta | None = None) -> "Transaction":
        """`async with producer.transaction(message): …`: the message is delivered if the block succeeds.

        The half message is sent when the block begins. If the block raises, the broker gets UNKNOWN and
        asks `check`: only the application knows whether the database has committed. `check_after`: see
        `send_in_transaction`.
        """
        return Transaction(self, message, check_after)

    def _ended(self) -> None:
        self._open = max(0, self._open - 1)
        if not self._open:
            self._none_open.set()

    @in_middleware
    async def _prepare(self, message: Message, check_after: timedelta | None = None) -> HalfMessage:
        """Send the half message of a transaction; `close` waits until `_end` or `_leave_open` is called."""
        parts = self._started()
        if message.is_delayed:
            raise BadMessage(
                "a message of a transaction cannot be delayed, its delivery begins with the commit:"
                f" remove {given_times(message)}"
            )
        group = parts.sender.group
        system = {props.TRANSACTION_PREPARED: "true", props.PRODUCER_GROUP: group}
        if check_after is not None:
            system[props.CHECK_IMMUNITY_TIME_IN_SECONDS] = _whole_seconds(check_after)
        prepared = parts.prepare(message, system)
        prepared.sys_flag |= SysFlag.TRANSACTION_PREPARED
        self._open += 1
        try:
            outcome = await parts.sender.send(prepared, parts.sender.plan())
            # Decoded now: without it the end could not be reported to the broker.
            log_offset = decode_offset_message_id(outcome.answer.msg_id).log_offset
        except BaseException:
            self._ended()
            raise
        return HalfMessage(message, prepared, outcome, parts.result(prepared, outcome), log_offset)

    async def _end(
        self, half: HalfMessage, state: TransactionState, *, remark: str | None = None
    ) -> TransactionResult:
        """Tell the broker how the transaction ended. If it cannot be reached, it will ask."""
        # A transaction that has begun is ended even while the producer closes.
        parts, outcome = self._parts or self._started(), half.outcome
        broker_name = outcome.queue.broker_name
        address = parts.session.broker_address(broker_name, MASTER_ID, only_this=True) or outcome.address
        request = EndTransaction(
            topic=half.prepared.topic,
            producer_group=parts.sender.group,
            tran_state_table_offset=outcome.answer.queue_offset,
            commit_log_offset=half.log_offset,
            commit_or_rollback=state.value,
            msg_id=half.prepared.unique_key,
            transaction_id=outcome.answer.transaction_id,
            target_broker_name=broker_name,
            remark=remark,
        )
        try:
            await self._tell(parts, address, request)
        finally:
            if not half.is_left_open:
                self._ended()
        ended = EndedRecord(
            at_ms=parts.session.clock.now_ms(),
            region=half.result.region or names.DEFAULT_REGION,
            group=self.group,
            topic=half.message.topic,
            message_id=half.prepared.unique_key,
            tags=half.prepared.tags,
            keys=half.prepared.keys or None,
            store_host=address,
            transaction_id=half.result.transaction_id,
            state=state.java_name,
            is_check=False,
        )
        self._report(parts, ended)
        return TransactionResult(half.result, state)

    async def _tell(self, parts: ProducerParts, address: str, request: EndTransaction) -> None:
        try:
            await parts.session.send_oneway(address, request)
        except TransportError as problem:
            _log.warning(
                "the end of a transaction was not reported to the broker message=%s: %s",
                request.msg_id,
                problem,
            )

    # Questions of brokers

    def check_transaction(
        self, request: CheckTransactionState, message: ReceivedMessage, address: str
    ) -> bool:
        if self._is_closed:  # the answer could not be sent any more
            return False
        if len(self._checks) >= _MAX_CHECKS_WAITING:
            _log.warning("too many transaction checks wait: not checked now message=%s", message.message_id)
            return True
        task = asyncio.get_running_loop().create_task(self._answer_check(request, message, address))
        self._checks.add(task)
        task.add_done_callback(self._checks.discard)
        return True

    async def _answer_check(
        self, request: CheckTransactionState, message: ReceivedMessage, address: str
    ) -> None:
        remark: str | None = None
        async with self._checks_at_once:
            try:
                state = checked(await _run(self._check, message, self._check_threads))
            except Exception as problem:
                application_log.exception("the check of a transaction failed message=%s", message.message_id)
                state, remark = TransactionState.UNKNOWN, f"{type(problem).__name__}: {problem}"
        parts = self._parts
        if parts is None:
            return
        answer = EndTransaction(
            topic=request.topic,
            producer_group=parts.sender.group,
            tran_state_table_offset=request.tran_state_table_offset,
            commit_log_offset=request.commit_log_offset,
            commit_or_rollback=state.value,
            from_transaction_check=True,
            msg_id=message.message_id,
            transaction_id=request.transaction_id,
            target_broker_name=request.target_broker_name,
            remark=remark,
        )
        try:
            await self._tell(parts, address, answer)
        except PyroError as problem:
            _log.warning("a transaction check was not answered message=%s: %s", message.message_id, problem)
        ended = EndedRecord(
            at_ms=parts.session.clock.now_ms(),
            region=message.get(props.MSG_REGION) or names.DEFAULT_REGION,
            group=self.group,
            topic=message.topic,
            message_id=message.message_id,
            tags=message.tags,
            keys=" ".join(message.keys) or None,
            store_host=address,
            transaction_id=request.transaction_id,
            state=state.java_name,
            is_check=True,
        )
        self._report(parts, ended)

    async def _finish(self, parts: ProducerParts) -> None:
        while self._open:
            self._none_open.clear()
            await self._none_open.wait()
        for task in list(self._checks):
            task.cancel()
        await asyncio.gather(*self._checks, return_exceptions=True)
        await super()._finish(parts)

    def _report(self, parts: ProducerParts, ended: EndedRecord) -> None:
        if parts.tracing is not None:
            parts.tracing.report(ended.text(), (ended.message_id, *(ended.keys or "").split()))


async def _run(work: Callable[..., object], argument: object, threads: Executor | None) -> object:
    if iscoroutinefunction(work):
        return await work(argument)
    loop, context = asyncio.get_running_loop(), copy_context()
    result = await loop.run_in_executor(threads, context.run, work, argument)
    return await result if isawaitable(result) else result


def _whole_seconds(check_after: object) -> str:
    if not isinstance(check_after, timedelta):
        raise BadMessage(f"check_after must be a timedelta, not {type(check_after).__name__} {check_after!r}")
    seconds = -(-check_after // timedelta(seconds=1))
    if seconds < 1:
        raise BadMessage(f"check_after must be a second or more, not {check_after}")
    return str(seconds)


def checked(state: object) -> TransactionState:
    if not isinstance(state, TransactionState):
        raise StateError(f"a local transaction and a check must return a TransactionState, not {state!r}")
    return state
