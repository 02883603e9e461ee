"""Half messages are committed or rolled back, many requests at a time, until every broker has answered.

Our brokers commit a transaction once, however often they are asked. Apache's store the message again, so a
commit whose answer was lost is only repeated if the message is not there.
"""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Final, TypeVar

from pyromq.cluster.retry_table import is_passing
from pyromq.errors import NoRoute, PyroError, Refused, TransportError
from pyromq.protocol.catalogue import Answer, Request
from pyromq.protocol.codes import ResponseCode
from pyromq.protocol.properties import UNIQ_KEY
from pyromq.protocol.record import SysFlag, decode_records
from pyromq.protocol.requests.pulling import QueryMessage, QueryMessageAnswer
from pyromq.protocol.requests.transactions import EndTransaction
from pyromq.remoting.blocking_link import Link
from pyromq.spark.batch_journal import StoredHalf
from pyromq.spark.cluster import BrokerAway, SparkCluster
from pyromq.spark.queues import Queue

A = TypeVar("A", bound=Answer)

_AT_ONCE: Final = 256
_LAST_MS: Final = 1 << 62
_LOOKED_AT: Final = 64


class Ending:
    def __init__(self, cluster: SparkCluster, group: str) -> None:
        self._cluster = cluster
        self._group = group

    def commit(self, halves: Sequence[StoredHalf], *, in_doubt: bool = False) -> None:
        """On return all of them are committed. `in_doubt`: some may have been before.

        What one broker fails to commit does not keep the others from it.
        """
        problems: list[PyroError] = []
        for broker, own in _by_broker(halves):
            for first in range(0, len(own), _AT_ONCE):
                try:
                    self._commit_some(broker, own[first : first + _AT_ONCE], in_doubt)
                except PyroError as problem:
                    problems.append(problem)
                    if is_passing(problem):
                        break  # the broker stays away
        if problems:
            raise problems[0]

    def _commit_some(self, broker: Queue, halves: Sequence[StoredHalf], in_doubt: bool) -> None:
        left, doubtful = list(halves), in_doubt

        def attempt() -> None:
            nonlocal left, doubtful
            was_doubtful, doubtful = doubtful, True
            if was_doubtful:
                left = self.missing(broker, left)
            answers = self._ask(broker, [self._end(half, SysFlag.TRANSACTION_COMMIT) for half in left])
            doubtful = was_doubtful  # every one was answered
            refusals = [answer for answer in answers if isinstance(answer, Refused)]
            left = [half for half, answer in zip(left, answers, strict=True) if isinstance(answer, Refused)]
            if refusals:
                raise min(refusals, key=is_passing)

        self._cluster.persist(f"broker {broker.broker}", attempt)

    def roll_back(self, halves: Sequence[StoredHalf]) -> None:
        """Tell the brokers. A broker that cannot be reached discards them later, as no commit follows."""
        for broker, own in _by_broker(halves):
            try:
                for first in range(0, len(own), _AT_ONCE):
                    some = own[first : first + _AT_ONCE]
                    self._ask(broker, [self._end(half, SysFlag.TRANSACTION_ROLLBACK) for half in some])
            except (TransportError, NoRoute):
                continue

    def _end(self, half: StoredHalf, decision: int) -> EndTransaction:
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

    def missing(self, broker: Queue, halves: Sequence[StoredHalf]) -> list[StoredHalf]:
        """Those of them whose messages the broker does not have."""
        answers = self._ask(broker, [_look_for(half.queue.topic, half.unique_key) for half in halves])
        return [
            half
            for half, answer in zip(halves, answers, strict=True)
            if not _is_found(answer, half.queue.topic, half.unique_key)
        ]

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
    (answer,) = link.call_all([_look_for(topic, unique_key)])
    return _is_found(answer, topic, unique_key)


def _look_for(topic: str, unique_key: str) -> QueryMessage:
    return QueryMessage(
        topic=topic,
        key=unique_key,
        max_num=_LOOKED_AT,
        begin_timestamp=0,
        end_timestamp=_LAST_MS,
        is_unique_key=True,
    )


def _is_found(answer: QueryMessageAnswer | Refused, topic: str, unique_key: str) -> bool:
    if isinstance(answer, Refused):
        if answer.code != ResponseCode.QUERY_NOT_FOUND:
            raise answer
        return False
    # The index knows hashes only: these may be messages with other keys.
    found = decode_records(answer.body)
    return any(message.topic == topic and message.get(UNIQ_KEY) == unique_key for message in found)


def _by_broker(halves: Sequence[StoredHalf]) -> Iterator[tuple[Queue, list[StoredHalf]]]:
    """The half messages of each broker in their order, with one of its queues."""
    found: dict[str, list[StoredHalf]] = {}
    for half in halves:
        found.setdefault(half.queue.broker, []).append(half)
    for own in found.values():
        yield own[0].queue, own
