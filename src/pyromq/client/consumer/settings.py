"""What can be chosen about consumers; the defaults are those of Java's clients."""

from dataclasses import dataclass, fields
from datetime import datetime
from pathlib import Path
from typing import Any

from pyromq.client.consumer.group.assignment import Assignment, Average
from pyromq.client.consumer.reading.in_flight import Thresholds
from pyromq.client.consumer.reading.offsets import StartFrom
from pyromq.client.settings import ClientOptions
from pyromq.errors import ConfigError
from pyromq.protocol.names import TRACE_TOPIC, group_problem

_MIB = 1024 * 1024

AVERAGE = Average()


def _check(settings: Any, limits: dict[str, tuple[float, float]]) -> None:
    for name, (low, high) in limits.items():
        value = getattr(settings, name)
        if value is not None and not isinstance(value, int | float):
            raise ConfigError(name, repr(value), f"a number from {low} to {high}")
        if value is not None and not low <= value <= high:
            raise ConfigError(name, value, f"a number from {low} to {high}")


def check_group(group: str) -> None:
    problem = group_problem(group)
    if problem is None and group == "DEFAULT_CONSUMER":
        problem = "the name is reserved"  # java: clients refuse it
    if problem is not None:
        raise ConfigError("group", group, f"another name: {problem}")


def _check_start(start_from: StartFrom) -> None:
    if not isinstance(start_from, datetime) and start_from not in ("first", "last"):
        raise ConfigError("start_from", start_from, '"first", "last" or a datetime')


@dataclass(frozen=True, slots=True, kw_only=True)
class PushSettings:
    broadcast: bool = False
    """Every member gets every message, instead of one member each; there are no retries then."""

    ordered: bool = False
    """The messages of a queue are handled one after the other, in their order."""

    start_from: StartFrom = "last"
    """Where to start in queues that the group has never read: "first", "last" or a datetime."""

    assignment: Assignment = AVERAGE
    """How members divide the queues; all members of a group must have the same."""

    concurrency: int = 20
    """How many handlers may run at a time: threads for plain functions, tasks for async ones."""

    batch_size: int | None = None
    """Handlers get lists of up to so many messages; None: one message at a time."""

    max_retries: int | None = None
    """How often a failed message comes again before it goes to the dead letters. None: as often as the
    settings of the group say, which is 16 times unless changed; for ever if `ordered`."""

    suspend_s: float = 1.0
    """If `ordered`: how long a queue waits after a failure."""

    handler_timeout_s: float = 900.0
    """Messages whose handler takes longer are given back to their broker."""

    stop_grace_s: float = 30.0
    """How long a stop waits for handlers at work."""

    pull_batch_size: int = 32
    """The most messages of one pull."""

    pull_batch_bytes: int = 256 * 1024
    """The most bytes of one pull; a message that is larger comes alone."""

    pull_interval_s: float = 0.0
    """A pause after each pull that found something."""

    queue_messages: int = 1000
    """Pulling from a queue pauses while more of its messages wait here."""

    queue_bytes: int = 100 * _MIB
    """Pulling from a queue pauses while more bytes of it wait here."""

    queue_span: int = 2000
    """Pulling from a queue pauses while its first and last message here are further apart; not if ordered."""

    topic_messages: int | None = None
    """Divided by the number of queues it replaces `queue_messages`."""

    topic_bytes: int | None = None
    """Divided by the number of queues it replaces `queue_bytes`."""

    trace: bool = False
    """Whether to report every message to the trace topic."""

    trace_topic: str = TRACE_TOPIC
    """The topic that reports go to."""

    commit_interval_s: float = 5.0
    """How often offsets are stored, apart from those that travel with pulls."""

    rebalance_interval_s: float = 20.0
    """How often queues are divided anew though nothing seems to have changed."""

    offset_directory: Path | None = None
    """Where broadcasting members keep their offsets; None: `.rocketmq_offsets` in the home directory."""

    def __post_init__(self) -> None:
        _check_start(self.start_from)
        _check(
            self,
            {
                "concurrency": (1, 1000),
                "batch_size": (1, 1024),
                "max_retries": (0, 2**31 - 1),
                "suspend_s": (0.01, 30),
                "handler_timeout_s": (0.001, 10**9),
                "stop_grace_s": (0, 10**9),
                "pull_batch_size": (1, 1024),
                "pull_batch_bytes": (1, 2**31 - 1),
                "pull_interval_s": (0, 65.535),
                "queue_messages": (1, 65_535),
                "queue_bytes": (1, 1024 * _MIB),
                "queue_span": (1, 65_535),
                "topic_messages": (1, 6_553_500),
                "topic_bytes": (1, 102_400 * _MIB),
                "commit_interval_s": (0.001, 10**9),
                "rebalance_interval_s": (0.001, 10**9),
            },
        )

    @property
    def thresholds(self) -> Thresholds:
        return Thresholds(self.queue_messages, self.queue_bytes, None if self.ordered else self.queue_span)


class PushOptions(ClientOptions, total=False):
    """The fields of PushSettings and of ClientSettings; their meaning is told there."""

    broadcast: bool
    ordered: bool
    start_from: StartFrom
    assignment: Assignment
    concurrency: int
    batch_size: int | None
    max_retries: int | None
    suspend_s: float
    handler_timeout_s: float
    stop_grace_s: float
    pull_batch_size: int
    pull_batch_bytes: int
    pull_interval_s: float
    queue_messages: int
    queue_bytes: int
    queue_span: int
    topic_messages: int | None
    topic_bytes: int | None
    trace: bool
    trace_topic: str
    commit_interval_s: float
    rebalance_interval_s: float
    offset_directory: Path | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PullSettings:
    broadcast: bool = False
    """Every member reads all queues, and keeps its offsets in a file of its own."""

    start_from: StartFrom = "last"
    """Where to start in queues that the group has never read: "first", "last" or a datetime."""

    assignment: Assignment = AVERAGE
    """How members divide the queues of what they subscribe to."""

    auto_commit: bool = True
    """What `poll` returned counts as done when it is called again, and is committed now and then."""

    auto_commit_interval_s: float = 5.0
    """How often."""

    pull_batch_size: int = 10
    """The most messages of one pull."""

    pull_batch_bytes: int = 256 * 1024
    """The most bytes of one pull; a message that is larger comes alone."""

    all_messages: int = 10_000
    """Pulling pauses while more messages of all queues wait here."""

    queue_messages: int = 1000
    """Pulling from a queue pauses while more of its messages wait here."""

    queue_bytes: int = 100 * _MIB
    """Pulling from a queue pauses while more bytes of it wait here."""

    rebalance_interval_s: float = 20.0
    """How often queues are divided anew though nothing seems to have changed."""

    offset_directory: Path | None = None
    """Where broadcasting members keep their offsets; None: `.rocketmq_offsets` in the home directory."""

    def __post_init__(self) -> None:
        _check_start(self.start_from)
        _check(
            self,
            {
                "auto_commit_interval_s": (1, 10**9),
                "pull_batch_size": (1, 1024),
                "pull_batch_bytes": (1, 2**31 - 1),
                "all_messages": (1, 10**9),
                "queue_messages": (1, 65_535),
                "queue_bytes": (1, 1024 * _MIB),
                "rebalance_interval_s": (0.001, 10**9),
            },
        )

    @property
    def thresholds(self) -> Thresholds:
        return Thresholds(self.queue_messages, self.queue_bytes, None)


class PullOptions(ClientOptions, total=False):
    """The fields of PullSettings and of ClientSettings; their meaning is told there."""

    broadcast: bool
    start_from: StartFrom
    assignment: Assignment
    auto_commit: bool
    auto_commit_interval_s: float
    pull_batch_size: int
    pull_batch_bytes: int
    all_messages: int
    queue_messages: int
    queue_bytes: int
    rebalance_interval_s: float
    offset_directory: Path | None


def split_options(options: dict[str, Any], of: type[Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The options that are fields of the settings `of`, and the rest."""
    own = {field.name for field in fields(of)}
    return (
        {name: value for name, value in options.items() if name in own},
        {name: value for name, value in options.items() if name not in own},
    )
