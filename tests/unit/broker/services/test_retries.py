"""Messages that consumers give back: when they come again, and when they are dead."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.support.broker_parts import BrokerParts, broker_parts, caller_on, refusal
from tests.support.small_stores import BORN_HOST, append, dispatch_all

from pyromq.broker.services.retries import Retries
from pyromq.broker.tables.role import Role
from pyromq.protocol import names
from pyromq.protocol.codes import ResponseCode
from pyromq.protocol.properties import encode_properties
from pyromq.protocol.record import StoredMessage
from pyromq.protocol.requests.groups import SubscriptionGroupConfig
from pyromq.protocol.requests.sending import SendMessageBack
from pyromq.store.faults import Fault

TOPIC = "Orders"
GROUP = "billing"
RETRY = names.retry_topic(GROUP)
DEAD = names.dlq_topic(GROUP)


class Bench:
    def __init__(self, parts: BrokerParts) -> None:
        self.parts = parts
        self.statistics = parts.statistics
        self.retries = Retries(
            parts.live, parts.store, parts.tables, parts.inbound, random_below=lambda count: count - 1
        )

    def consumed(self, **changes: Any) -> StoredMessage:
        """A message as a consumer got it."""
        pairs = {"KEYS": "k", "TAGS": "t", "UNIQ_KEY": "U1"} | changes.pop("pairs", {})
        properties = encode_properties(pairs).encode()
        append(self.parts.store, b"body", topic=TOPIC, properties=properties, flag=5, **changes)
        return self.parts.messages(TOPIC)[-1]

    def give_back(self, message: StoredMessage, version: int = 479, **fields: Any) -> None:
        values: dict[str, Any] = {"offset": message.log_offset, "group": GROUP, "delay_level": 0} | fields
        self.retries.send_back(SendMessageBack(**values), caller_on(version=version))
        dispatch_all(self.parts.store)

    def parked(self, level: int) -> list[StoredMessage]:
        return self.parts.messages(names.SCHEDULE_TOPIC, level - 1)

    def set_group(self, **changes: Any) -> None:
        config = self.parts.groups.find(GROUP) or SubscriptionGroupConfig(group_name=GROUP)
        self.parts.groups.update(msgspec.structs.replace(config, **changes))


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    with broker_parts(tmp_path) as parts:
        yield Bench(parts)


async def test_a_message_given_back_is_the_same_message_later(bench: Bench) -> None:
    message = bench.consumed()
    bench.give_back(message)
    (again,) = bench.parked(3)
    assert (again.body, again.flag, again.born_timestamp) == (message.body, 5, message.born_timestamp)
    assert again.born_host.pack() == BORN_HOST
    assert again.reconsume_times == 1
    assert again.property_map() == message.property_map() | {
        "RETRY_TOPIC": TOPIC,
        "ORIGIN_MESSAGE_ID": f"0A09080700002A9F{message.log_offset:016X}",
        "WAIT": "false",
        "DELAY": "3",
        "REAL_TOPIC": RETRY,
        "REAL_QID": "0",
    }


async def test_a_message_that_comes_back_again_keeps_where_it_came_from(bench: Bench) -> None:
    pairs = {"RETRY_TOPIC": "First", "ORIGIN_MESSAGE_ID": "ID", "REAL_TOPIC": "old", "DELAY": "3"}
    bench.give_back(bench.consumed(pairs=pairs, reconsume_times=1))
    (again,) = bench.parked(4)
    assert (again.get("RETRY_TOPIC"), again.get("ORIGIN_MESSAGE_ID")) == ("First", "ID")
    assert again.get("REAL_TOPIC") == RETRY
    assert again.properties.count(b"REAL_TOPIC") == 1


@pytest.mark.parametrize(
    ("delay_level", "reconsume_times", "level"),
    [(0, 0, 3), (0, 1, 4), (0, 15, 18), (5, 9, 5), (99, 0, 18)],
)
async def test_the_wait_grows_unless_the_consumer_names_it(
    bench: Bench, delay_level: int, reconsume_times: int, level: int
) -> None:
    bench.give_back(bench.consumed(reconsume_times=reconsume_times), delay_level=delay_level)
    (again,) = bench.parked(level)
    assert (again.get("DELAY"), again.reconsume_times) == (str(level), reconsume_times + 1)


@pytest.mark.parametrize(
    ("reconsume_times", "fields", "version", "is_dead"),
    [
        (15, {}, 479, False),
        (16, {}, 479, True),
        (2, {"max_reconsume_times": 2}, 479, True),
        (2, {"max_reconsume_times": 2}, 120, False),
        (20, {"max_reconsume_times": 21}, 479, False),
        (0, {"delay_level": -1}, 479, True),
    ],
)
async def test_a_message_is_dead_when_it_failed_too_often_or_is_given_up(
    bench: Bench, reconsume_times: int, fields: dict[str, Any], version: int, is_dead: bool
) -> None:
    bench.give_back(bench.consumed(reconsume_times=reconsume_times), version, **fields)
    assert len(bench.parts.messages(DEAD)) == is_dead


async def test_a_dead_letter_says_where_it_comes_from(bench: Bench) -> None:
    message = bench.consumed()
    bench.give_back(message, delay_level=-1)
    (dead,) = bench.parts.messages(DEAD)
    assert (dead.body, dead.reconsume_times) == (message.body, 1)
    assert dead.property_map() == message.property_map() | {
        "RETRY_TOPIC": TOPIC,
        "ORIGIN_MESSAGE_ID": f"0A09080700002A9F{message.log_offset:016X}",
        "WAIT": "false",
        "DELAY": "0",
        "DLQ_ORIGIN_TOPIC": TOPIC,
        "DLQ_ORIGIN_MESSAGE_ID": "U1",
    }
    config = bench.parts.topics.get(DEAD)
    assert config is not None
    assert (config.write_queue_nums, config.perm) == (1, 6)


async def test_the_retry_topic_has_as_many_queues_as_the_group_wants(bench: Bench) -> None:
    bench.set_group(retry_queue_nums=3)
    bench.give_back(bench.consumed(), unit_mode=True)
    config = bench.parts.topics.get(RETRY)
    assert config is not None
    assert (config.write_queue_nums, config.perm, config.topic_sys_flag) == (3, 6, 2)
    assert bench.parked(3)[0].get("REAL_QID") == "2"


async def test_a_group_without_retry_queues_has_no_retries(bench: Bench) -> None:
    bench.set_group(retry_queue_nums=0)
    bench.give_back(bench.consumed())
    assert bench.parts.store.statistics().appended_messages == 1


async def test_a_replica_takes_no_message_back(bench: Bench) -> None:
    message = bench.consumed()
    end = bench.parts.store.log.end
    bench.parts.tables.role.change(Role(1, 1))
    refused = refusal(lambda: bench.give_back(message))
    assert refused.code == ResponseCode.SERVICE_NOT_AVAILABLE
    assert bench.parts.store.log.end == end


async def test_what_was_given_back_is_counted(bench: Bench) -> None:
    bench.give_back(bench.consumed())
    bench.give_back(bench.consumed(), delay_level=-1)
    bench.parts.clock.advance(10)
    bench.statistics.sample()
    counted = {
        name: data.stats_minute.sum
        for name in ("SNDBCK_PUT_NUMS", "DLQ_PUT_NUMS", "SNDBCK2DLQ_TIMES")
        if (data := bench.statistics.data(name, f"{TOPIC}@{GROUP}")) is not None
        and data.stats_minute is not None
    }
    assert counted == {"SNDBCK_PUT_NUMS": 2, "DLQ_PUT_NUMS": 1, "SNDBCK2DLQ_TIMES": 1}
    assert bench.statistics.put_messages == 2


class TestRefused:
    def refused(self, bench: Bench, **fields: Any) -> int:
        return refusal(lambda: bench.give_back(bench.consumed(), **fields)).code

    async def test_a_group_that_does_not_exist(self, bench: Bench) -> None:
        bench.parts.change(autoCreateSubscriptionGroup="false", brokerPermission="4")
        assert self.refused(bench) == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST

    async def test_a_broker_that_may_not_be_written_to(self, bench: Bench) -> None:
        bench.set_group(retry_queue_nums=0)
        bench.parts.change(brokerPermission="4")
        assert self.refused(bench) == ResponseCode.NO_PERMISSION

    async def test_a_retry_topic_that_may_not_be_written_to(self, bench: Bench) -> None:
        bench.parts.add_topic(RETRY, perm=names.READ)
        assert self.refused(bench, offset=10**12) == ResponseCode.NO_PERMISSION

    @pytest.mark.parametrize("offset", [-1, 1, 50, 10**12, 2**62])
    async def test_an_offset_at_which_no_message_begins(self, bench: Bench, offset: int) -> None:
        assert self.refused(bench, offset=offset) == ResponseCode.SYSTEM_ERROR

    async def test_a_store_that_takes_nothing(self, bench: Bench) -> None:
        message = bench.consumed()
        bench.parts.store._faults.refuse(Fault.DISK_FULL, "the disk is full")
        refused = refusal(lambda: bench.give_back(message))
        assert (refused.code, refused.remark) == (
            ResponseCode.SYSTEM_ERROR,
            "SERVICE_NOT_AVAILABLE: the disk is full",
        )
        assert bench.statistics.data("SNDBCK_PUT_NUMS", f"{TOPIC}@{GROUP}") is None
