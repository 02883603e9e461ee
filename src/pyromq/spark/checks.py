"""Brokers ask how a transaction ended, and any process that knows the journal of its batch answers.

A half message has the short name of its journal and the number of its batch. The driver serves its journal as
long as it runs, and so does its successor. While the journal says nothing there is no answer, and the broker
asks again later.

Apache's brokers may ask about a transaction that was just committed, and would store its message again:
a message that is there is not committed.
"""

import logging
import os
import socket
import threading
from typing import Final

from pyromq.clock import Clock, SystemClock
from pyromq.errors import PyroError
from pyromq.protocol.catalogue import declaration_of, decode_request
from pyromq.protocol.frame import Frame
from pyromq.protocol.record import SysFlag, decode_record
from pyromq.protocol.requests.membership import HeartbeatData, ProducerData, SendHeartbeat
from pyromq.protocol.requests.pushes import CheckTransactionState
from pyromq.protocol.requests.transactions import EndTransaction
from pyromq.remoting.blocking_link import Link, Links
from pyromq.spark.batch_journal import BatchJournal
from pyromq.spark.encode import SPARK_BATCH
from pyromq.spark.ending import is_stored
from pyromq.spark.links import link_options
from pyromq.spark.options import Access

_log = logging.getLogger(__name__)

_HEARTBEAT_S: Final = 30.0
_AGAIN_S: Final = 2.0
"""After a connection was lost."""
_STALE_MS: Final = 60_000
"""A driver that lives has committed what it decided within this time."""


_checks: "dict[tuple[int, Access, str], Checks]" = {}


class Checks:
    """Answers for one producer group, in a thread for each broker that has half messages of it."""

    def __init__(self, access: Access, group: str, clock: Clock | None = None) -> None:
        self._access = access
        self._group = group
        self._clock: Clock = clock if clock is not None else SystemClock()
        self._journals: dict[str, BatchJournal] = {}
        self._threads: dict[str, threading.Thread] = {}
        self._over = threading.Event()
        self._links = Links(link_options(access))

    def __repr__(self) -> str:
        return f"<Checks {self._group} journals={len(self._journals)} brokers={len(self._threads)}>"

    def serve(self, journal: BatchJournal, brokers: set[str]) -> None:
        """Answer the brokers at these addresses about the batches of a journal."""
        self._journals[journal.short_name] = journal
        for address in brokers - self._threads.keys():
            thread = threading.Thread(target=self._attend, args=(address,), name="checks", daemon=True)
            self._threads[address] = thread
            thread.start()

    def close(self) -> None:
        self._over.set()
        for thread in self._threads.values():
            thread.join()
        self._links.close()

    def _attend(self, address: str) -> None:
        while not self._over.is_set():
            try:
                link = Link(address, link_options(self._access))
            except PyroError as problem:
                _log.debug("broker cannot ask about transactions address=%s: %s", address, problem)
                self._over.wait(_AGAIN_S)
                continue
            try:
                self._listen(link)
            except (PyroError, OSError) as problem:
                _log.debug("connection for checks lost address=%s: %s", address, problem)
                self._over.wait(_AGAIN_S)
            finally:
                link.close()

    def _listen(self, link: Link) -> None:
        client = f"{socket.gethostname()}@spark-{os.getpid()}-checks"
        body = HeartbeatData(client_id=client, producer_data_set=[ProducerData(group_name=self._group)])
        due = self._clock.monotonic()
        while not self._over.is_set():
            if self._clock.monotonic() >= due:
                due = self._clock.monotonic() + _HEARTBEAT_S
                link.send(SendHeartbeat(body=body))
            frame = link.receive_request(1.0)
            if frame is not None and frame.code == declaration_of(CheckTransactionState).code:
                self._answer(link, frame)

    def _answer(self, link: Link, frame: Frame) -> None:
        question = decode_request(declaration_of(CheckTransactionState), frame)
        assert isinstance(question, CheckTransactionState)
        half = decode_record(question.body)
        name, _, batch = (half.get(SPARK_BATCH) or "").rpartition(":")
        journal = self._journals.get(name)
        if journal is None or not batch.isdecimal():
            return
        key = question.msg_id or ""
        state = verdict(journal, int(batch), key, self._clock.now_ms())
        if state is None:
            return
        if state == SysFlag.TRANSACTION_COMMIT:
            # On its own connection: on this one the broker may ask something else meanwhile.
            with self._links.borrow(link.address) as other:
                if is_stored(other, half.topic, key):
                    state = SysFlag.TRANSACTION_ROLLBACK
        _log.info("transaction check answered message=%s batch=%s state=%d", key, batch, state)
        link.send(
            EndTransaction(
                topic=question.topic,
                producer_group=self._group,
                tran_state_table_offset=question.tran_state_table_offset,
                commit_log_offset=question.commit_log_offset,
                commit_or_rollback=state,
                from_transaction_check=True,
                msg_id=key,
                transaction_id=question.transaction_id,
                target_broker_name=question.target_broker_name,
            ),
            oneway=True,
        )


def checks_of_this_process(access: Access, group: str) -> Checks:
    """Spark commits in a process that lives on from batch to batch."""
    key = (os.getpid(), access, group)
    if key not in _checks:
        _checks[key] = Checks(access, group)
    return _checks[key]


def verdict(journal: BatchJournal, batch: int, unique_key: str, now_ms: int) -> int | None:
    """How the transaction of a half message ended; None if it is open, or its driver is about to tell."""
    # First of all: a batch that is decided while we look has not lost.
    if journal.last_decided() < batch:
        return None
    decided_ms = journal.decided_ms(batch)
    if decided_ms is None or unique_key not in {half.unique_key for half in journal.unended(batch)}:
        # Of an attempt that lost: all that an ended batch decided is committed, and Spark never returns to an
        # earlier batch.
        return SysFlag.TRANSACTION_ROLLBACK
    # java: a broker that gets two commits stores the message twice, so the driver goes first.
    return SysFlag.TRANSACTION_COMMIT if now_ms - decided_ms > _STALE_MS else None
