"""Transactions: where the half message of each lies, how it ends, and checks on the producer's stream."""

import logging
from collections import deque
from typing import Any, NamedTuple

from pyromq.client.values import ReceivedMessage
from pyromq.clock import Clock
from pyromq.errors import RemoteProtocolError, TransportError
from pyromq.protocol.record import StoredMessage, SysFlag, decode_record
from pyromq.protocol.requests.pushes import CheckTransactionState
from pyromq.protocol.requests.transactions import EndTransaction
from pyromq.proxy.checks import check_topic
from pyromq.proxy.clients import Command, FrontClient
from pyromq.proxy.cluster import ProxyCluster
from pyromq.proxy.codes import OK, Code, Rejected
from pyromq.proxy.grpc.call import Call
from pyromq.proxy.incoming import received
from pyromq.proxy.messages import enum_values, message

_log = logging.getLogger(__name__)

_EndTransactionResponse = message("EndTransactionResponse")
_RESOLUTIONS = {
    enum_values("TransactionResolution")["COMMIT"]: SysFlag.TRANSACTION_COMMIT,
    enum_values("TransactionResolution")["ROLLBACK"]: SysFlag.TRANSACTION_ROLLBACK,
}
_SERVER_CHECK = enum_values("TransactionSource")["SOURCE_SERVER_CHECK"]
_MAX_KEPT = 100_000


class HalfPlace(NamedTuple):
    """Where a half message lies."""

    address: str
    broker_name: str | None
    queue_offset: int
    log_offset: int


class ProxyTransactions:
    """Also the member that brokers ask about the transactions of all topics."""

    def __init__(self, cluster: ProxyCluster, clock: Clock, expiry_s: float) -> None:
        self._cluster = cluster
        self._clock = clock
        self._expiry_s = expiry_s
        self._halves: dict[tuple[str, str], HalfPlace] = {}
        self._expiries: deque[tuple[float, tuple[str, str], HalfPlace]] = deque()
        self._publishers: Any = lambda topic: []
        self._turn = 0

    def __repr__(self) -> str:
        return f"<ProxyTransactions open={len(self._halves)}>"

    def __len__(self) -> int:
        return len(self._halves)

    def ask(self, publishers: Any) -> None:
        """`publishers(topic)`: the clients that may know how a transaction of a topic ended."""
        self._publishers = publishers

    def remember(self, topic: str, transaction_id: str, half: HalfPlace) -> None:
        now = self._clock.monotonic()
        key = (topic, transaction_id)
        self._halves[key] = half
        self._expiries.append((now + self._expiry_s, key, half))
        while self._expiries and (self._expiries[0][0] <= now or len(self._halves) > _MAX_KEPT):
            _, old, kept = self._expiries.popleft()
            if self._halves.get(old) is kept:
                del self._halves[old]

    def _take(self, topic: str, transaction_id: str) -> HalfPlace:
        half = self._halves.pop((topic, transaction_id), None)
        if half is None:
            raise Rejected(
                Code.INTERNAL_SERVER_ERROR,
                f"the transaction {transaction_id} of topic {topic} is not known here, or was forgotten after"
                f" {self._expiry_s:g} s; the broker will ask for its end",
            )
        return half

    async def end(self, request: Any, call: Call) -> Any:
        topic = check_topic(request.topic.name)
        if not request.transaction_id.strip():
            raise Rejected(Code.INVALID_TRANSACTION_ID, "the transaction id is missing")
        self._cluster.admit_producer([topic], call)
        half = self._take(topic, request.transaction_id)
        told = EndTransaction(
            topic=topic,
            producer_group=topic,
            tran_state_table_offset=half.queue_offset,
            commit_log_offset=half.log_offset,
            commit_or_rollback=_RESOLUTIONS.get(request.resolution, 0),
            from_transaction_check=request.source == _SERVER_CHECK,
            msg_id=request.message_id,
            transaction_id=request.transaction_id,
            target_broker_name=half.broker_name,
        )
        try:
            await self._cluster.send_oneway(half.address, told, call)
        except TransportError:
            self.remember(topic, request.transaction_id, half)
            raise
        return _EndTransactionResponse(status=OK)

    # A broker asks

    def check_transaction(self, request: CheckTransactionState, asked: ReceivedMessage, address: str) -> bool:
        try:
            stored = decode_record(request.body)
        except RemoteProtocolError as problem:
            _log.warning("a transaction check cannot be read broker=%s: %s", address, problem)
            return True
        found = received(stored)
        client = self._reachable(stored)
        if client is None:
            _log.info("no producer can check a transaction topic=%s", stored.topic)
            return True
        transaction_id = request.transaction_id or found.system_properties.message_id
        half = HalfPlace(
            address, request.target_broker_name, request.tran_state_table_offset, request.commit_log_offset
        )
        self.remember(stored.topic, transaction_id, half)
        command = Command()
        command.recover_orphaned_transaction_command.message.CopyFrom(found)
        command.recover_orphaned_transaction_command.transaction_id = transaction_id
        client.command(command)
        return True

    def _reachable(self, stored: StoredMessage) -> FrontClient | None:
        clients = [each for each in self._publishers(stored.topic) if each.is_reachable]
        if not clients:
            return None
        self._turn += 1
        found: FrontClient = clients[self._turn % len(clients)]
        return found
