"""The tables in a broker's `config` directory that are never sent as they are.

`topics.json`, `subscriptionGroup.json`, `consumerOffset.json`, `delayOffset.json`, `topicQueueMapping.json`
and `messageRequestMode.json` are sent, too; `requests/` declares them.
"""

from msgspec import field

from pyromq.protocol.body import Body, DataVersion, Int32, Int64
from pyromq.protocol.requests.offsets import ConsumerOffsetSerializeWrapper
from pyromq.protocol.requests.upkeep import Metric


class LmqConsumerOffsetTable(ConsumerOffsetSerializeWrapper):
    """`lmqConsumerOffset.json`: light queues have one offset per group."""

    lmq_offset_table: dict[str, Int64] = {}


class BloomFilterData(Body):
    """The bits of a Bloom filter that stand for one group."""

    bit_num: Int32 = 0
    bit_pos: list[Int32] | None = None


class ConsumerFilterData(Body):
    """A group's filter on a topic; `dead_time` is when the group dropped it, 0 if it is in use."""

    bloom_filter_data: BloomFilterData | None = None
    born_time: Int64 = 0
    client_version: Int64 = 0
    consumer_group: str | None = None
    dead_time: Int64 = 0
    expression: str | None = None
    expression_type: str | None = None
    topic: str | None = None


class FilterDataMapByTopic(Body):
    """The filters on one topic, by group."""

    group_filter_data: dict[str, ConsumerFilterData] = {}
    topic: str | None = None


class ConsumerFilterTable(Body):
    """`consumerFilter.json`: filters by topic."""

    filter_data_by_topic: dict[str, FilterDataMapByTopic] = {}


class OrderInfo(Body):
    """One ordered pop. The first offset is absolute, the others count from it."""

    attempt_id: str | None = field(name="a", default=None)
    commit_offset_bit: Int64 = field(name="cm", default=0)
    invisible_time: Int64 | None = field(name="i", default=None)
    last_consume_timestamp: Int64 = field(name="l", default=0)
    offset_list: list[Int64] = field(name="o", default_factory=list)
    offset_consumed_count: dict[Int64, Int32] | None = field(name="oc", default=None)
    offset_next_visible_time: dict[Int64, Int64] | None = field(name="ot", default=None)
    pop_time: Int64 = 0


class ConsumerOrderInfoTable(Body):
    """`consumerOrderInfo.json`: ordered pops by `topic@group`, then queue id."""

    table: dict[str, dict[Int32, OrderInfo]] = {}


class TransactionMetricsTable(Body):
    """`transactionMetrics`: messages that wait for their transaction, by topic."""

    data_version: DataVersion = field(default_factory=DataVersion)
    transaction_count: dict[str, Metric] = {}
