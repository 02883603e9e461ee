"""Assignments: the broker tells a member of a group which queues it reads, and whether it pulls or pops them.

Members that pop share queues: all of them every queue, or each the queues of a few others besides its own.
"""

from collections.abc import Awaitable, Callable, Sequence

from pyromq.broker.settings import BrokerSettings
from pyromq.broker.tables.all_tables import Tables
from pyromq.clock import Clock
from pyromq.cluster.assignment import Assignment, Average, AverageByCircle, my_share
from pyromq.config.live import LiveSettings
from pyromq.errors import PyroError, Refused
from pyromq.protocol import names
from pyromq.protocol.body import MessageQueue
from pyromq.protocol.catalogue import Answer, BodyAnswer
from pyromq.protocol.codes import ResponseCode
from pyromq.protocol.requests.membership import MessageModel
from pyromq.protocol.requests.popping import (
    GetMessageRequestModes,
    MessageQueueAssignment,
    MessageRequestMode,
    MessageRequestModeSerializeWrapper,
    QueryAssignment,
    QueryAssignmentResponseBody,
    SetMessageRequestMode,
    SetMessageRequestModeRequestBody,
)
from pyromq.remoting.routing import Caller, handles

FindQueues = Callable[[str], Awaitable[Sequence[MessageQueue]]]
"""Ask the name servers for the readable queues of a topic on all brokers."""

_RULES: dict[str, Assignment] = {rule.name: rule for rule in (Average(), AverageByCircle())}
_ROUTE_KEPT_S = 5.0
_MAX_ROUTES = 1000
_ANY_QUEUE = -1


class Assignments:
    def __init__(
        self,
        live: LiveSettings[BrokerSettings],
        tables: Tables,
        find_queues: FindQueues,
        clock: Clock,
    ) -> None:
        self._live = live
        self._topics = tables.topics
        self._groups = tables.groups
        self._consumers = tables.consumers
        self._modes = tables.request_modes
        self._find_queues = find_queues
        self._clock = clock
        self._routes: dict[str, tuple[float, Sequence[MessageQueue]]] = {}

    def __repr__(self) -> str:
        return f"<Assignments {self._modes!r}>"

    @handles(QueryAssignment)
    async def query(
        self, request: QueryAssignment, caller: Caller
    ) -> BodyAnswer[QueryAssignmentResponseBody]:
        asked = request.body
        mode = self._mode(asked.topic, asked.consumer_group)
        queues = await self._queues(asked.topic)
        if asked.message_model is not MessageModel.BROADCASTING and self._live.now.assigns_queues:
            rule = _RULES.get(asked.strategy_name or "")
            if rule is None:
                raise Refused(
                    ResponseCode.INVALID_PARAMETER,
                    f"the rule {asked.strategy_name} is not known here, expected one of {', '.join(_RULES)}",
                )
            members = self._members(asked.consumer_group)
            queues = _share(rule, asked.client_id, queues, members, mode)
        body = QueryAssignmentResponseBody(
            message_queue_assignments=[
                MessageQueueAssignment(message_queue=queue, mode=mode.mode) for queue in queues
            ]
        )
        return BodyAnswer(body=body)

    def _mode(self, topic: str, group: str) -> SetMessageRequestModeRequestBody:
        known = self._modes.get(topic, group)
        if known is not None:
            return known
        settings = self._live.now
        # java: retries of a group that pulls are always pulled
        is_retry = names.is_retry_topic(topic)
        mode = MessageRequestMode.PULL if is_retry else MessageRequestMode(settings.default_request_mode)
        return SetMessageRequestModeRequestBody(
            consumer_group=group, topic=topic, mode=mode, pop_share_queue_num=settings.default_pop_share
        )

    def _members(self, group: str) -> list[str]:
        members = self._consumers.group(group)
        return [] if members is None else sorted({each.client_id for each in members.members.values()})

    async def _queues(self, topic: str) -> Sequence[MessageQueue]:
        """The queues on all brokers; on this one only, if no name server answers."""
        now = self._clock.monotonic()
        known = self._routes.get(topic)
        if known is not None and now - known[0] < _ROUTE_KEPT_S:
            return known[1]
        try:
            found = await self._find_queues(topic)
        except PyroError:
            found = known[1] if known is not None else self._own_queues(topic)
        if len(self._routes) >= _MAX_ROUTES:
            self._routes.clear()
        self._routes[topic] = now, found
        return found

    def _own_queues(self, topic: str) -> list[MessageQueue]:
        config = self._topics.get(topic)
        if config is None or not config.perm & names.READ:
            return []
        broker = self._live.now.broker_name
        return [
            MessageQueue(topic=topic, broker_name=broker, queue_id=number)
            for number in range(config.read_queue_nums)
        ]

    # Modes

    @handles(SetMessageRequestMode)
    async def set_mode(self, request: SetMessageRequestMode, caller: Caller) -> Answer:
        """java: the checks run in Apache's order"""
        mode = request.body
        if names.is_retry_topic(mode.topic):
            raise Refused(
                ResponseCode.NO_PERMISSION, f"{mode.topic} holds retries: these follow their own topic"
            )
        if self._topics.get(mode.topic) is None:
            raise Refused(ResponseCode.TOPIC_NOT_EXIST, f"the topic {mode.topic} does not exist")
        if self._groups.find(mode.consumer_group) is None:
            raise Refused(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
                f"the consumer group {mode.consumer_group} does not exist",
            )
        self._modes.set(mode)
        await self._modes.saved()
        return Answer()

    @handles(GetMessageRequestModes)
    def all_modes(
        self, request: GetMessageRequestModes, caller: Caller
    ) -> BodyAnswer[MessageRequestModeSerializeWrapper]:
        return BodyAnswer(body=self._modes.wrapper())


def _share(
    rule: Assignment,
    me: str,
    queues: Sequence[MessageQueue],
    members: Sequence[str],
    mode: SetMessageRequestModeRequestBody,
) -> Sequence[MessageQueue]:
    if mode.mode is MessageRequestMode.PULL:
        return my_share(rule, me, queues, members)
    others = mode.pop_share_queue_num
    if others <= 0 or others >= len(members) - 1:
        brokers = dict.fromkeys((queue.topic, queue.broker_name) for queue in queues)
        return [
            MessageQueue(topic=topic, broker_name=broker, queue_id=_ANY_QUEUE) for topic, broker in brokers
        ]
    if me not in members:
        return []
    index = members.index(me)
    if len(members) > len(queues):
        return [sorted(queues)[index % len(queues)]] if queues else []
    sharing = [members[(index + distance) % len(members)] for distance in range(others + 1)]
    return [queue for member in sharing for queue in my_share(rule, member, queues, members)]
