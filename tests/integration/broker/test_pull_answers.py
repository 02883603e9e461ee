"""Answers that pulls seldom get: another broker is suggested, a filter is old, pulling is unwelcome."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.support.broker_cluster import GROUP, TOPIC, Bench, consumer, pull

from pyromq.clock import ManualClock
from pyromq.protocol.codes import ResponseCode
from pyromq.protocol.frame import HeaderForm
from pyromq.protocol.requests.groups import CreateOrUpdateGroup, SubscriptionGroupConfig
from pyromq.protocol.requests.membership import ConsumerData, ConsumeType, GetConsumerIds
from pyromq.protocol.requests.settings import UpdateBrokerConfig

MANY = 20


@pytest.fixture(params=HeaderForm, ids=lambda form: form.name)
async def bench(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Bench]:
    # The clock stands still: no time slice of a filter ends early, however busy the machine is.
    async with Bench(tmp_path, request.param, ManualClock()) as running:
        await running.client.create_topic()
        yield running


async def change(bench: Bench, *lines: str) -> None:
    await bench.client.call(UpdateBrokerConfig(body="".join(f"{line}\n" for line in lines)))


def have_little_memory(bench: Bench) -> None:
    bench.broker.store._reader._in_memory_bytes = 1000


@pytest.mark.parametrize(("slave_read", "near", "far"), [("true", 2, 3), ("false", 0, 0)])
async def test_another_broker_is_suggested_to_those_far_behind(
    bench: Bench, slave_read: str, near: int, far: int
) -> None:
    config = SubscriptionGroupConfig(group_name=GROUP, broker_id=2, which_broker_when_consume_slowly=3)
    await bench.client.call(CreateOrUpdateGroup(body=config))
    await change(bench, f"slaveReadEnable={slave_read}")
    for _ in range(MANY):
        await bench.client.send(b"x" * 200)
    pulled = await bench.client.pull()
    assert (len(pulled.bodies), pulled.answer.suggest_which_broker_id) == (MANY, near)
    have_little_memory(bench)
    pulled = await bench.client.pull()
    assert pulled.answer.suggest_which_broker_id == far
    assert 0 < len(pulled.bodies) < MANY, "what is not in memory is read in small portions"
    assert (await bench.client.pull(MANY - 1)).answer.suggest_which_broker_id == near


async def test_a_filter_older_than_the_consumers_has_to_be_told_first(bench: Bench) -> None:
    await bench.client.heartbeat(consumer(expression="price > 5", sql=True, version=3))
    # A newer subscription without an expression leaves the filter as it was.
    await bench.client.heartbeat(consumer(expression="", sql=True, version=6))
    request = pull(sys_flag=0, subscription=None, sub_version=6)
    assert (await bench.client.refusal(request)).code == ResponseCode.FILTER_DATA_NOT_LATEST
    await bench.client.heartbeat(consumer(expression="price > 7", sql=True, version=7))
    request = pull(sys_flag=0, subscription=None, sub_version=7)
    assert (await bench.client.call(request)).code == ResponseCode.PULL_NOT_FOUND


def pulling_consumer() -> ConsumerData:
    data = consumer("pullers")
    data.consume_type = ConsumeType.CONSUME_ACTIVELY
    return data


async def test_consumers_that_pull_by_themselves_may_be_refused(bench: Bench) -> None:
    await bench.client.heartbeat(pulling_consumer())
    await change(bench, "rejectPullConsumerEnable=true")
    other = await bench.new_client("other")
    await other.heartbeat(pulling_consumer())
    ids = (await bench.client.call(GetConsumerIds(consumer_group="pullers"))).body.consumer_id_list
    assert ids == ["c1"], "no more of them are taken"
    assert (await other.refusal(pull(group="pullers"))).code == ResponseCode.SUBSCRIPTION_NOT_EXIST
    assert (await other.refusal(pull(group="strangers"))).code == ResponseCode.SUBSCRIPTION_NOT_EXIST
    assert (await bench.client.call(pull(group="pullers"))).code == ResponseCode.PULL_NOT_FOUND


async def test_a_queue_whose_entries_are_lost_is_gone_on_with_behind_them(bench: Bench) -> None:
    per_file = 1000  # entries in one file of a queue
    await bench.client.send_batch(*(b"%d" % number for number in range(per_file + 5)))
    first_file = bench.root / "consumequeue" / TOPIC / "0" / ("0" * 20)
    await bench.restart()
    first_file.unlink()
    answer = (await bench.client.pull(10)).answer
    assert answer.code in (ResponseCode.PULL_NOT_FOUND, ResponseCode.PULL_OFFSET_MOVED)
    assert answer.next_begin_offset == per_file
    assert (await bench.client.pull(per_file)).bodies == [
        b"%d" % number for number in range(per_file, per_file + 5)
    ]
