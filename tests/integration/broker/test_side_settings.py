"""Apache's settings outside of sending and pulling, seen from a client."""

import errno
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.conftest import ErrorLogs
from tests.support.broker_cluster import GROUP, TOPIC, Bench, BrokerClient, consumer, pull, running_broker
from tests.support.faulty_files import FaultyFiles
from tests.support.loop import turn_until

from pyromq.broker.services import protection
from pyromq.clock import ManualClock
from pyromq.errors import Refused
from pyromq.protocol.codes import ResponseCode
from pyromq.protocol.frame import HeaderForm
from pyromq.protocol.record import decode_records
from pyromq.protocol.requests.groups import CreateOrUpdateGroup, GetGroupConfig, SubscriptionGroupConfig
from pyromq.protocol.requests.membership import ConsumerData, SubscriptionData
from pyromq.protocol.requests.offsets import UpdateConsumerOffset
from pyromq.protocol.requests.settings import UpdateBrokerConfig
from pyromq.protocol.requests.topics import DeleteTopicFromBroker, GetAllTopicConfigs


@pytest.fixture(params=HeaderForm, ids=lambda form: form.name)
async def bench(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Bench]:
    # The clock stands still: no time slice of a filter ends early, however busy the machine is.
    async with Bench(tmp_path, request.param, ManualClock()) as running:
        await running.client.create_topic(queues=1)
        yield running


async def change(bench: Bench, *lines: str) -> None:
    await bench.client.call(UpdateBrokerConfig(body="".join(f"{line}\n" for line in lines)))


# clearRetryTopicWhenDeleteTopic


@pytest.mark.parametrize("is_on", [True, False])
async def test_retry_topics_of_those_who_popped_go_with_their_topic(bench: Bench, is_on: bool) -> None:
    await change(bench, f"clearRetryTopicWhenDeleteTopic={str(is_on).lower()}")
    await bench.client.heartbeat(consumer())
    await bench.client.call(
        UpdateConsumerOffset(consumer_group=GROUP, topic=TOPIC, queue_id=0, commit_offset=0)
    )
    popped, others = f"%RETRY%{GROUP}_{TOPIC}", f"%RETRY%others_{TOPIC}"
    for topic in (popped, others):
        await bench.client.create_topic(topic, queues=1)
    await bench.client.call(DeleteTopicFromBroker(topic=TOPIC))
    topics = (await bench.client.call(GetAllTopicConfigs())).body.topic_config_table
    assert TOPIC not in topics
    assert (popped in topics) is not is_on
    assert {others, f"%RETRY%{GROUP}"} <= set(topics), (
        "a group that did not read it has nothing to do with it"
    )


# disableConsumeIfConsumerReadSlowly, consumerFallbehindThreshold


async def may_consume(bench: Bench, group: str = GROUP) -> bool:
    return (await bench.client.call(GetGroupConfig(group=group))).body.consume_enable


async def read(bench: Bench, group: str, count: int) -> None:
    await bench.client.pull(0, group=group, max_msg_nums=count)


async def test_a_group_that_reads_too_far_behind_is_stopped_until_somebody_lets_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(protection, "LOOK_INTERVAL_S", 0.01)
    async with Bench(tmp_path, HeaderForm.BINARY) as bench:
        await bench.client.create_topic(queues=1)
        await bench.client.heartbeat(*(consumer(group) for group in ("slow", "nearly", "done")))
        for _ in range(20):
            await bench.client.send(b"x" * 1000)
        for group, count in (("slow", 2), ("nearly", 18), ("done", 20), ("away", 1)):
            await read(bench, group, count)
        await change(bench, "disableConsumeIfConsumerReadSlowly=true", "consumerFallbehindThreshold=10000")
        while await may_consume(bench, "slow"):
            pass  # each question gives the broker a turn
        assert [await may_consume(bench, group) for group in ("nearly", "done", "away")] == [True] * 3
        assert (await bench.client.refusal(pull(group="slow"))).code == ResponseCode.NO_PERMISSION
        await change(bench, "consumerFallbehindThreshold=1000000")
        config = SubscriptionGroupConfig(group_name="slow")
        await bench.client.call(CreateOrUpdateGroup(body=config))
        assert len((await bench.client.pull(2, group="slow")).bodies) == 18


async def test_nobody_is_stopped_unless_that_is_wanted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = 0

    def look(self: protection.Protection) -> None:
        nonlocal looks
        looks += 1
        original(self)

    original = protection.Protection.stop_slow_groups
    monkeypatch.setattr(protection.Protection, "stop_slow_groups", look)
    monkeypatch.setattr(protection, "LOOK_INTERVAL_S", 0.001)
    async with Bench(tmp_path, HeaderForm.JSON, slow_group_bytes=0) as bench:
        await bench.client.create_topic(queues=1)
        await bench.client.heartbeat(consumer())
        for _ in range(2):
            await bench.client.send(b"x" * 1000)
        await read(bench, GROUP, 1)
        seen = looks
        while looks < seen + 2:
            assert await may_consume(bench)


async def test_a_look_that_fails_harms_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error_logs: ErrorLogs
) -> None:
    monkeypatch.setattr(protection, "LOOK_INTERVAL_S", 0.001)
    files = FaultyFiles(tmp_path)
    async with (
        running_broker(tmp_path, files=files) as broker,
        BrokerClient(broker.address) as client,
    ):
        await client.heartbeat(consumer())
        for _ in range(2):
            await client.send(b"x" * 1000)
        await client.pull(0, max_msg_nums=1)
        files.failures["write"] = errno.EIO
        with pytest.raises(Refused, match="changed, but only in memory"):
            await client.call(
                UpdateBrokerConfig(
                    body="consumerFallbehindThreshold=0\ndisableConsumeIfConsumerReadSlowly=true\n"
                )
            )
        error_logs.expect("could not write file=")
        await turn_until(lambda: error_logs.records)
        files.failures.clear()
        assert not (await client.call(GetGroupConfig(group=GROUP))).body.consume_enable
    error_logs.expect_repeatedly("slow groups could not be stopped, trying again next time")


# filterSupportRetry


def filtering_retries(expression: str) -> ConsumerData:
    """A consumer that filters its topic, and by another expression the retries of it."""
    data = consumer(expression=expression, sql=True)
    retries = SubscriptionData(
        topic=f"%RETRY%{GROUP}", sub_string="colour IS NOT NULL", expression_type="SQL92", sub_version=1
    )
    return ConsumerData(
        group_name=GROUP,
        consume_type=data.consume_type,
        message_model=data.message_model,
        consume_from_where=data.consume_from_where,
        subscription_data_set=[*data.subscription_data_set, retries],
    )


@pytest.mark.parametrize(
    ("by_origin", "expected"),
    [
        ("false", [b"red, cheap", b"blue, of another topic"]),
        ("true", [b"dear", b"blue, of another topic"]),
    ],
)
async def test_retries_may_be_matched_by_the_filter_of_their_original_topic(
    bench: Bench, by_origin: str, expected: list[bytes]
) -> None:
    await change(bench, f"filterSupportRetry={by_origin}")
    await bench.client.heartbeat(filtering_retries("price > 5"))
    retry = f"%RETRY%{GROUP}"
    for body, properties in (
        (b"red, cheap", {"RETRY_TOPIC": TOPIC, "price": "1", "colour": "red"}),
        (b"dear", {"RETRY_TOPIC": TOPIC, "price": "9"}),
        (b"blue, of another topic", {"RETRY_TOPIC": "Another", "colour": "blue"}),
    ):
        await bench.client.send(body, retry, properties=properties)
    request = pull(topic=retry, sys_flag=0, subscription=None, sub_version=1)
    answer = await bench.client.call(request)
    assert [stored.body for stored in decode_records(answer.body)] == expected
