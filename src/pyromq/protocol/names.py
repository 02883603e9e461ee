"""Names of topics and groups: which are valid, which belong to the system, which are derived from others."""

import re

AUTO_CREATE_TOPIC = "TBW102"
SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"
TIMER_TOPIC = "rmq_sys_wheel_timer"
BENCHMARK_TOPIC = "BenchmarkTest"
HALF_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC"
OP_HALF_TOPIC = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
CHECK_MAX_TIME_TOPIC = "TRANS_CHECK_MAX_TIME_TOPIC"
TRACE_TOPIC = "RMQ_SYS_TRACE_TOPIC"
DEFAULT_REGION = "DefaultRegion"
SELF_TEST_TOPIC = "SELF_TEST_TOPIC"
OFFSET_MOVED_EVENT_TOPIC = "OFFSET_MOVED_EVENT"
CHECKPOINT_TOPIC = "CHECKPOINT_TOPIC"

SYSTEM_TOPIC_PREFIX = "rmq_sys_"
SYSTEM_GROUP_PREFIX = "CID_RMQ_SYS_"
RETRY_PREFIX = "%RETRY%"
DLQ_PREFIX = "%DLQ%"
LMQ_PREFIX = "%LMQ%"
"""The prefix of light queues, whose entries point to messages of other topics."""

SYSTEM_TOPICS = frozenset(
    (
        AUTO_CREATE_TOPIC,
        SCHEDULE_TOPIC,
        BENCHMARK_TOPIC,
        HALF_TOPIC,
        OP_HALF_TOPIC,
        CHECK_MAX_TIME_TOPIC,
        TRACE_TOPIC,
        SELF_TEST_TOPIC,
        OFFSET_MOVED_EVENT_TOPIC,
        CHECKPOINT_TOPIC,
    )
)
UNSENDABLE_TOPICS = frozenset(
    (
        SCHEDULE_TOPIC,
        HALF_TOPIC,
        OP_HALF_TOPIC,
        TIMER_TOPIC,
        CHECK_MAX_TIME_TOPIC,
        SELF_TEST_TOPIC,
        OFFSET_MOVED_EVENT_TOPIC,
    )
)
"""Topics that only the broker itself may write to."""
KEPT_TOPICS = frozenset((SCHEDULE_TOPIC, HALF_TOPIC, OP_HALF_TOPIC, TIMER_TOPIC, CHECK_MAX_TIME_TOPIC))
"""Topics in which brokers keep messages of other topics until their time comes."""

TOOLS_GROUP = "TOOLS_CONSUMER"
"""java: every broker knows this group. Tools read as it, without committing offsets."""
SYSTEM_GROUPS = (
    TOOLS_GROUP,
    "FILTERSRV_CONSUMER",
    "SELF_TEST_C_GROUP",
    "CID_ONS-HTTP-PROXY",
    "CID_ONSAPI_PULL",
    "CID_ONSAPI_PERMISSION",
    "CID_ONSAPI_OWNER",
    "CID_RMQ_SYS_TRANS",
)

REVIVE_GROUP = "CID_RMQ_SYS_REVIVE_GROUP"
"""The broker reads its revive log under this name."""

MASTER_ID = 0
"""The broker id of a master; its replicas have others."""

READ, WRITE, INHERIT = 4, 2, 1
READ_WRITE = READ | WRITE
"""Permission bits of a topic or a broker."""

LITE_PREFIX = f"{LMQ_PREFIX}$"
"""The prefix of the light queues of lite topics: the parent topic, another `$` and the lite topic follow."""
MAX_LITE_TOPIC_BYTES = 64
"""Of its name, unless a front allows more."""

_ALLOWED = re.compile(r"[%|a-zA-Z0-9_-]+")
_ALLOWED_LITE = re.compile(r"[a-zA-Z0-9_-]+")
_MAX_TOPIC_CHARS = 127
_MAX_RETRY_TOPIC_CHARS = 255
_MAX_GROUP_CHARS = 120


def retry_topic(group: str) -> str:
    return RETRY_PREFIX + group


def pop_retry_topics(topic: str, group: str) -> tuple[str, str]:
    """The topics with the retries of what a group popped from a topic, by the old rule and by the new."""
    return f"{RETRY_PREFIX}{group}_{topic}", f"{RETRY_PREFIX}{group}+{topic}"


def popped_topic(topic: str, group: str) -> str:
    """The topic that a group pops from, given that one or the topic with its retries."""
    for retries in pop_retry_topics("", group):
        if topic.startswith(retries):
            return topic.removeprefix(retries)
    return topic


def revive_topic(cluster: str) -> str:
    """The topic in which the brokers of a cluster keep what is popped and not acknowledged yet."""
    return f"{SYSTEM_TOPIC_PREFIX}REVIVE_LOG_{cluster}"


def is_kept_by_brokers(topic: str) -> bool:
    """Whether brokers keep messages of all topics there, or what became of them."""
    return topic in KEPT_TOPICS or topic.startswith(revive_topic(""))


def dlq_topic(group: str) -> str:
    return DLQ_PREFIX + group


def reply_topic(cluster: str) -> str:
    return f"{cluster}_REPLY_TOPIC"


def lite_queue(parent: str, lite_topic: str) -> str:
    """The light queue of a lite topic."""
    return f"{LITE_PREFIX}{parent}${lite_topic}"


def lite_parts(light_queue: str) -> tuple[str, str] | None:
    """The parent topic and the lite topic of a light queue; None if it belongs to none."""
    if not light_queue.startswith(LITE_PREFIX):
        return None
    parent, separator, lite_topic = light_queue.removeprefix(LITE_PREFIX).partition("$")
    is_lite = parent and separator and lite_topic and "$" not in lite_topic
    return (parent, lite_topic) if is_lite else None


def lite_topic_problem(name: object, max_bytes: int = MAX_LITE_TOPIC_BYTES) -> str | None:
    """The fault in the name of a lite topic, if there is one."""
    if not isinstance(name, str):
        return f"the lite topic must be str, not {type(name).__name__}"
    if not _ALLOWED_LITE.fullmatch(name):
        return f"the lite topic {name!r} is empty or contains other characters than letters, digits, _ and -"
    if len(name) > max_bytes:
        return f"the lite topic {name!r} is longer than {max_bytes} bytes"
    return None


def is_retry_topic(topic: str) -> bool:
    return topic.startswith(RETRY_PREFIX)


def is_system_group(group: str) -> bool:
    return group.startswith(SYSTEM_GROUP_PREFIX)


def topic_problem(topic: str) -> str | None:
    """The fault in a topic's name, if there is one."""
    is_derived = str(topic).startswith((RETRY_PREFIX, DLQ_PREFIX))
    return _problem("topic", topic, _MAX_RETRY_TOPIC_CHARS if is_derived else _MAX_TOPIC_CHARS)


def group_problem(group: str) -> str | None:
    """The fault in a group's name, if there is one."""
    return _problem("group", group, _MAX_GROUP_CHARS)


def _problem(kind: str, name: object, max_chars: int) -> str | None:
    if not isinstance(name, str):  # programs without a type checker
        return f"the {kind} must be str"
    if not name.strip():
        return f"the {kind} is blank"
    if not _ALLOWED.fullmatch(name):
        return f"the {kind} {name!r} contains illegal characters; allowed are letters, digits and % | _ -"
    if len(name) > max_chars:
        return f"the {kind} {name!r} is longer than {max_chars} characters"
    return None
