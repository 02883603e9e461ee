"""Requests to a cluster about its topics, its queues and their offsets.

Requests are repeated while servers are away, as often as the options allow: an error here ends a query.
Queues are read where they are stored, also those of static topics: a logical queue that moves gets new ones,
and each message has one place for ever.
"""

import logging
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from pyromq.cluster import blocking
from pyromq.cluster.name_servers import NameServers, as_listed
from pyromq.cluster.retry_table import is_passing
from pyromq.cluster.routes import build_route, first_address, readable_queues, writable_queues
from pyromq.errors import NoRoute, PyroError, Refused, TransportError
from pyromq.protocol.catalogue import Answer, Request
from pyromq.protocol.codes import ResponseCode
from pyromq.protocol.names import DLQ_PREFIX, MASTER_ID, RETRY_PREFIX, SYSTEM_TOPIC_PREFIX, SYSTEM_TOPICS
from pyromq.protocol.record import scan_record
from pyromq.protocol.requests.offsets import (
    GetMaxOffset,
    GetMinOffset,
    QueryConsumerOffset,
    SearchOffset,
)
from pyromq.protocol.requests.pulling import PullMessage
from pyromq.protocol.requests.routes import (
    GetAllTopics,
    GetClusterInfo,
    GetRoute,
    GetSystemTopicsFromNameServer,
    TopicRouteData,
)
from pyromq.protocol.requests.topics import GetTopicConfig
from pyromq.remoting.blocking_link import Links
from pyromq.spark.links import link_options
from pyromq.spark.options import PULL_GROUP, Access, Selection
from pyromq.spark.queues import Queue

_log = logging.getLogger(__name__)

A = TypeVar("A", bound=Answer)
T = TypeVar("T")

REPLY_TOPIC_SUFFIX = "_REPLY_TOPIC"

SUBSCRIPTION_FLAG = 4
"""The bit of a pull's system flag that says: the request itself carries the subscription."""


def pull_of(
    queue: Queue,
    offset: int,
    messages: int,
    *,
    group: str = PULL_GROUP,
    tags: str = "*",
    sql: str | None = None,
) -> PullMessage:
    """A pull that does not wait."""
    return PullMessage(
        consumer_group=group,
        topic=queue.topic,
        queue_id=queue.queue_id,
        queue_offset=offset,
        max_msg_nums=messages,
        sys_flag=SUBSCRIPTION_FLAG,
        commit_offset=0,
        suspend_timeout_millis=0,
        subscription=tags if sql is None else sql,
        sub_version=0,
        expression_type="TAG" if sql is None else "SQL92",
        max_msg_bytes=PULL_BYTES,
        target_broker_name=queue.broker,
        is_logical_queue=False,
    )


def matches_pattern(pattern: str) -> Callable[[str], bool]:
    """Patterns select topics of applications; retry and dead-letter topics only if they ask for them."""
    wanted = re.compile(pattern)
    hidden: tuple[str, ...] = (SYSTEM_TOPIC_PREFIX,)
    if not pattern.startswith("%"):
        hidden = (SYSTEM_TOPIC_PREFIX, RETRY_PREFIX, DLQ_PREFIX)

    def matches(topic: str) -> bool:
        is_hidden = topic in SYSTEM_TOPICS or topic.startswith(hidden) or topic.endswith(REPLY_TOPIC_SUFFIX)
        return not is_hidden and wanted.fullmatch(topic) is not None

    return matches


PULL_BYTES = 4 * 1024 * 1024


class SparkCluster:
    def __init__(self, access: Access, links: Links | None = None) -> None:
        self.access = access
        self.links = links if links is not None else Links(link_options(access))
        self._name_servers = NameServers(access.namesrv, as_listed)
        self._routes: dict[str, TopicRouteData] = {}
        self._seen: set[str] = set()
        """Topics that have had a route."""

    def __repr__(self) -> str:
        return f"<SparkCluster {';'.join(self.access.namesrv)} topics={len(self._routes)}>"

    def close(self) -> None:
        self.links.close()

    # Topics and queues

    def queues(self, selection: Selection, *, patient: bool = True) -> list[Queue]:
        """The queues that can be read now; if not `patient`, silent name servers are an error at once."""
        if selection.queues is not None:
            return sorted(selection.queues)
        topics = selection.topics
        if selection.pattern is not None:
            topics = self._matching(selection.pattern, patient)
        return sorted(queue for topic in topics for queue in self._queues_of(topic, selection, patient))

    def _matching(self, pattern: str, patient: bool) -> tuple[str, ...]:
        known = set(self.ask_name_server(GetAllTopics(), patient=patient).body.topic_list)
        known -= set(self.ask_name_server(GetSystemTopicsFromNameServer(), patient=patient).body.topic_list)
        return tuple(sorted(filter(matches_pattern(pattern), known)))

    def _queues_of(self, topic: str, selection: Selection, patient: bool) -> list[Queue]:
        try:
            return self.readable_queues(topic, patient=patient)
        except NoRoute:
            if selection.pattern is not None or topic in self._seen:
                return []  # deleted while being looked at, or all its brokers are away for the moment
            raise

    def has(self, topic: str) -> bool:
        """Whether the name servers know a topic."""
        try:
            self.fresh_route(topic)
        except NoRoute:
            return False
        return True

    def readable_queues(self, topic: str, *, patient: bool = True) -> list[Queue]:
        """The queues of one topic; raises NoRoute."""
        route = self.fresh_route(topic, patient=patient)
        return [Queue(topic, each.broker_name, each.queue_id) for each in readable_queues(topic, route)]

    def writable_queues(self, topic: str, *, patient: bool = True) -> list[Queue]:
        """The queues that can be written to; only those whose master is known.

        Brokers take messages of a static topic under the number of the logical queue, which stays the same
        when the queue moves.
        """
        route = self.fresh_route(topic, patient=patient)
        if route.topic_queue_mapping_by_broker:
            hosts = sorted((queue.queue_id, host) for queue, host in build_route(topic, route).hosts.items())
            masters = {data.broker_name for data in route.broker_datas if MASTER_ID in data.broker_addrs}
            return [Queue(topic, host, number) for number, host in hosts if host in masters]
        found = writable_queues(topic, route)
        return sorted(Queue(topic, each.broker_name, each.queue_id) for each in found)

    def fresh_route(self, topic: str, *, patient: bool = True) -> TopicRouteData:
        question = GetRoute(topic=topic, accept_standard_json_only=True)
        try:
            route = self.ask_name_server(question, patient=patient).body
        except Refused as refusal:
            if refusal.code == ResponseCode.TOPIC_NOT_EXIST:
                raise NoRoute(topic, ";".join(self.access.namesrv)) from None
            raise
        self._routes[topic] = route
        self._seen.add(topic)
        return route

    def cluster_of(self, queue: Queue) -> str:
        """The name of the cluster that a queue's broker belongs to; empty if that is not known."""
        route = self._routes.get(queue.topic) or self.fresh_route(queue.topic)
        names = (each.cluster for each in route.broker_datas if each.broker_name == queue.broker)
        return next(names, None) or ""

    def address(self, queue: Queue) -> str:
        """Where a queue is read: its master, or a replica while the master is away.

        Silent name servers are an error at once: callers repeat the whole attempt.
        """
        route = self._routes.get(queue.topic) or self.fresh_route(queue.topic, patient=False)
        for data in route.broker_datas:
            if data.broker_name == queue.broker and (address := first_address(data)) is not None:
                return address
        # The next attempt asks the name server again.
        self._routes.pop(queue.topic, None)
        raise BrokerAway(f"the broker {queue.broker} of {queue} is not registered with any name server")

    def address_to_read(self, queue: Queue) -> str:
        """The same for a queue that is known to exist: a topic without a broker will get one back."""
        try:
            return self.address(queue)
        except NoRoute as problem:
            raise BrokerAway(f"no broker has {queue} at the moment: {problem}") from None

    def forget_routes(self) -> None:
        self._routes.clear()

    def deleted(self, queues: Iterable[Queue]) -> list[Queue]:
        """Those of topics that their master does not have any more. A master that is away says nothing."""
        by_broker: dict[tuple[str, str], list[Queue]] = {}
        for queue in queues:
            by_broker.setdefault((queue.broker, queue.topic), []).append(queue)
        found: list[Queue] = []
        try:
            brokers = self.ask_name_server(GetClusterInfo(), patient=False).body.broker_addr_table
            for (broker, topic), theirs in by_broker.items():
                if broker in brokers and (master := brokers[broker].broker_addrs.get(MASTER_ID)) is not None:
                    with self.links.borrow(master) as link:
                        (config,) = link.call_all([GetTopicConfig(topic=topic)])
                    if isinstance(config, Refused) and config.code == ResponseCode.TOPIC_NOT_EXIST:
                        found += theirs
        except PyroError as problem:
            _log.warning("it is unknown which topics were deleted: %s", problem)
        return found

    # Offsets

    def latest(self, queues: Iterable[Queue]) -> dict[Queue, int]:
        return self._offsets(queues, _max_offset)

    def latest_of_reachable(self, queues: Iterable[Queue]) -> dict[Queue, int]:
        """The same without the queues of brokers that are away, unless all of them are."""
        questions = {queue: _max_offset(queue) for queue in queues}
        answers, problem = self.ask_reachable(questions)
        if problem is not None:
            if not answers:
                return self.latest(questions)
            _log.warning("a broker is away, its queues wait: %s", problem)
        return _numbers(answers)

    def earliest(self, queues: Iterable[Queue]) -> dict[Queue, int]:
        return self._offsets(
            queues, lambda q: GetMinOffset(topic=q.topic, queue_id=q.queue_id, is_logical_queue=False)
        )

    def committed(self, group: str, queues: Iterable[Queue]) -> dict[Queue, int]:
        """Where a group stands; queues it never read are omitted."""
        answers = self.ask_brokers(
            {
                queue: QueryConsumerOffset(
                    consumer_group=group,
                    topic=queue.topic,
                    queue_id=queue.queue_id,
                    set_zero_if_not_found=False,
                    is_logical_queue=False,
                )
                for queue in queues
            }
        )
        committed = {}
        for queue, answer in answers.items():
            if not isinstance(answer, Refused):
                committed[queue] = answer.offset
            elif answer.code != ResponseCode.QUERY_NOT_FOUND:
                raise answer
        return committed

    def at_time(self, timestamps: Mapping[Queue, int]) -> dict[Queue, int | None]:
        """The first offset stored at or after a time; None where everything is older."""
        found = self._offsets(
            timestamps,
            lambda q: SearchOffset(
                topic=q.topic,
                queue_id=q.queue_id,
                timestamp=timestamps[q],
                boundary_type="LOWER",
                is_logical_queue=False,
            ),
        )
        ends = self.latest(timestamps)
        exact: dict[Queue, int | None] = {}
        for queue, offset in found.items():
            # java: before 5.0 the answer for a time behind the end is the last message, not the end
            while offset < ends[queue] and self._stored_ms(queue, offset) < timestamps[queue]:
                offset += 1
            exact[queue] = offset if offset < ends[queue] else None
        return exact

    def _stored_ms(self, queue: Queue, offset: int) -> int:
        """When a message was stored; a message that is gone counts as stored late enough."""
        answer = self.ask_brokers({queue: pull_of(queue, offset, 1)})[queue]
        if isinstance(answer, Refused):
            raise answer
        outline = scan_record(answer.body) if answer.body else None
        return outline.store_timestamp if outline is not None else 2**63 - 1

    def stored_ms(self, offsets: Mapping[Queue, int], *, patient: bool = True) -> dict[Queue, int]:
        """When one message of each queue was stored, without those that are gone.

        If not `patient`, also without those of brokers that are away.
        """
        questions = {queue: pull_of(queue, offset, 1) for queue, offset in offsets.items()}
        answers = self.ask_brokers(questions) if patient else self.ask_reachable(questions)[0]
        found: dict[Queue, int] = {}
        for queue, answer in answers.items():
            outline = scan_record(answer.body) if not isinstance(answer, Refused) and answer.body else None
            # Records of a light topic have the offsets of another queue.
            if outline is not None and outline.queue_offset == offsets[queue]:
                found[queue] = outline.store_timestamp
        return found

    def record_bytes(self, queue: Queue, offset: int) -> int:
        """How large the messages from an offset on are, on average over one small answer."""
        answer = self.ask_brokers({queue: pull_of(queue, offset, 32)})[queue]
        if isinstance(answer, Refused) or not answer.body:
            return 1
        count, position = 0, 0
        while position < len(answer.body):
            outline = scan_record(answer.body, position)
            if outline is None:
                break
            count, position = count + 1, outline.end
        return max(position // max(count, 1), 1)

    def _offsets(
        self, queues: Iterable[Queue], question: Callable[[Queue], Request[Any]]
    ) -> dict[Queue, int]:
        return _numbers(self.ask_brokers({queue: question(queue) for queue in queues}))

    # Asking

    def ask_brokers(self, questions: Mapping[Queue, Request[A]]) -> dict[Queue, A | Refused]:
        """One question for each queue, all of one broker at once."""
        answers: dict[Queue, A | Refused] = {}

        def ask_the_rest() -> None:
            rest = {queue: question for queue, question in questions.items() if queue not in answers}
            given, problem = self.ask_reachable(rest)
            answers.update(given)
            if problem is not None:
                raise problem

        self.persist("brokers", ask_the_rest)
        return answers

    def ask_reachable(
        self, questions: Mapping[Queue, Request[A]]
    ) -> tuple[dict[Queue, A | Refused], PyroError | None]:
        """The answers of reachable brokers, and the error that kept others from answering, if any."""
        answers: dict[Queue, A | Refused] = {}
        away: PyroError | None = None
        by_address: dict[str, list[Queue]] = {}
        for queue in questions:
            try:
                by_address.setdefault(self.address_to_read(queue), []).append(queue)
            except BrokerAway as problem:
                away = problem
            except TransportError as problem:
                away = problem
                break  # no name server answers; each queue would wait for that
        for address, queues in by_address.items():
            requests = [questions[queue] for queue in queues]
            try:
                with self.links.borrow(address) as link:
                    replies = link.call_all(requests)
            except TransportError as problem:
                away = problem
                continue
            for queue, reply in zip(queues, replies, strict=True):
                if isinstance(reply, Refused) and is_passing(reply):
                    away = reply
                else:
                    answers[queue] = reply
        if away is not None:
            self.forget_routes()
        return answers, away

    def ask_name_server(self, request: Request[A], *, patient: bool = True) -> A:
        def ask_any() -> A:
            return blocking.ask(self._name_servers, self.links, request)

        return self.persist("name servers", ask_any) if patient else ask_any()

    def persist(self, what: str, attempt: Callable[[], T]) -> T:
        """Repeat an action while it fails for passing reasons."""
        for failures in range(self.access.retries + 1):
            try:
                return attempt()
            except PyroError as problem:
                if failures == self.access.retries or not is_passing(problem):
                    raise
                _log.warning("%s did not answer, asking again attempt=%d: %s", what, failures + 1, problem)
            self.forget_routes()
            self.links.wait(self.access.retry_interval_ms / 1000)
        raise AssertionError("unreachable")


def _max_offset(queue: Queue) -> GetMaxOffset:
    return GetMaxOffset(topic=queue.topic, queue_id=queue.queue_id, is_logical_queue=False)


def _numbers(answers: Mapping[Queue, Any]) -> dict[Queue, int]:
    for answer in answers.values():
        if isinstance(answer, Refused):
            raise answer
    # java: an empty batch queue of 5.x begins at -1
    return {queue: max(answer.offset, 0) for queue, answer in answers.items()}


class BrokerAway(TransportError):
    """A broker that should have a queue is not registered at the moment."""
