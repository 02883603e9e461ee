"""A name server and brokers over real sockets that tell a console what the test says, and count each request.

They answer as Apache's: no figures in bulk. Nothing is stored.
"""

from collections import Counter
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Self

from pyromq.protocol.body import MessageQueue
from pyromq.protocol.catalogue import BROKER, NAMESERVER, BodyAnswer, Declaration
from pyromq.protocol.requests.inspection import (
    ConsumeStats,
    ConsumeStatsList,
    GetBrokerConsumeStats,
    GetBrokerRuntimeInfo,
    OffsetWrapper,
)
from pyromq.protocol.requests.kv import KVTable
from pyromq.protocol.requests.offsets import ConsumerOffsetSerializeWrapper, GetAllConsumerOffsets
from pyromq.protocol.requests.routes import BrokerData, ClusterInfo, GetAllTopics, GetClusterInfo
from pyromq.protocol.requests.settings import GetBrokerConfig, GetBrokerConfigAnswer
from pyromq.protocol.requests.topics import (
    GetAllTopicConfigs,
    GetAllTopicConfigsAnswer,
    TopicConfig,
    TopicConfigAndMappingSerializeWrapper,
    TopicList,
    TopicListAnswer,
)
from pyromq.remoting.addresses import format_address
from pyromq.remoting.connection_group import ConnectionTerms
from pyromq.remoting.routing import Caller, Routes, handles
from pyromq.remoting.server import Server

RUNTIME = {
    "brokerVersionDesc": "V5_3_3",
    "bootTimestamp": "1700000000000",
    "putTps": "12.5 11.0 10.0",
    "getTransferredTps": "7.5 7.0 6.0",
    "commitLogDiskRatio": "0.42",
    "commitLogDirCapacity": "Total : 1.0 TiB, Free : 512.0 GiB.",
    "commitLogMinOffset": "1000",
    "commitLogMaxOffset": "5000",
    "dispatchBehindBytes": "0",
    "remainHowManyDataToFlush": "1.5 KiB",
    "earliestMessageTimeStamp": "1699990000000",
    "putLatency99": "3.0",
}
SETTINGS = "fileReservedTime=72\ndiskMaxUsedSpaceRatio=75\n"


class Counting:
    """Counts the requests that arrive at a server, by name."""

    def __init__(self) -> None:
        self.requests: Counter[str] = Counter()

    def request_handled(
        self, declaration: Declaration | None, code: int, result_code: int, seconds: float, waited: bool
    ) -> None:
        self.requests[str(code) if declaration is None else declaration.name] += 1


@dataclass
class ToldBroker:
    """One master. `read` is topic, group → queue → (end, offset)."""

    name: str
    topics: dict[str, TopicConfig] = field(default_factory=dict)
    read: dict[tuple[str, str], dict[int, tuple[int, int]]] = field(default_factory=dict)
    runtime: dict[str, str] = field(default_factory=lambda: dict(RUNTIME))
    last_ms: int = 1_699_999_000_000

    def __post_init__(self) -> None:
        self.counting = Counting()
        self.server = Server(Routes(self, serving=BROKER), ConnectionTerms(observer=self.counting))

    @property
    def address(self) -> str:
        return format_address(*self.server.address)

    def add_topic(self, name: str, queues: int = 2) -> None:
        self.topics[name] = TopicConfig(topic_name=name, read_queue_nums=queues, write_queue_nums=queues)

    @handles(GetBrokerRuntimeInfo)
    def _runtime(self, request: GetBrokerRuntimeInfo, caller: Caller) -> BodyAnswer[KVTable]:
        return BodyAnswer(body=KVTable(table=self.runtime))

    @handles(GetBrokerConfig)
    def _config(self, request: GetBrokerConfig, caller: Caller) -> GetBrokerConfigAnswer:
        return GetBrokerConfigAnswer(version="{}", body=SETTINGS)

    @handles(GetAllTopicConfigs)
    def _topics(self, request: GetAllTopicConfigs, caller: Caller) -> GetAllTopicConfigsAnswer:
        return GetAllTopicConfigsAnswer(
            body=TopicConfigAndMappingSerializeWrapper(topic_config_table=self.topics)
        )

    @handles(GetAllConsumerOffsets)
    def _offsets(
        self, request: GetAllConsumerOffsets, caller: Caller
    ) -> BodyAnswer[ConsumerOffsetSerializeWrapper]:
        return BodyAnswer(
            body=ConsumerOffsetSerializeWrapper(
                offset_table={
                    f"{topic}@{group}": {queue_id: offset for queue_id, (_, offset) in queues.items()}
                    for (topic, group), queues in self.read.items()
                }
            )
        )

    @handles(GetBrokerConsumeStats)
    def _lags(self, request: GetBrokerConsumeStats, caller: Caller) -> BodyAnswer[ConsumeStatsList]:
        groups: dict[str, list[ConsumeStats]] = {}
        for (topic, group), queues in self.read.items():
            table = {
                MessageQueue(topic, self.name, queue_id): OffsetWrapper(
                    broker_offset=end, consumer_offset=offset, last_timestamp=self.last_ms
                )
                for queue_id, (end, offset) in queues.items()
            }
            groups.setdefault(group, []).append(ConsumeStats(offset_table=table))
        return BodyAnswer(
            body=ConsumeStatsList(consume_stats_list=[{group: each} for group, each in groups.items()])
        )


class ToldCluster:
    """`async with ToldCluster(broker, …) as cluster: cluster.namesrv`."""

    def __init__(self, *brokers: ToldBroker) -> None:
        self.brokers = list(brokers)
        self.counting = Counting()
        self._server = Server(Routes(self, serving=NAMESERVER), ConnectionTerms(observer=self.counting))
        self._running = AsyncExitStack()

    @property
    def namesrv(self) -> str:
        return format_address(*self._server.address)

    @property
    def requests(self) -> Counter[str]:
        """All requests at the wire so far, at all servers."""
        return sum((each.counting.requests for each in self.brokers), Counter(self.counting.requests))

    async def __aenter__(self) -> Self:
        for server in (self._server, *(each.server for each in self.brokers)):
            await server.start("127.0.0.1", 0)
            self._running.push_async_callback(server.stop, grace_s=0)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._running.aclose()

    @handles(GetClusterInfo)
    def _info(self, request: GetClusterInfo, caller: Caller) -> BodyAnswer[ClusterInfo]:
        return BodyAnswer(
            body=ClusterInfo(
                broker_addr_table={
                    each.name: BrokerData(
                        cluster="told", broker_name=each.name, broker_addrs={0: each.address}
                    )
                    for each in self.brokers
                },
                cluster_addr_table={"told": [each.name for each in self.brokers]},
            )
        )

    @handles(GetAllTopics)
    def _all_topics(self, request: GetAllTopics, caller: Caller) -> TopicListAnswer:
        names = sorted({name for each in self.brokers for name in each.topics})
        return TopicListAnswer(body=TopicList(topic_list=names))
