"""The state of a cluster at one moment: frozen values, safe to share between all viewers.

None means that no server has reported the figure; it is never shown as 0. `LastAnswer` says when a part was
reported, and why the latest question was not answered.
Values that there are thousands of are structs, which the garbage
collector does not have to look at.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType

import msgspec

from pyromq.console.watch.forecast import FullDisk, LagForecast, LossClock


class LastAnswer(msgspec.Struct, frozen=True, gc=False):
    """When a server last answered a kind of question, and the failure of the latest one, if it failed."""

    at_ms: int | None = None
    problem: str = ""

    @property
    def is_answering(self) -> bool:
        return self.at_ms is not None and not self.problem

    def age_ms(self, now_ms: int) -> int | None:
        return None if self.at_ms is None else max(0, now_ms - self.at_ms)


class BrokerKind(StrEnum):
    """How much a broker reports."""

    PYROMQ = "pyromq"
    """Everything at once, and only changes: lists are a few seconds old."""
    APACHE = "apache"
    """No bulk figures: lags are up to a minute old, topics without readers have no rate, and the members of
    groups are unknown."""
    UNKNOWN = "unknown"
    """It has not answered yet."""


@dataclass(frozen=True, slots=True)
class StoreHealth:
    """Reported by brokers of PyroMQ only. `fault` is why the store accepts no messages, empty if it does."""

    fault: str
    retention_hours: int
    clean_at_ratio: float
    """Expired files are deleted at any hour above this disk usage."""
    refuse_at_ratio: float
    """Messages are refused above this disk usage."""
    segments: int
    queues: int
    index_files: int
    recovered: str


@dataclass(frozen=True, slots=True)
class BrokerView:
    """One broker process. `told` is about its figures, `lists_told` about topics and groups."""

    cluster: str
    name: str
    broker_id: int
    address: str
    is_master: bool
    source: BrokerKind = BrokerKind.UNKNOWN
    told: LastAnswer = field(default_factory=LastAnswer)
    lists_told: LastAnswer = field(default_factory=LastAnswer)
    version: str = ""
    started_ms: int | None = None
    in_per_s: float | None = None
    out_per_s: float | None = None
    disk_ratio: float | None = None
    disk_total_bytes: int | None = None
    disk_free_bytes: int | None = None
    flush_behind_bytes: int | None = None
    dispatch_behind_bytes: int | None = None
    log_bytes: int | None = None
    oldest_ms: int | None = None
    """When its oldest message was stored."""
    put_latency_99_ms: float | None = None
    topics: int | None = None
    is_drained: bool | None = None
    """Producers must not write to it: brokerPermission."""
    readiness_problem: str | None = None
    """Why clients should not rely on it now; empty if it is ready."""
    store: StoreHealth | None = None
    full: FullDisk | None = None

    @property
    def key(self) -> str:
        """Unique in a snapshot, and stable while the broker runs: `name/id`."""
        return f"{self.name}/{self.broker_id}"


@dataclass(frozen=True, slots=True)
class GoneBroker:
    """A broker that was registered, and is not any more: it was killed, cut off, or stopped."""

    cluster: str
    name: str
    broker_id: int
    address: str
    since_ms: int
    told_ms: int | None
    """When it last answered."""

    @property
    def key(self) -> str:
        return f"{self.name}/{self.broker_id}"


class TopicView(msgspec.Struct, frozen=True, gc=False):
    """A topic, over all its brokers. `kind` is its message type (`NORMAL`, `FIFO`, …), UNSPECIFIED without
    one; `perm` is the union of the permissions on its brokers."""

    name: str
    kind: str
    is_system: bool
    brokers: tuple[str, ...]
    read_queues: int
    write_queues: int
    perm: int
    in_per_s: float | None = None
    out_per_s: float | None = None
    messages: int | None = None
    """How many its queues hold now."""
    worst_lag: int | None = None
    worst_group: str | None = None
    groups: tuple[str, ...] = ()
    trend: tuple[float, ...] = ()
    """Messages in per second, oldest first; only of busy and of open topics."""
    told: LastAnswer = LastAnswer()
    is_derived: bool = False
    """The retries or dead letters of a group."""

    @property
    def queues(self) -> int:
        return max(self.read_queues, self.write_queues)


class GroupState(StrEnum):
    READING = "reading"
    EMPTY = "empty"
    """No member is online."""
    BALANCING = "balancing"
    """Its members have just changed."""
    STUCK = "stuck"
    """It has members and lag, and no offset has moved for two minutes."""
    UNKNOWN = "unknown"


class GroupTopicView(msgspec.Struct, frozen=True, gc=False):
    """A group in one topic. `lost` counts messages that were deleted before the group read them."""

    topic: str
    lag: int
    oldest_unread_ms: int | None
    out_per_s: float | None
    lost: int | None


class GroupView(msgspec.Struct, frozen=True, gc=False):
    """A consumer group, over all topics and brokers. `topics` is sorted by lag, the worst first; its retries
    are one of them."""

    name: str
    is_system: bool
    state: GroupState
    lag: int | None
    oldest_unread_ms: int | None
    """When its oldest unread message was stored; with Apache's brokers, when the last read one was."""
    members: int | None
    is_broadcasting: bool | None
    out_per_s: float | None
    topics: tuple[GroupTopicView, ...]
    lost: int | None
    dead_letters: int | None
    forecast: LagForecast | None = None
    loss: LossClock | None = None
    trend: tuple[float, ...] = ()
    """Its lag, oldest first."""
    told: LastAnswer = LastAnswer()

    def age_ms(self, now_ms: int) -> int | None:
        """Lag as time: the age of the oldest unread message."""
        return None if self.oldest_unread_ms is None else max(0, now_ms - self.oldest_unread_ms)


@dataclass(frozen=True, slots=True)
class NameServerView:
    address: str
    told: LastAnswer = field(default_factory=LastAnswer)
    brokers: int | None = None
    topics: int | None = None
    differs: tuple[str, ...] = ()
    """Names of brokers that it knows differently from the other name servers."""


@dataclass(frozen=True, slots=True)
class ControlledGroup:
    """A broker group as its controller knows it; `master` is None if it has none, `undecided` says why."""

    name: str
    master: int | None
    epoch: int
    in_sync: tuple[int, ...]
    not_in_sync: tuple[int, ...]
    undecided: str


@dataclass(frozen=True, slots=True)
class ControllerView:
    """`groups` is None unless it leads and has reported them; those it does not know are missing."""

    address: str
    told: LastAnswer = field(default_factory=LastAnswer)
    is_leader: bool | None = None
    groups: tuple[ControlledGroup, ...] | None = None


class Severity(StrEnum):
    ALARM = "alarm"
    WARNING = "warning"
    NOTE = "note"


@dataclass(frozen=True, slots=True)
class Problem:
    """A standing problem. `kind` names its text, in which `values` are inserted; `about` and `name` lead to
    its page."""

    kind: str
    severity: Severity
    about: str
    """`broker`, `nameserver`, `controller`, `group` or `topic`."""
    name: str
    values: Mapping[str, str | int | float] = field(default_factory=lambda: MappingProxyType({}))
    since_ms: int = 0


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A cluster at `at_ms`. `version` grows with each snapshot of a watch. Topics and groups are in the order
    of their names."""

    at_ms: int = 0
    version: int = 0
    brokers: tuple[BrokerView, ...] = ()
    gone: tuple[GoneBroker, ...] = ()
    topics: Mapping[str, TopicView] = field(default_factory=lambda: MappingProxyType({}))
    groups: Mapping[str, GroupView] = field(default_factory=lambda: MappingProxyType({}))
    name_servers: tuple[NameServerView, ...] = ()
    controllers: tuple[ControllerView, ...] = ()
    problems: tuple[Problem, ...] = ()
    in_per_s: float | None = None
    out_per_s: float | None = None

    @property
    def is_first(self) -> bool:
        """No server has answered yet: pages say that they wait, and show no empty tables."""
        return self.version == 0

    @property
    def silent(self) -> tuple[BrokerView, ...]:
        """The brokers whose latest question was not answered; their part of the lists is old, or missing."""
        return tuple(each for each in self.brokers if each.told.problem or each.lists_told.problem)

    @property
    def unknown(self) -> tuple[str, ...]:
        """Brokers that have not reported whether they are ready (Apache's never do): they may have
        problems."""
        return tuple(each.key for each in self.brokers if each.readiness_problem is None)

    def broker(self, key: str) -> BrokerView | None:
        return next((each for each in self.brokers if each.key == key), None)
