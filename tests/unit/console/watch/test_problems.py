"""Standing problems: what is found, in which order, and since when."""

from dataclasses import replace

from msgspec import structs

from pyromq.console.watch.forecast import FullDisk, LossClock
from pyromq.console.watch.problems import (
    KINDS,
    Standing,
    of_brokers,
    of_controllers,
    of_group,
    of_name_servers,
    worst_first,
)
from pyromq.console.watch.values import (
    BrokerView,
    ControlledGroup,
    ControllerView,
    GroupState,
    GroupView,
    LastAnswer,
    NameServerView,
    Severity,
    StoreHealth,
)

NOW_MS = 1_700_000_000_000
BROKER = BrokerView(
    "c", "a", 0, "h:1", is_master=True, told=LastAnswer(NOW_MS), lists_told=LastAnswer(NOW_MS)
)
GROUP = GroupView(
    name="g",
    is_system=False,
    state=GroupState.READING,
    lag=0,
    oldest_unread_ms=None,
    members=1,
    is_broadcasting=False,
    out_per_s=0.0,
    topics=(),
    lost=0,
    dead_letters=0,
)
HEALTH = StoreHealth("", 72, 0.75, 0.9, 1, 1, 1, "")


def kinds_of_broker(**changes: object) -> list[str]:
    return [each.kind for each in of_brokers([replace(BROKER, **changes)])]  # type: ignore[arg-type]


def kinds_of_group(**changes: object) -> list[str]:
    return [each.kind for each in of_group(structs.replace(GROUP, **changes), NOW_MS)]


def test_a_sound_cluster_has_no_problems() -> None:
    assert not kinds_of_broker()
    assert not kinds_of_group()
    assert not list(of_name_servers([NameServerView("h:1", LastAnswer(NOW_MS))]))


def test_each_problem_of_a_broker_is_found() -> None:
    assert kinds_of_broker(told=LastAnswer(1, "no answer")) == ["broker-silent"]
    assert kinds_of_broker(lists_told=LastAnswer(1, "no right")) == ["broker-refuses-lists"]
    assert kinds_of_broker(readiness_problem="no controller knows it") == ["broker-not-ready"]
    assert kinds_of_broker(is_master=False, broker_id=1) == ["broker-without-master"]
    assert kinds_of_broker(store=replace(HEALTH, fault="the disk is full")) == ["store-fault"]
    assert kinds_of_broker(dispatch_behind_bytes=1 << 30) == ["dispatch-behind"]
    assert kinds_of_broker(disk_ratio=0.7, full=FullDisk(NOW_MS + 1, 0.75, False)) == ["disk-full-soon"]
    assert kinds_of_broker(disk_ratio=0.8, full=FullDisk(NOW_MS, 0.75, False)) == ["disk-over-limit"]
    assert kinds_of_broker(disk_ratio=0.7, full=FullDisk(NOW_MS + 1, 0.75, True)) == []


def test_each_problem_of_a_group_is_found() -> None:
    assert kinds_of_group(lost=3) == ["group-lost"]
    assert kinds_of_group(state=GroupState.STUCK, lag=5) == ["group-stuck"]
    assert kinds_of_group(state=GroupState.EMPTY, lag=5) == ["group-unread"]
    assert kinds_of_group(state=GroupState.EMPTY, lag=0) == []
    assert kinds_of_group(loss=LossClock(NOW_MS + 3_600_000, False)) == ["group-loses-soon"]
    assert kinds_of_group(loss=LossClock(NOW_MS + 3_600_000, True)) == []
    assert kinds_of_group(loss=LossClock(NOW_MS + 48 * 3_600_000, False)) == []
    assert kinds_of_group(lost=3, is_system=True) == []


def test_name_servers_that_are_silent_or_differ_are_found() -> None:
    views = [
        NameServerView("h:1", LastAnswer(1, "no answer")),
        NameServerView("h:2", LastAnswer(1), differs=("a",)),
    ]
    assert [each.kind for each in of_name_servers(views)] == ["nameserver-silent", "nameserver-differs"]


def test_controllers_that_are_silent_or_do_not_know_a_group_are_found() -> None:
    def kinds(*views: ControllerView) -> list[str]:
        return [each.kind for each in of_controllers(views, ["a"])]

    leader = ControllerView("h:1", LastAnswer(1), True, (ControlledGroup("a", 1, 1, (1, 2), (), ""),))
    follower = ControllerView("h:2", LastAnswer(1), False)
    assert kinds() == []
    assert kinds(leader, follower) == []
    assert kinds(ControllerView("h:1")) == [], "it has not been asked yet"
    assert kinds(follower) == ["controller-none-leads"]
    assert kinds(leader, replace(follower, told=LastAnswer(1, "no answer"))) == ["controller-silent"]
    assert kinds(replace(leader, groups=())) == ["controller-unknown-group"]
    lost = ControlledGroup("a", None, 1, (), (), "two came with a log")
    assert kinds(replace(leader, groups=(lost,))) == ["controller-unknown-group"]
    lagging = ControlledGroup("a", 1, 1, (1,), (2,), "")
    assert kinds(replace(leader, groups=(lagging,))) == ["broker-not-in-sync"]


def test_brokers_on_one_disk_have_one_warning() -> None:
    full = FullDisk(NOW_MS, 0.75, False)
    disk = replace(BROKER, disk_ratio=0.801, disk_total_bytes=1 << 40, full=full)
    others = [replace(disk, name="b", address="h:2"), replace(disk, name="c", address="other:1")]
    found = list(of_brokers([disk, *others]))
    assert [(each.kind, each.name) for each in found] == [
        ("disk-over-limit", "a/0"),
        ("disk-over-limit", "c/0"),
    ]


def test_every_kind_is_listed() -> None:
    assert len(set(KINDS)) == len(KINDS)


def test_a_problem_keeps_its_first_time_until_it_is_gone() -> None:
    standing = Standing()
    silent = list(of_brokers([replace(BROKER, told=LastAnswer(1, "no answer"))]))
    assert [each.since_ms for each in standing.dated(silent, 100)] == [100]
    assert [each.since_ms for each in standing.dated(silent, 200)] == [100]
    assert list(standing.dated([], 300)) == []
    assert [each.since_ms for each in standing.dated(silent, 400)] == [400]


def test_alarms_come_before_warnings_and_notes() -> None:
    found = [
        *of_group(structs.replace(GROUP, state=GroupState.EMPTY, lag=5), NOW_MS),
        *of_group(structs.replace(GROUP, state=GroupState.STUCK, lag=5), NOW_MS),
        *of_brokers([replace(BROKER, told=LastAnswer(1, "no answer"))]),
    ]
    assert [each.severity for each in worst_first(found)] == [Severity.ALARM, Severity.WARNING, Severity.NOTE]
