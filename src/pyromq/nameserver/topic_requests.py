"""Answers requests for lists of topics and brokers, and changes topics for administrators."""

from pyromq.config.live import LiveSettings
from pyromq.errors import Refused
from pyromq.nameserver.consequences import Consequences
from pyromq.nameserver.queue_layouts import QueueShape
from pyromq.nameserver.route_table import RouteTable
from pyromq.nameserver.settings import NameServerSettings
from pyromq.protocol.catalogue import BodyAnswer, RawAnswer
from pyromq.protocol.codes import ResponseCode
from pyromq.protocol.requests.routes import (
    ClusterInfo,
    DeleteTopicFromNameServer,
    GetAllTopics,
    GetClusterInfo,
    GetRouteDigests,
    GetSystemTopicsFromNameServer,
    GetTopicsOfCluster,
    GetUnitSubscribedSharedTopics,
    GetUnitSubscribedTopics,
    GetUnitTopics,
    RegisterTopic,
    RouteDigests,
)
from pyromq.protocol.requests.topics import TopicList, TopicListAnswer
from pyromq.remoting.long_answers import written
from pyromq.remoting.routing import Caller, handles
from pyromq.remoting.slices import Slices


class TopicRequests:
    def __init__(
        self,
        table: RouteTable,
        consequences: Consequences,
        settings: LiveSettings[NameServerSettings],
        slices: Slices,
    ) -> None:
        self._table = table
        self._consequences = consequences
        self._settings = settings
        self._slices = slices

    def __repr__(self) -> str:
        return f"<TopicRequests {self._table!r}>"

    @handles(GetClusterInfo)
    def cluster_info(self, request: GetClusterInfo, caller: Caller) -> BodyAnswer[ClusterInfo]:
        return BodyAnswer(body=self._table.cluster_info())

    @handles(GetAllTopics)
    async def all_topics(self, request: GetAllTopics, caller: Caller) -> RawAnswer:
        if not self._settings.now.enable_all_topic_list:
            raise _disabled()
        return await _written(self._table.all_topics())

    @handles(GetRouteDigests)
    async def route_digests(self, request: GetRouteDigests, caller: Caller) -> RawAnswer:
        if not self._settings.now.enable_all_topic_list:
            raise _disabled()
        body = RouteDigests()
        async for layout in self._slices.spread(self._table.layouts()):
            body.digests.update(self._table.digests(layout))
        return await written(body, len(body.digests))

    @handles(GetTopicsOfCluster)
    async def topics_of_cluster(self, request: GetTopicsOfCluster, caller: Caller) -> RawAnswer:
        self._check_lists_are_allowed()
        return await _written(self._table.topics_of_cluster(request.cluster))

    @handles(GetSystemTopicsFromNameServer)
    def system_topics(self, request: GetSystemTopicsFromNameServer, caller: Caller) -> TopicListAnswer:
        return TopicListAnswer(body=self._table.system_topics())

    @handles(GetUnitTopics)
    async def unit_topics(self, request: GetUnitTopics, caller: Caller) -> RawAnswer:
        return await self._unit_list(self._table.unit_topics())

    @handles(GetUnitSubscribedTopics)
    async def unit_subscribed_topics(self, request: GetUnitSubscribedTopics, caller: Caller) -> RawAnswer:
        return await self._unit_list(self._table.unit_subscribed_topics())

    @handles(GetUnitSubscribedSharedTopics)
    async def unit_subscribed_shared_topics(
        self, request: GetUnitSubscribedSharedTopics, caller: Caller
    ) -> RawAnswer:
        return await self._unit_list(self._table.unit_subscribed_shared_topics())

    @handles(RegisterTopic)
    def register_topic(self, request: RegisterTopic, caller: Caller) -> None:
        shapes = [
            (
                each.broker_name,
                QueueShape(each.read_queue_nums, each.write_queue_nums, each.perm, each.topic_sys_flag),
            )
            for each in request.body.queue_datas
        ]
        limit = self._settings.now.max_queues_per_topic
        for broker, shape in shapes:
            if not 0 <= shape.min_queues <= shape.max_queues <= limit:
                raise Refused(
                    ResponseCode.SYSTEM_ERROR,
                    f"topic {request.topic} on {broker}: {shape.read_queues} read and {shape.write_queues} "
                    f"write queues; 0 to {limit} are allowed",
                )
        self._consequences.act(self._table.register_topic(request.topic, shapes))

    @handles(DeleteTopicFromNameServer)
    def delete_topic(self, request: DeleteTopicFromNameServer, caller: Caller) -> None:
        self._consequences.act(self._table.delete_topic(request.topic, request.cluster_name))

    async def _unit_list(self, topics: TopicList) -> RawAnswer:
        self._check_lists_are_allowed()
        return await _written(topics)

    def _check_lists_are_allowed(self) -> None:
        if not self._settings.now.enable_topic_list:
            raise _disabled()


async def _written(topics: TopicList) -> RawAnswer:
    return await written(topics, len(topics.topic_list))


def _disabled() -> Refused:
    # java: the remark is this one word
    return Refused(ResponseCode.SYSTEM_ERROR, "disable")
