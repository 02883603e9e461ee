"""Subscription groups as brokers configure them."""

from enum import StrEnum

from msgspec import field

from pyromq.protocol.bodies.body import Body, Int32, Int64
from pyromq.protocol.bodies.versions import DataVersion


class GroupRetryPolicyType(StrEnum):
    EXPONENTIAL = "EXPONENTIAL"
    CUSTOMIZED = "CUSTOMIZED"


def _delays_of_the_levels() -> list[int]:
    seconds = [1, 5, 10, 30, *(60 * minutes for minutes in (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 20, 30, 60, 120))]
    return [second * 1000 for second in seconds]


class CustomizedRetryPolicy(Body):
    """The wait before each further attempt, in milliseconds."""

    next: list[Int64] = field(default_factory=_delays_of_the_levels)


class ExponentialRetryPolicy(Body):
    """A wait that grows by a factor up to a limit, in milliseconds."""

    initial: Int64 = 5_000
    max: Int64 = 7_200_000
    multiplier: Int64 = 2


class GroupRetryPolicy(Body):
    """The delays between retries of a group."""

    customized_retry_policy: CustomizedRetryPolicy | None = None
    exponential_retry_policy: ExponentialRetryPolicy | None = None
    type: GroupRetryPolicyType = GroupRetryPolicyType.CUSTOMIZED


class SimpleSubscriptionData(Body):
    """A subscription that is fixed in the group's configuration."""

    expression: str | None = None
    expression_type: str | None = None
    topic: str | None = None
    version: Int64 = 0


class SubscriptionGroupConfig(Body):
    """One consumer group on one broker."""

    attributes: dict[str, str] = {}
    broker_id: Int64 = 0
    consume_broadcast_enable: bool = True
    consume_enable: bool = True
    consume_from_min_enable: bool = True
    consume_message_orderly: bool = False
    consume_timeout_minute: Int32 = 15
    group_name: str
    group_retry_policy: GroupRetryPolicy = field(default_factory=GroupRetryPolicy)
    group_sys_flag: Int32 = 0
    notify_consumer_ids_changed_enable: bool = True
    retry_max_times: Int32 = 16
    retry_queue_nums: Int32 = 1
    subscription_data_set: list[SimpleSubscriptionData] | None = None
    which_broker_when_consume_slowly: Int64 = 1


class SubscriptionGroupList(Body):
    """Groups to create or change in one request."""

    group_config_list: list[SubscriptionGroupConfig] = []


class SubscriptionGroupWrapper(Body):
    """Every group of a broker by name, as brokers send it and keep it in `subscriptionGroup.json`."""

    data_version: DataVersion = field(default_factory=DataVersion)
    forbidden_table: dict[str, dict[str, Int32]] = {}
    subscription_group_table: dict[str, SubscriptionGroupConfig] = {}


class GroupForbidden(Body):
    """Whether a group may read a topic."""

    group: str | None = None
    readable: bool | None = None
    topic: str | None = None


class GroupList(Body):
    """Names of groups."""

    group_list: list[str] = []


class GetConsumerListByGroupResponseBody(Body):
    """The client ids of the members of a consumer group."""

    consumer_id_list: list[str] = []
