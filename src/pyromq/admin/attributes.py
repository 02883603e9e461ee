"""The settings of topics and groups that operators change. Each is declared here once.

The options of `mqadmin` with their reference page, and the forms, previews and tables of the console are made
from these declarations. A new setting is a field of its configuration in `protocol/requests` and a line here.
"""

from enum import Enum
from typing import Any, Final, NamedTuple

from pyromq.protocol import quotas


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
    key: str = ""
    """Its name among the `attributes` of the configuration, if it is one of them: a number as text. In
    `mqadmin` it has no separate option."""

    def of(self, config: Any) -> Any:
        """Its value in a configuration."""
        if self.key:
            return int(config.attributes.get(self.key) or self.default)
        return getattr(config, self.field)

    @property
    def flag(self) -> str:
        return self.flags.partition(" ")[0]


def _number(key: str, help: str, label: Label, default: int = 0) -> Attribute:
    name = key.replace(".", "_")
    return Attribute(name, "", help, AttributeKind.COUNT, default, form=name, label=label, key=key)


_SENDING: Final = (
    _number(
        quotas.SEND_MESSAGES,
        "How many messages may be sent to the topic in a second, on each broker. 0 is no limit.",
        Label("Messages sent a second, at most", "每秒最多发送消息数"),
    ),
    _number(
        quotas.SEND_BYTES,
        "How many bytes of bodies may be sent to the topic in a second, on each broker. 0 is no limit.",
        Label("Bytes sent a second, at most", "每秒最多发送字节数"),
    ),
)
_READING: Final = (
    _number(
        quotas.READ_MESSAGES,
        "How many messages may be read in a second, on each broker. 0 is no limit.",
        Label("Messages read a second, at most", "每秒最多读取消息数"),
    ),
    _number(
        quotas.READ_BYTES,
        "How many bytes may be read in a second, on each broker. 0 is no limit.",
        Label("Bytes read a second, at most", "每秒最多读取字节数"),
    ),
)

_KEEPING: Final = (
    _number(
        "reserve.time",
        "How many hours the topic keeps messages. 0 is no limit.",
        Label("Hours that messages are kept", "消息保留小时数"),
    ),
    _number(
        "reserve.bytes",
        "How many bytes of messages each queue of the topic keeps. 0 is no limit.",
        Label("Bytes that each queue keeps", "每个队列保留字节数"),
    ),
    _number(
        "message.ttl",
        "How many seconds after they were stored messages are still delivered. 0 is no limit.",
        Label("Seconds until messages expire", "消息过期秒数"),
    ),
)

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
    *_SENDING,
    *_READING,
    *_KEEPING,
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
    *_READING,
)


def read_changes(text: str | None) -> dict[str, str]:
    """A change of attributes, such as `+a=b,-c`: java: the sign stays on the key, and a removed key has no
    value. Raises ValueError."""
    found: dict[str, str] = {}
    for entry in filter(None, (text or "").split(",")):
        key, equals, value = entry.strip().partition("=")
        if not (key.startswith("+") and equals) and not (key.startswith("-") and not equals):
            raise ValueError(f"{entry!r}: expected +key=value or -key")
        found[key] = value
    return found


def as_changes(attributes: dict[str, str]) -> dict[str, str]:
    """A list has attributes as changes (`+name`) or, if it was exported, as they are."""
    return {name if name[:1] in ("+", "-") else f"+{name}": value for name, value in attributes.items()}
