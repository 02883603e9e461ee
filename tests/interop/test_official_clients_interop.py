"""RocketMQ's own 5.x clients at our gRPC front, as they come from their registries."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from tests.support.apache_releases import PeerUnavailable
from tests.support.front import SharedFront, front_in_thread, read_all
from tests.support.official_clients import LANGUAGES, LITE, OfficialClient, program_of

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def running() -> Iterator[SharedFront]:
    with front_in_thread(
        transaction_timeout_ms=2000,
        transaction_check_interval_ms=500,
        transaction_op_interval_ms=100,
        recalls=True,
        light_queues=True,
        multi_dispatch=True,
    ) as started:
        yield started


@pytest.fixture(scope="module", params=LANGUAGES)
def language(request: pytest.FixtureRequest) -> str:
    name = str(request.param)
    try:
        program_of(name)
    except PeerUnavailable as reason:
        pytest.skip(str(reason))
    return name


def _topic(running: SharedFront, name: str, kind: str = "NORMAL", queues: int = 4) -> str:
    asyncio.run(running.create_topic(name, kind, queues))
    return name


def test_normal_messages_reach_a_simple_consumer(running: SharedFront, language: str) -> None:
    topic = _topic(running, f"Normal-{language}")
    with (
        OfficialClient(language, running.target, "simple", topic, f"Simple-{language}", "4") as consumer,
        OfficialClient(language, running.target, "produce", topic, "normal", "4") as producer,
    ):
        assert len({each["id"] for each in producer.wait("sent", 4)}) == 4
        consumer.wait("done")
        assert sorted(consumer.bodies(4)) == [f"normal-{number}" for number in range(4)]
        first = consumer.wait("received")[0]
        assert first["properties"] == {"sent-by": language}
        assert first["attempt"] == 1


def test_a_message_that_is_given_back_comes_again(running: SharedFront, language: str) -> None:
    topic = _topic(running, f"Nack-{language}")
    with (
        OfficialClient(language, running.target, "produce", topic, "normal", "1") as producer,
        OfficialClient(
            language, running.target, "simple", topic, f"Nack-{language}", "1", "nack"
        ) as consumer,
    ):
        producer.wait("ready")
        consumer.wait("done")
        assert [each["attempt"] for each in consumer.wait("received", 2)] == [1, 2]


def test_messages_of_a_group_come_in_their_order(running: SharedFront, language: str) -> None:
    topic, group = _topic(running, f"Fifo-{language}", "FIFO"), f"Fifo-{language}"
    asyncio.run(running.create_group(group, consume_message_orderly=True))
    with (
        OfficialClient(language, running.target, "produce", topic, "fifo", "8") as producer,
        OfficialClient(language, running.target, "push", topic, group) as consumer,
    ):
        producer.wait("ready")
        found = consumer.wait("received", 8)
        for name, expected in (("group-0", (0, 2, 4, 6)), ("group-1", (1, 3, 5, 7))):
            of_group = [each["body"] for each in found if each["group"] == name]
            assert of_group == [f"fifo-{number}" for number in expected]


def test_a_delayed_message_is_delivered(running: SharedFront, language: str) -> None:
    topic = _topic(running, f"Delay-{language}", "DELAY")
    with (
        OfficialClient(language, running.target, "push", topic, f"Delay-{language}") as consumer,
        OfficialClient(language, running.target, "produce", topic, "delay", "1") as producer,
    ):
        producer.wait("ready")
        assert consumer.bodies(1) == ["delay-0"]


@pytest.mark.parametrize("end", ["commit", "check"])
def test_a_transaction_is_delivered_after_its_commit(running: SharedFront, language: str, end: str) -> None:
    topic = _topic(running, f"Transaction-{end}-{language}", "TRANSACTION")
    with (
        OfficialClient(language, running.target, "push", topic, f"Transaction-{end}-{language}") as consumer,
        OfficialClient(language, running.target, "produce", topic, "rollback", "1") as other,
        OfficialClient(language, running.target, "produce", topic, end, "1") as producer,
    ):
        other.wait("ready")
        producer.wait("ready")
        assert consumer.bodies(1) == [f"{end}-0"]
        if end == "check":
            asked = [*producer.wait("checked")] if producer.has("checked") else other.wait("checked")
            assert asked[0]["body"] == "check-0"


def test_a_push_consumer_gets_the_tags_it_wants(running: SharedFront, language: str) -> None:
    topic = _topic(running, f"Tags-{language}")
    with (
        OfficialClient(language, running.target, "push", topic, f"Tags-{language}", "odd") as consumer,
        OfficialClient(language, running.target, "produce", topic, "normal", "6") as producer,
    ):
        producer.wait("ready")
        assert sorted(consumer.bodies(3)) == ["normal-1", "normal-3", "normal-5"]


def test_a_failed_message_is_retried(running: SharedFront, language: str) -> None:
    topic = _topic(running, f"Retry-{language}")
    with (
        OfficialClient(
            language, running.target, "push", topic, f"Retry-{language}", "*", "fail once"
        ) as consumer,
        OfficialClient(language, running.target, "produce", topic, "normal", "1") as producer,
    ):
        producer.wait("ready")
        assert [each["attempt"] for each in consumer.wait("received", 2)] == [1, 2]


def test_two_members_share_the_messages(running: SharedFront, language: str) -> None:
    topic, group = _topic(running, f"Shared-{language}"), f"Shared-{language}"
    with (
        OfficialClient(language, running.target, "push", topic, group) as one,
        OfficialClient(language, running.target, "push", topic, group) as two,
        OfficialClient(language, running.target, "produce", topic, "normal", "40") as producer,
    ):
        one.wait("ready")
        two.wait("ready")
        producer.wait("ready")
        bodies = OfficialClient.together(40, one, two)
        assert sorted(bodies) == sorted(f"normal-{number}" for number in range(40))


def test_a_delayed_message_is_recalled(running: SharedFront, language: str) -> None:
    if language != "python5":
        pytest.skip("only Python's client recalls messages in this release")
    topic = _topic(running, f"Recall-{language}", "DELAY")
    with OfficialClient(language, running.target, "produce", topic, "recall", "1") as producer:
        producer.wait("recalled")


# What depends on the front and the broker alone is tried with one client: Python's.


@pytest.fixture(scope="module")
def python() -> str:
    try:
        program_of("python5")
    except PeerUnavailable as reason:
        pytest.skip(str(reason))
    return "python5"


def test_a_push_consumer_gets_what_its_sql_expression_chooses(running: SharedFront, python: str) -> None:
    topic = _topic(running, "Sql")
    with (
        OfficialClient(python, running.target, "push", topic, "Sql", "TAGS = 'odd'") as consumer,
        OfficialClient(python, running.target, "produce", topic, "normal", "6") as producer,
    ):
        producer.wait("ready")
        assert sorted(consumer.bodies(3)) == ["normal-1", "normal-3", "normal-5"]


def test_a_message_that_always_fails_becomes_a_dead_letter(running: SharedFront, python: str) -> None:
    topic, group = _topic(running, "Dead"), "Dead"
    asyncio.run(running.create_group(group, retry_max_times=1))
    with (
        OfficialClient(python, running.target, "push", topic, group, "*", "fail") as consumer,
        OfficialClient(python, running.target, "produce", topic, "normal", "1") as producer,
    ):
        producer.wait("ready")
        assert [each["attempt"] for each in consumer.wait("received", 2)] == [1, 2]
        [dead] = asyncio.run(read_all(running.namesrv, f"%DLQ%{group}", 1))
        assert dead.body == b"normal-0"


@pytest.mark.parametrize("restarted", ["proxy", "broker"])
def test_nothing_is_lost_when_a_server_restarts_under_load(
    running: SharedFront, python: str, restarted: str
) -> None:
    topic, group, count = _topic(running, f"Restart-{restarted}"), f"Restart-{restarted}", 400
    with (
        OfficialClient(python, running.target, "push", topic, group) as consumer,
        OfficialClient(python, running.target, "produce", topic, "steady", str(count)) as producer,
    ):
        producer.wait("sent", count // 4)
        asyncio.run(running.restart_proxy() if restarted == "proxy" else running.restart_broker())
        producer.wait("ready")
        wanted = {f"steady-{number}" for number in range(count)}
        consumer.wait_for(lambda found: wanted <= {each["body"] for each in found("received")})


@pytest.mark.parametrize("language", LITE)
def test_a_lite_push_consumer_gets_what_it_subscribes_to(running: SharedFront, language: str) -> None:
    try:
        program_of(language)
    except PeerUnavailable as reason:
        pytest.skip(str(reason))
    topic = group = _topic(running, f"Lite-{language}", "LITE")
    asyncio.run(running.create_group(group, attributes={"+lite.bind.topic": topic}))
    with (
        OfficialClient(language, running.target, "lite", topic, group, "session-1") as consumer,
        OfficialClient(language, running.target, "produce", topic, "lite", "4") as producer,
    ):
        consumer.wait("ready")
        producer.wait("ready")
        found = consumer.wait("received", 4)
        # Each fails once: it comes again, and then it is done.
        assert sorted((each["lite"], each["body"], each["attempt"]) for each in found) == [
            ("session-1", "lite-1", 1),
            ("session-1", "lite-1", 2),
            ("session-1", "lite-3", 1),
            ("session-1", "lite-3", 2),
        ]
