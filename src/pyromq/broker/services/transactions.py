"""The end of a transaction: its message is committed to its own queue, or rolled back, once.

A request may arrive twice: producers repeat it, and answer checks while the first request is on its way. All
copies of a half message stand for one transaction, and only the first end counts.
"""

import asyncio
import logging
from typing import Final

from pyromq.broker.flow.appending import Appending
from pyromq.broker.flow.half_messages import copy_of, key_of, own_immunity_ms, real_topic
from pyromq.broker.flow.message_properties import delay_level
from pyromq.broker.flow.open_transactions import OpenTransactions
from pyromq.broker.flow.parking import unpark
from pyromq.broker.flow.safe_answers import when_safe
from pyromq.broker.flow.send_answers import SEND_CODES
from pyromq.broker.settings import BrokerSettings
from pyromq.broker.tables.all_tables import Tables
from pyromq.clock import Clock
from pyromq.config.live import LiveSettings
from pyromq.errors import Refused, RemoteProtocolError
from pyromq.protocol import names
from pyromq.protocol import properties as props
from pyromq.protocol.catalogue import Answer
from pyromq.protocol.codes import ResponseCode
from pyromq.protocol.frame import ONEWAY_FLAG
from pyromq.protocol.message_id import decode_offset_message_id
from pyromq.protocol.needs import PUB, UPDATE
from pyromq.protocol.record import StoredMessage, SysFlag, decode_record
from pyromq.protocol.requests.transactions import EndTransaction, ResumeTransactionCheck
from pyromq.remoting.routing import Caller, handles
from pyromq.store.message_store import MessageStore
from pyromq.store.results import AppendResult, AppendStatus

_log = logging.getLogger(__name__)

_MAX_COPIES: Final = 64

Reply = Answer | asyncio.Future[Answer]


class Transactions:
    def __init__(
        self,
        live: LiveSettings[BrokerSettings],
        store: MessageStore,
        tables: Tables,
        appending: Appending,
        transactions: OpenTransactions,
        clock: Clock,
    ) -> None:
        self._live = live
        self._store = store
        self._role = tables.role
        self._statistics = tables.statistics
        self._appending = appending
        self._open = transactions
        self._clock = clock
        self._loop = asyncio.get_running_loop()

    @handles(EndTransaction, may_wait=True)
    def end(self, request: EndTransaction, caller: Caller) -> Reply:
        self._check_is_master()
        if request.commit_or_rollback not in (SysFlag.TRANSACTION_COMMIT, SysFlag.TRANSACTION_ROLLBACK):
            _log.debug(
                "the end of a transaction is unknown message=%s producer=%s: %.500s",
                request.msg_id,
                caller.address,
                request.remark or "",
            )
            return Answer()  # the next check asks again
        if not self._open.is_ready:
            return self._loop.create_task(self._end_when_ready(request, caller))
        return self._end(request, caller)

    async def _end_when_ready(self, request: EndTransaction, caller: Caller) -> Answer:
        await self._open.settled()
        reply = self._end(request, caller)
        return await reply if isinstance(reply, asyncio.Future) else reply

    async def _end_when_found(self, half: StoredMessage, request: EndTransaction, caller: Caller) -> Answer:
        """Without an index the log must be read to know how a transaction ended."""
        await self._open.find_end(half)
        reply = self._end(request, caller)
        return await reply if isinstance(reply, asyncio.Future) else reply

    def _check_is_master(self) -> None:
        if not self._role.now.is_master:
            raise Refused(
                ResponseCode.SLAVE_NOT_AVAILABLE,
                f"this broker is replica {self._role.now.broker_id}: only the master ends transactions",
            )

    def _end(self, request: EndTransaction, caller: Caller) -> Reply:
        """java: the checks run in Apache's order."""
        self._check_is_master()
        half = self._open.read_at(request.commit_log_offset)
        if half is None:
            raise Refused(
                ResponseCode.SYSTEM_ERROR,
                f"there is no half message at log offset {request.commit_log_offset}",
            )
        if not request.from_transaction_check and self._is_too_late(half):
            raise Refused(
                ResponseCode.ILLEGAL_OPERATION,
                f"the message {request.msg_id} asks for a check after"
                f" {half.get(props.CHECK_IMMUNITY_TIME_IN_SECONDS)} s, which are over: wait for the check",
            )
        caller.require(PUB, topic=real_topic(half))
        _check_match(half, request)
        is_commit = request.commit_or_rollback == SysFlag.TRANSACTION_COMMIT
        offset = self._open.current(half)
        is_unknown = offset is None and self._open.was_committed(key_of(half)) is None
        if is_unknown and not self._store.settings.index_enabled:
            return self._loop.create_task(self._end_when_found(half, request, caller))
        if offset is None and not self._is_given_up(half, is_commit=is_commit):
            return self._answer(self._all_so_far(), half, caller)
        result = self._commit(half) if is_commit else None
        self._open.ended(
            offset,
            half.get(props.UNIQ_KEY) or half.properties,
            half.born_timestamp,
            real_topic(half),
            0 if result is None else result.end_offset,
            half.queue_offset,
        )
        if result is None and not caller.frame.flag & ONEWAY_FLAG:
            result = self._open.ops.write()  # a caller can rely on a rollback that it sees
        return self._answer(result or self._all_so_far(), half, caller)

    def _is_too_late(self, half: StoredMessage) -> bool:
        timeout_ms = self._live.now.transaction_timeout_ms
        immunity_ms = own_immunity_ms(half, timeout_ms)
        age_ms = self._clock.now_ms() - half.born_timestamp
        return immunity_ms is not None and age_ms > max(immunity_ms, timeout_ms)

    def _commit(self, half: StoredMessage) -> AppendResult:
        try:
            draft = unpark(half)
        except ValueError as problem:
            raise Refused(ResponseCode.SYSTEM_ERROR, f"the half message is damaged: {problem}") from None
        draft.sys_flag |= SysFlag.TRANSACTION_COMMIT
        draft.prepared_offset = half.log_offset
        draft.delay_level = delay_level(draft.properties.decode(errors="replace"))
        result = self._appending.append(draft)
        if not result.is_ok:
            self._statistics.put_failures += 1
            raise Refused(SEND_CODES[result.status], result.reason)
        self._statistics.put(draft.topic, draft.queue_id, 1, result.size_bytes)
        return result

    def _all_so_far(self) -> AppendResult:
        """An earlier request has ended the transaction: its record is somewhere before the log's end."""
        return AppendResult(AppendStatus.PUT_OK, self._store.log.end)

    def _answer(self, result: AppendResult, half: StoredMessage, caller: Caller) -> Reply:
        """The end counts when its record is as safe as a message would be."""
        if not result.is_ok:
            raise Refused(SEND_CODES[result.status], result.reason)
        if caller.frame.flag & ONEWAY_FLAG or self._appending.durability.is_safe_enough(
            result, half.properties
        ):
            return Answer()
        return when_safe(self._appending.durability, Answer(), result)

    # Transactions that are not open any more

    def _is_given_up(self, half: StoredMessage, *, is_commit: bool) -> bool:
        """Whether a transaction can still be ended, because the checks gave it up; raises Refused if it ended
        the other way. False if there is nothing to do."""
        is_committed = self._is_committed(half)
        if is_commit and not is_committed:
            if self._was_given_up(half):
                return True
            raise Refused(ResponseCode.ILLEGAL_OPERATION, "the transaction is over: it was rolled back")
        if is_committed and not is_commit:
            raise Refused(ResponseCode.ILLEGAL_OPERATION, "the transaction is over: it was committed")
        return False

    def _is_committed(self, half: StoredMessage) -> bool:
        """Whether the log has the committed message."""
        # The index may lag behind, or be switched off.
        if (is_commit := self._open.was_committed(key_of(half))) is not None:
            return is_commit
        places = {copy.log_offset for copy in self._indexed(names.HALF_TOPIC, half)} | {half.log_offset}
        return any(
            message.sys_flag & SysFlag.TRANSACTION_MASK == SysFlag.TRANSACTION_COMMIT
            and message.prepared_transaction_offset in places
            for topic in (real_topic(half), names.SCHEDULE_TOPIC, names.TIMER_TOPIC)
            for message in self._indexed(topic, half)
        )

    def _was_given_up(self, half: StoredMessage) -> bool:
        return bool(self._indexed(names.CHECK_MAX_TIME_TOPIC, half))

    def _indexed(self, topic: str, half: StoredMessage) -> list[StoredMessage]:
        """The messages of a topic that have the unique key of a half message."""
        unique_key = half.get(props.UNIQ_KEY)
        if unique_key is None:
            return []
        found = []
        for record in self._store.log.query(topic, unique_key, _MAX_COPIES):
            try:
                message = decode_record(record, check_crc=False)
            except RemoteProtocolError:
                continue
            if message.topic == topic and key_of(message) == key_of(half):
                found.append(message)
        return found

    # Operators

    @handles(ResumeTransactionCheck)
    async def resume(self, request: ResumeTransactionCheck, caller: Caller) -> None:
        """Check a transaction again that was given up."""
        await self._open.settled()
        self._check_is_master()
        try:
            log_offset = decode_offset_message_id(request.msg_id or "").log_offset
            record = self._store.log.record_at(log_offset)
            message = None if record is None else decode_record(record)
        except RemoteProtocolError as problem:
            raise Refused(ResponseCode.SYSTEM_ERROR, f"no message has this id: {problem}") from None
        if message is None or message.topic != names.CHECK_MAX_TIME_TOPIC:
            raise Refused(
                ResponseCode.SYSTEM_ERROR,
                f"the topic {names.CHECK_MAX_TIME_TOPIC} has no message with the id {request.msg_id}",
            )
        caller.require(UPDATE, topic=real_topic(message))
        if self._open.halves.find_copy(key_of(message)) is not None:
            raise Refused(ResponseCode.SYSTEM_ERROR, "the transaction is open: it is checked already")
        if self._is_committed(message):
            raise Refused(ResponseCode.SYSTEM_ERROR, "the transaction is over: it was committed")
        result = self._appending.append(copy_of(message, **{props.TRANSACTION_CHECK_TIMES: "0"}))
        if not result.is_ok:
            raise Refused(ResponseCode.SYSTEM_ERROR, f"{result.status.value}: {result.reason}")
        self._statistics.put(names.HALF_TOPIC, 0, 1, result.size_bytes)
        self._open.resumed(message, result)
        _log.info("transaction checked again by=%s message=%s", caller.address, message.get(props.UNIQ_KEY))


def _check_match(half: StoredMessage, request: EndTransaction) -> None:
    for what, stored, given in (
        ("producer group", half.get(props.PRODUCER_GROUP), request.producer_group),
        ("queue offset", half.queue_offset, request.tran_state_table_offset),
    ):
        if stored != given:
            raise Refused(ResponseCode.SYSTEM_ERROR, f"wrong {what} {given}: the half message has {stored}")
