"""Static topics: our brokers under Apache's mqadmin and Java client, Apache's brokers under our mqadmin."""

from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.support.apache import ApacheBroker, ApacheNameServer, ClientOf, wait_for_broker, wait_until
from tests.support.apache_releases import APACHE_5, APACHE_NEWEST, Release
from tests.support.own_broker import OwnBroker
from tests.support.own_nameserver import OwnNameServer

from pyromq import PullConsumer
from pyromq.cli.mqadmin.tree import mqadmin
from pyromq.errors import NoRoute
from pyromq.spark.cluster import SparkCluster
from pyromq.spark.options import Access

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]

TOPIC, GROUP = "Static", "shop"
BOTH = "broker-a,broker-b"


@pytest.fixture(params=[APACHE_5, APACHE_NEWEST], ids=str)
def release(request: pytest.FixtureRequest) -> Release:
    chosen: Release = request.param
    return chosen


@pytest.fixture
def ours() -> Iterator[str]:
    """Our name server with two of our brokers."""
    with OwnNameServer() as names, ExitStack() as running:
        for name in BOTH.split(","):
            running.enter_context(OwnBroker(names.address, name))
        for name in BOTH.split(","):
            wait_for_broker(names.address, name)
        yield names.address


@pytest.fixture
def theirs(release: Release, tmp_path: Path) -> Iterator[str]:
    """The same of Apache's."""
    with ApacheNameServer(release) as names, ExitStack() as running:
        for name in BOTH.split(","):
            running.enter_context(ApacheBroker(release, names.address, tmp_path / name, name=name))
        for name in BOTH.split(","):
            wait_for_broker(names.address, name)
        yield names.address


def leaders(names: str) -> list[str]:
    """Who leads each queue, as the name server says."""
    cluster = SparkCluster(Access((names,)))
    try:
        return [queue.broker for queue in cluster.writable_queues(TOPIC, patient=False)]
    except NoRoute:
        return []
    finally:
        cluster.close()


def our_mqadmin(names: str, *words: str) -> str:
    done = CliRunner().invoke(mqadmin, [*words, "-t", TOPIC, "--timeout", "60"], env={"NAMESRV_ADDR": names})
    assert done.exit_code == 0, done.output
    return done.output


def wait_for_leaders(names: str, *expected: str) -> None:
    wait_until(lambda: Counter(leaders(names)) == Counter(expected), f"queues on {expected}")


def bodies(first: int, count: int = 40) -> list[bytes]:
    return [b"%d" % number for number in range(first, first + count)]


def test_queues_of_our_brokers_move_under_apaches_tool_and_clients(
    ours: str, client_of: ClientOf, release: Release
) -> None:
    java = client_of(release, "JSON")
    place = ("-n", ours, "-t", TOPIC)
    java.mqadmin("updateStaticTopic", *place, "-b", BOTH, "-qn", "4")
    wait_for_leaders(ours, *BOTH.split(",") * 2)

    def send(first: int) -> None:
        sent = java.send(ours, [{"topic": TOPIC, "body": body} for body in bodies(first)])
        assert {each["status"] for each in sent} == {"SEND_OK"}
        assert {each["queueId"] for each in sent} == {0, 1, 2, 3}

    send(0)
    with java.member(ours, GROUP, TOPIC) as member:
        assert sorted(each["body"] for each in member.received(40)) == sorted(bodies(0))
    java.mqadmin("remappingStaticTopic", *place, "-b", "broker-b")
    wait_for_leaders(ours, *["broker-b"] * 4)
    send(40)
    our_mqadmin(ours, "remappingStaticTopic", "-b", "broker-a")
    wait_for_leaders(ours, *["broker-a"] * 4)
    send(80)
    with java.member(ours, GROUP, TOPIC) as member:  # it continues where the first one ended
        assert sorted(each["body"] for each in member.received(80)) == sorted(bodies(40, 80))
    with java.member(ours, "newcomers", TOPIC) as member:
        received = member.received(120)
    assert sorted(each["body"] for each in received) == sorted(bodies(0, 120))
    polled: list[bytes] = []
    consumer = PullConsumer("pollers", ours, start_from="first")
    consumer.subscribe(TOPIC)
    with consumer:
        while len(polled) < 120:
            polled += [message.body for message in consumer.poll()]
    assert sorted(polled) == sorted(bodies(0, 120))


def test_our_tool_moves_queues_of_apaches_brokers(theirs: str, client_of: ClientOf, release: Release) -> None:
    java = client_of(release, "JSON")
    our_mqadmin(theirs, "updateStaticTopic", "-b", BOTH, "-qn", "4")
    wait_for_leaders(theirs, *BOTH.split(",") * 2)
    java.send(theirs, [{"topic": TOPIC, "body": body} for body in bodies(0)])
    our_mqadmin(theirs, "remappingStaticTopic", "-b", "broker-b")
    wait_for_leaders(theirs, *["broker-b"] * 4)
    java.send(theirs, [{"topic": TOPIC, "body": body} for body in bodies(40)])
    with java.member(theirs, GROUP, TOPIC) as member:
        assert sorted(each["body"] for each in member.received(80)) == sorted(bodies(0, 80))
