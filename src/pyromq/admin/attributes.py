"""The settings of topics and groups that operators change. Each is declared here once.

The options of `mqadmin` with their reference page, and the forms, previews and tables of the console are made
from these declarations. A new setting is a field of its configuration in `protocol/requests` and a line here.
"""

from enum import Enum
from typing import Any, Final, NamedTuple


class AttributeKind(Enum):
    SWITCH = "true or false"
    COUNT = "0 or more"
    NUMBER = "any number"
    PERMISSION = "the bits of a permission"
    RETRY_POLICY = "a policy in JSON"


class Label(NamedTuple):
    """The name of a setting in the languages of the console."""

    en: str
    zh: str


class Attribute(NamedTuple):
    field: str
    """The field of the configuration."""
    flags: str
    """The option of `mqadmin`."""
    help: str
    kind: AttributeKind
    default: Any
    option_default: Any = None
    """java: what Apache's tool sets without the option, where that is not the default."""
    form: str = ""
    """The field of the console's form; without one the console keeps the setting as it is."""
    label: Label | None = None
    same_as: str = ""
    """The field whose value it has where the form leaves it out."""

    @property
    def flag(self) -> str:
        return self.flags.partition(" ")[0]


PERMISSIONS: Final = {"rw": 6, "r": 4, "w": 2}

TOPIC: Final = (
    Attribute(
        "write_queue_nums",
        "-w --writeQueueNums",
        "The number of queues to write.",
        AttributeKind.COUNT,
        8,
        form="queues",
        label=Label("Queues per broker", "每个 Broker 的队列数"),
    ),
    Attribute(
        "read_queue_nums",
        "-r --readQueueNums",
        "The number of queues to read.",
        AttributeKind.COUNT,
        8,
        form="read_queues",
        label=Label("Read queues", "可读队列数"),
        same_as="write_queue_nums",
    ),
    Attribute(
        "perm",
        "-p --perm",
        "2 allows writing, 4 reading, 6 both.",
        AttributeKind.PERMISSION,
        6,
        form="permission",
        label=Label("Permission", "权限"),
    ),
    Attribute(
        "order",
        "-o --order",
        "Whether the topic is ordered.",
        AttributeKind.SWITCH,
        False,
        form="ordered",
        label=Label("Ordered", "顺序"),
    ),
)

GROUP: Final = (
    Attribute(
        "consume_enable",
        "-s --consumeEnable",
        "Whether the group may consume.",
        AttributeKind.SWITCH,
        True,
        form="may_consume",
        label=Label("Consumption allowed", "允许消费"),
    ),
    Attribute(
        "consume_from_min_enable",
        "-m --consumeFromMinEnable",
        "Whether a new group starts at the first message.",
        AttributeKind.SWITCH,
        True,
        option_default=False,
    ),
    Attribute(
        "consume_broadcast_enable",
        "-d --consumeBroadcastEnable",
        "Whether the group may broadcast.",
        AttributeKind.SWITCH,
        True,
        option_default=False,
        form="may_broadcast",
        label=Label("Broadcasting allowed", "允许广播"),
    ),
    Attribute(
        "consume_message_orderly",
        "-o --consumeMessageOrderly",
        "Whether the group consumes in order.",
        AttributeKind.SWITCH,
        False,
        form="ordered",
        label=Label("Ordered", "顺序"),
    ),
    Attribute(
        "retry_queue_nums",
        "-q --retryQueueNums",
        "The number of retry queues.",
        AttributeKind.COUNT,
        1,
        form="retry_queues",
        label=Label("Retry queues", "重试队列数"),
    ),
    Attribute(
        "retry_max_times",
        "-r --retryMaxTimes",
        "How often a message is retried before it becomes a dead letter.",
        AttributeKind.NUMBER,
        16,
        form="max_retries",
        label=Label("Retries before dead letter", "成为死信前的重试次数"),
    ),
    Attribute(
        "group_retry_policy",
        "-p --groupRetryPolicy",
        'The delays between retries: {"type":"EXPONENTIAL","exponentialRetryPolicy":'
        '{"initial":5000,"max":7200000,"multiplier":2}} or'
        ' {"type":"CUSTOMIZED","customizedRetryPolicy":{"next":[1000,5000,10000]}}',
        AttributeKind.RETRY_POLICY,
        None,
    ),
    Attribute("broker_id", "-i --brokerId", "The id of the broker to read from.", AttributeKind.COUNT, 0),
    Attribute(
        "which_broker_when_consume_slowly",
        "-w --whichBrokerWhenConsumeSlowly",
        "The id of the broker to read from when the first one is slow.",
        AttributeKind.COUNT,
        1,
    ),
    Attribute(
        "notify_consumer_ids_changed_enable",
        "-a --notifyConsumerIdsChanged",
        "Whether members are notified when others join or leave.",
        AttributeKind.SWITCH,
        True,
    ),
)


def as_changes(attributes: dict[str, str]) -> dict[str, str]:
    """A list has attributes as changes (`+name`) or, if it was exported, as they are."""
    return {name if name[:1] in ("+", "-") else f"+{name}": value for name, value in attributes.items()}
