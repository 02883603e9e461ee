"""What admin computes without asking anyone."""

import pytest

from pyromq.admin.cluster import BrokerMember, Cluster, members_of
from pyromq.admin.connections import ConnectedMember, complaints, subscribe_alike
from pyromq.admin.failures import PartlyFailed, nearest
from pyromq.admin.messages import average_ms, writable_queues
from pyromq.admin.name_servers import settings_of
from pyromq.admin.offsets import divide_evenly, readable_queues
from pyromq.admin.rates import Rates
from pyromq.cluster.routes import route_addresses
from pyromq.errors import ConnectFailed
from pyromq.protocol.body import MessageQueue
from pyromq.protocol.requests.inspection import ConsumerRunningInfo, ProcessQueueInfo
from pyromq.protocol.requests.membership import SubscriptionData
from pyromq.protocol.requests.routes import BrokerData, ClusterInfo, QueueData, TopicRouteData

QUEUES = [MessageQueue("t", "a", queue_id) for queue_id in range(8)]
NOW_MS = 1_700_000_000_000


def test_a_rate_needs_two_readings_and_is_per_second() -> None:
    rates: Rates[str] = Rates()
    rates.read({"in": 100.0}, 10.0)
    assert rates.rate("in") is None
    rates.read({"in": 150.0}, 12.0)
    assert rates.rate("in") == 25.0
    rates.read({"in": 160.0}, 13.0)
    assert rates.history("in") == [25.0, 10.0]


def test_a_counter_that_fell_back_began_anew() -> None:
    rates: Rates[str] = Rates()
    rates.read({"in": 100.0}, 1.0)
    rates.read({"in": 3.0}, 2.0)
    assert rates.rate("in") == 0.0


def test_counters_that_are_gone_are_forgotten_and_new_ones_wait_for_a_second_reading() -> None:
    rates: Rates[str] = Rates()
    rates.read({"a": 1.0, "b": 1.0}, 1.0)
    rates.read({"b": 2.0, "c": 5.0}, 2.0)
    assert rates.history("a") == []
    assert (rates.rate("b"), rates.rate("c")) == (1.0, None)


def test_only_the_last_rates_are_remembered() -> None:
    rates: Rates[str] = Rates(remembered=2)
    for second, value in enumerate((0, 1, 3, 6)):
        rates.read({"in": float(value)}, float(second))
    assert rates.history("in") == [2.0, 3.0]


@pytest.mark.parametrize(
    ("members", "shares"),
    [
        (["x"], [8]),
        (["x", "y"], [4, 4]),
        (["x", "y", "z"], [3, 3, 2]),
        (list("abcdefghij"), [1] * 8 + [0, 0]),
    ],
)
def test_queues_are_divided_by_the_average_rule(members: list[str], shares: list[int]) -> None:
    division = divide_evenly(QUEUES, members)
    assert [len(division[member]) for member in members] == shares
    assert [queue for member in members for queue in division[member]] == QUEUES


def test_members_are_listed_by_cluster_name_and_id() -> None:
    info = ClusterInfo(
        cluster_addr_table={"two": ["c"], "one": ["b", "a", "b"]},
        broker_addr_table={
            "a": BrokerData(broker_name="a", broker_addrs={1: "h:2", 0: "h:1"}),
            "b": BrokerData(broker_name="b", broker_addrs={0: "h:3"}),
        },
    )
    assert members_of(info) == [
        BrokerMember("one", "a", 0, "h:1"),
        BrokerMember("one", "a", 1, "h:2"),
        BrokerMember("one", "b", 0, "h:3"),
    ]
    assert members_of(info, "two") == []


ROUTE = TopicRouteData(
    broker_datas=[
        BrokerData(broker_name="b", broker_addrs={1: "h:2"}),
        BrokerData(broker_name="a", broker_addrs={0: "h:1", 1: "h:9"}),
        BrokerData(broker_name="gone"),
    ],
    queue_datas=[
        QueueData(broker_name="b", perm=6, read_queue_nums=2, write_queue_nums=2),
        QueueData(broker_name="a", perm=6, read_queue_nums=1, write_queue_nums=3),
    ],
)


def test_a_broker_without_a_master_is_read_from_its_replica() -> None:
    assert route_addresses(ROUTE) == {"a": "h:1", "b": "h:2"}


def test_messages_go_only_to_brokers_with_a_master_and_permission() -> None:
    assert [str(queue) for queue in writable_queues("t", ROUTE)] == ["t@a:0", "t@a:1", "t@a:2"]
    assert [str(queue) for queue in readable_queues("t", ROUTE)] == ["t@a:0", "t@b:0", "t@b:1"]


def test_settings_are_plain_lines_with_their_backslashes() -> None:
    assert settings_of("path=C:\\temp\nempty=\nurl=a=b\n\nnonsense") == {
        "path": "C:\\temp",
        "empty": "",
        "url": "a=b",
    }


def test_an_unknown_name_is_answered_with_the_nearest_or_with_what_to_try() -> None:
    assert nearest("ordres", ["orders", "bills"], "look around") == "did you mean orders?"
    assert nearest("x", ["orders"], "look around") == "look around"


def test_what_was_done_is_told_with_what_failed() -> None:
    failure = PartlyFailed(["h:1"], {"h:2": ConnectFailed("h:2: refused")})
    assert str(failure) == "failed at h:2: refused; done at h:1"


def test_the_first_time_opens_the_connection_and_does_not_count() -> None:
    assert average_ms([100.0, 1.0, 3.0]) == 2.0
    assert average_ms([5.0]) == 5.0
    assert average_ms([]) == 0.0


def test_a_cluster_knows_its_name_servers_and_tells_its_state() -> None:
    cluster = Cluster(" h:1 ;h:2;; ")
    assert cluster.name_servers == ("h:1", "h:2")
    assert repr(cluster) == "<Cluster h:1;h:2 closed>"


def running(
    expression: str = "*", *, push: bool = True, orderly: bool = False, **held: int | bool
) -> ConsumerRunningInfo:
    return ConsumerRunningInfo(
        properties={
            "PROP_CONSUME_TYPE": "CONSUME_PASSIVELY" if push else "CONSUME_ACTIVELY",
            "PROP_CONSUMEORDERLY": str(orderly).lower(),
            "PROP_CONSUMER_START_TIMESTAMP": str(NOW_MS - 600_000),
        },
        subscription_set=[SubscriptionData(topic="t", sub_string=expression)],
        mq_table={QUEUES[0]: ProcessQueueInfo(**held)} if held else {},  # type: ignore[arg-type]
    )


@pytest.mark.parametrize(
    ("first", "second", "alike"),
    [
        (running("*"), running("*"), True),
        (running("*"), running("a"), False),
        (running("*", push=False), running("a"), True),
        (running("*"), None, True),
    ],
)
def test_members_of_a_group_should_want_the_same(
    first: ConsumerRunningInfo, second: ConsumerRunningInfo | None, alike: bool
) -> None:
    members = [ConnectedMember("one", 479, first), ConnectedMember("two", 479, second)]
    assert subscribe_alike(members, NOW_MS) is alike


def test_members_that_started_lately_may_differ_for_a_while() -> None:
    members = [ConnectedMember("one", 479, running("*")), ConnectedMember("two", 479, running("a"))]
    assert subscribe_alike(members, NOW_MS - 500_000)


@pytest.mark.parametrize(
    ("told", "complaint"),
    [
        (None, "c did not answer"),
        (running(cached_msg_count=1, last_consume_timestamp=NOW_MS - 61_000), "can't consume for a while"),
        (running(cached_msg_count=1, last_consume_timestamp=NOW_MS - 1000), None),
        (running(orderly=True, locked=False, last_lock_timestamp=NOW_MS - 5), "can't lock for a while, 5ms"),
        (running(orderly=True, locked=True, droped=True, try_unlock_times=2), "unlock 2 times, still failed"),
        (running(push=False, cached_msg_count=1), None),
    ],
)
def test_what_is_wrong_with_a_member_is_said(told: ConsumerRunningInfo | None, complaint: str | None) -> None:
    found = complaints(ConnectedMember("c", 479, told), NOW_MS)
    assert len(found) == (0 if complaint is None else 1)
    if complaint is not None:
        assert complaint in found[0]
