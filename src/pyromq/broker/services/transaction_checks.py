"""Checks: the broker asks producers how transactions ended that have been open for too long.

Before each check the half message is stored again at the end of its queue, with the number of its checks, as
Apache's broker does. So the position where a restarted broker begins is never far from the end. A transaction
that was checked too often, or is older than the log's files, is given up: its message is kept in a topic for
operators.
"""

import asyncio
import logging
from contextlib import suppress
from typing import Final

from msgspec.structs import replace

from pyromq.broker.flow.appending import Appending
from pyromq.broker.flow.draft import Draft
from pyromq.broker.flow.half_messages import check_times, copy_of, own_immunity_ms, real_topic
from pyromq.broker.flow.open_transactions import OpenTransactions
from pyromq.broker.settings import BrokerSettings
from pyromq.broker.tables.all_tables import Tables
from pyromq.clock import Clock
from pyromq.config.live import LiveSettings
from pyromq.errors import PyroError, TransportError
from pyromq.protocol import names
from pyromq.protocol import properties as props
from pyromq.protocol.message_id import encode_offset_message_id
from pyromq.protocol.record import Host, StoredMessage, encode_record
from pyromq.protocol.requests.pushes import CheckTransactionState
from pyromq.remoting.slices import Slices
from pyromq.store.message_store import MessageStore
from pyromq.store.results import AppendResult, AppendStatus

_log = logging.getLogger(__name__)

_MAX_ROUND_S: Final = 60.0
_HOUR_MS: Final = 3_600_000
_REFUSED_ALONE: Final = (AppendStatus.MESSAGE_ILLEGAL, AppendStatus.PROPERTIES_SIZE_EXCEEDED)
"""The store refuses this copy, but may take others: the message has no room for one more property. Producers
are asked about it without a copy, and it is given up when it is older than the log's files."""
_MAX_SLEEP_S: Final = 1.0
"""Changed intervals take effect after this time at most."""


class TransactionChecks:
    def __init__(
        self,
        live: LiveSettings[BrokerSettings],
        store: MessageStore,
        tables: Tables,
        appending: Appending,
        transactions: OpenTransactions,
        slices: Slices,
        clock: Clock,
    ) -> None:
        self._live = live
        self._store = store
        self._role = tables.role
        self._topics = tables.topics
        self._producers = tables.producers
        self._statistics = tables.statistics
        self._counts = tables.transaction_counts
        self._appending = appending
        self._open = transactions
        self._slices = slices
        self._clock = clock
        self._complaint = ""
        self._rounds = asyncio.Lock()

    def __repr__(self) -> str:
        return f"<TransactionChecks of {self._open!r}>"

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._open.run(), name="open transactions")
            tasks.create_task(self._check_regularly(), name="transaction checks")
            tasks.create_task(self._record_regularly(), name="ends of transactions")

    def save_now(self) -> None:
        self._open.save_now()
        self._counts.persist()

    async def _check_regularly(self) -> None:
        checked_at = self._clock.monotonic()
        while True:
            due = checked_at + self._live.now.transaction_check_interval_ms / 1000
            wait_s = due - self._clock.monotonic()
            if wait_s > 0:
                await asyncio.sleep(min(wait_s, _MAX_SLEEP_S))
                continue
            checked_at = self._clock.monotonic()
            try:
                await self.check_round()
            except (PyroError, OSError) as problem:
                _log.error("a round of transaction checks failed, trying again: %s", problem)

    async def _record_regularly(self) -> None:
        recorded_at = saved_at = self._clock.monotonic()
        while True:
            interval_s = self._live.now.transaction_op_interval_ms / 1000
            await asyncio.sleep(min(interval_s, _MAX_SLEEP_S))
            settings, now = self._live.now, self._clock.monotonic()
            if now - recorded_at >= settings.transaction_op_interval_ms / 1000:
                recorded_at = now
                self.record()
            if now - saved_at >= settings.transaction_count_interval_ms / 1000:
                saved_at = now
                self._counts.save()

    def record(self) -> None:
        """Write op messages for what ended, and save the position of a restart."""
        if self._open.is_ready and self._role.now.is_master:
            self._open.ops.write()
            self._open.take_position()

    # One round

    async def check_round(self) -> None:
        """Check the transactions that have been open for too long. A replica checks none."""
        async with self._rounds:
            await self._check_round()

    async def _check_round(self) -> None:
        transactions = self._open
        halves = transactions.halves
        began_ms, ends_at = self._clock.now_ms(), self._clock.monotonic() + _MAX_ROUND_S
        offset = -1
        while transactions.is_ready and transactions.halves is halves:
            found = halves.from_offset(offset + 1)
            if found is None or self._clock.monotonic() > ends_at:
                break
            offset = found
            half = transactions.read(offset)
            if half is None:
                if offset >= self._store.queues.max_offset(names.HALF_TOPIC, 0):
                    break  # not dispatched yet
                _log.warning("the half message of an open transaction is gone offset=%d", offset)
                transactions.lost(offset)
            elif half.store_timestamp >= began_ms or not self._examine(offset, half):
                break
            if self._slices.is_over():
                await self._slices.wait_for_turn()
        self.record()

    def _examine(self, offset: int, half: StoredMessage) -> bool:
        """Do what is due for one transaction; False if the round ends here."""
        settings = self._live.now
        age_ms = self._clock.now_ms() - half.born_timestamp
        times = check_times(half)
        if times is not None and times >= settings.transaction_check_max:
            return self._give_up(offset, half, f"{times} checks brought no answer")
        if age_ms > self._store.settings.file_reserved_hours * _HOUR_MS:
            return self._give_up(offset, half, f"it has been open for {age_ms // _HOUR_MS} h")
        timeout_ms = settings.transaction_timeout_ms
        own_ms = own_immunity_ms(half, timeout_ms)
        if own_ms is not None and age_ms < own_ms:
            return self._keep_immune(offset, half)
        if own_ms is None and 0 <= age_ms < timeout_ms:
            return False  # the later ones are younger
        if 0 <= age_ms <= (timeout_ms if own_ms is None else own_ms):
            return True
        group = half.get(props.PRODUCER_GROUP) or ""
        topic = real_topic(half)
        # Anybody can be a member of the group, but the question shows the message.
        members = [each for each in self._producers.members(group) if each.may_send(topic)]
        producer = self._producers.pick(members)
        if producer is None and any(each.channel.is_open for each in members):
            return True  # they have enough to read; the next round asks
        draft = copy_of(half, **{props.TRANSACTION_CHECK_TIMES: str((times or 0) + 1)})
        result = self._append(draft)
        if result.is_ok:
            self._open.replaced(offset, half, result)
            half = _stored_as(half, draft, result)
        elif result.status not in _REFUSED_ALONE:
            return False
        # java: a check counts even if there is no producer to ask
        if producer is not None:
            with suppress(TransportError):
                producer.channel.send_oneway(self._question(half))
        return True

    def _keep_immune(self, offset: int, half: StoredMessage) -> bool:
        """Move it to the end of the queue, so that it does not hold up the position of a restart."""
        name = props.TRANSACTION_PREPARED_QUEUE_OFFSET
        result = self._append(copy_of(half, **{name: half.get(name) or str(half.queue_offset)}))
        if result.is_ok:
            self._open.replaced(offset, half, result, is_immune=True)
        return result.is_ok or result.status in _REFUSED_ALONE

    def _give_up(self, offset: int, half: StoredMessage, why: str) -> bool:
        self._topics.create_if_absent(names.CHECK_MAX_TIME_TOPIC, 1)
        result = self._append(copy_of(half, names.CHECK_MAX_TIME_TOPIC))
        if not result.is_ok:
            return result.status in _REFUSED_ALONE
        self._open.given_up(offset, half, result)
        _log.warning(
            "transaction given up topic=%s message=%s kept_in=%s offset=%d: %s",
            real_topic(half),
            half.get(props.UNIQ_KEY),
            names.CHECK_MAX_TIME_TOPIC,
            result.queue_offset,
            why,
        )
        return True

    def _append(self, draft: Draft) -> AppendResult:
        result = self._appending.append(draft)
        if result.is_ok:
            self._complaint = ""
            self._statistics.put(draft.topic, draft.queue_id, 1, result.size_bytes)
            return result
        self._statistics.put_failures += 1
        if self._complaint != result.reason:
            self._complaint = result.reason
            _log.warning("the copy of a half message could not be stored: %s", result.reason)
        return result

    def _question(self, half: StoredMessage) -> CheckTransactionState:
        unique_key = half.get(props.UNIQ_KEY)
        topic = real_topic(half)
        queue_id = half.get(props.REAL_QUEUE_ID) or ""
        shown = replace(half, topic=topic, queue_id=int(queue_id) if queue_id.isdigit() else 0)
        return CheckTransactionState(
            # The answer names it again, and the producer has the rights for its own topic.
            topic=topic,
            tran_state_table_offset=half.queue_offset,
            commit_log_offset=half.log_offset,
            msg_id=unique_key,
            transaction_id=unique_key,
            offset_msg_id=encode_offset_message_id(half.store_host, half.log_offset),
            target_broker_name=self._live.now.broker_name,
            body=encode_record(shown),
        )


def _stored_as(half: StoredMessage, draft: Draft, result: AppendResult) -> StoredMessage:
    """The copy of a half message that was stored."""
    return replace(
        half,
        properties=draft.properties,
        queue_offset=result.queue_offset,
        log_offset=result.log_offset,
        store_timestamp=result.store_timestamp,
        store_host=Host(result.store_host[:-4], int.from_bytes(result.store_host[-4:], "big")),
    )
