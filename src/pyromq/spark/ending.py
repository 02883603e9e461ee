"""Half messages are committed or rolled back, many requests at a time, until every broker has answered.

Brokers of ours commit a transaction once, however often they are told. Apache's store the message again, so a
commit whose answer was lost is only repeated if the message is not there.
"""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Final, TypeVar

from pyromq.errors import NoRoute, Refused, TransportError
from pyromq.protocol.catalogue import Answer, Request
from pyromq.protocol.codes import ResponseCode
from pyromq.protocol.record import SysFlag
from pyromq.protocol.requests.pulling import QueryMessage
from pyromq.protocol.requests.transactions import EndTransaction
from pyromq.remoting.blocking_link import Link
from pyromq.spark.batch_journal import Half
from pyromq.spark.cluster import BrokerAway, Cluster, is_passing
from pyromq.spark.queues import Queue

A = TypeVar("A", bound=Answer)

_AT_ONCE: Final = 256
_LAST_MS: Final = 1 << 62
_NOT_SAFE_YET: Final = frozenset(
    {ResponseCode.FLUSH_DISK_TIMEOUT, ResponseCode.SLAVE_NOT_AVAILABLE, ResponseCode.FLUSH_SLAVE_TIMEOUT}
)
"""Only brokers of ours say so: the commit is stored, and counts when it is safe. It may be repeated."""


class Ending:
    def __init__(self, cluster: Cluster, group: str) -> None:
        self._cluster = cluster
        self._group = group

    def commit(self, halves: Sequence[Half], *, in_doubt: bool = False) -> None:
        """On return all of them are committed. `in_doubt`: some may have been before."""
        for broker, own in _by_broker(halves):
            for first in range(0, len(own), _AT_ONCE):
                self._commit_some(broker, own[first : first + _AT_ONCE], in_doubt)

    def _commit_some(self, broker: Queue, halves: Sequence[Half], in_doubt: bool) -> None:
        left, doubtful = list(halves), in_doubt

        def attempt() -> None:
            nonlocal left, doubtful
            if doubtful:
                left = [half for half in left if not self.is_there(half)]
            doubtful = True
            answers = self._ask(broker, [self._end(half, SysFlag.TRANSACTION_COMMIT) for half in left])
            failed = []
            for half, answer in zip(left, answers, strict=True):
                if isinstance(answer, Refused):
                    if not is_passing(answer) and answer.code not in _NOT_SAFE_YET:
                        raise answer
                    failed.append((half, answer))
            left = [half for half, _ in failed]
            if failed:
                doubtful = False  # every one was answered: it was not stored, or may be repeated
                raise failed[0][1]

        self._cluster.persist(f"broker {broker.broker}", attempt)

    def roll_back(self, halves: Sequence[Half]) -> None:
        """Tell the brokers; one that is not told discards them later, when nobody commits them."""
        for broker, own in _by_broker(halves):
            try:
                for first in range(0, len(own), _AT_ONCE):
                    some = own[first : first + _AT_ONCE]
                    self._ask(broker, [self._end(half, SysFlag.TRANSACTION_ROLLBACK) for half in some])
            except (TransportError, NoRoute):
                continue

    def _end(self, half: Half, decision: int) -> EndTransaction:
        return EndTransaction(
            topic=half.queue.topic,
            producer_group=self._group,
            tran_state_table_offset=half.queue_offset,
            commit_log_offset=half.log_offset,
            commit_or_rollback=decision,
            msg_id=half.unique_key,
            transaction_id=half.unique_key,
            target_broker_name=half.queue.broker,
        )

    def is_there(self, half: Half) -> bool:
        """Whether the message of a half message can be found."""
        with self._link(half.queue) as link:
            return is_stored(link, half.queue.topic, half.unique_key)

    def _ask(self, broker: Queue, requests: Sequence[Request[A]]) -> list[A | Refused]:
        if not requests:
            return []
        with self._link(broker) as link:
            return link.call_all(requests)

    def _link(self, broker: Queue) -> AbstractContextManager[Link]:
        try:
            address = self._cluster.address(broker)
        except NoRoute as problem:
            raise BrokerAway(f"no broker has {broker} at the moment: {problem}") from None
        return self._cluster.links.borrow(address)


def is_stored(link: Link, topic: str, unique_key: str) -> bool:
    """Whether a broker has the message."""
    question = QueryMessage(
        topic=topic,
        key=unique_key,
        max_num=1,
        begin_timestamp=0,
        end_timestamp=_LAST_MS,
        is_unique_key=True,
    )
    (answer,) = link.call_all([question])
    if isinstance(answer, Refused):
        if answer.code != ResponseCode.QUERY_NOT_FOUND:
            raise answer
        return False
    return True


def _by_broker(halves: Sequence[Half]) -> Iterator[tuple[Queue, list[Half]]]:
    """The half messages of each broker in their order, with one of its queues."""
    found: dict[str, list[Half]] = {}
    for half in halves:
        found.setdefault(half.queue.broker, []).append(half)
    for own in found.values():
        yield own[0].queue, own
