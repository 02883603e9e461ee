"""The way into the store, and the small decisions on the way."""

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import pytest
from tests.support.broker_parts import BrokerParts, FakeChannel, broker_parts
from tests.support.loop import turn_until
from tests.support.small_stores import BORN_HOST, STORE_HOST

from pyromq.broker.flow.born_hosts import BornHosts
from pyromq.broker.flow.broker_properties import BrokerProperties
from pyromq.broker.flow.draft import Draft
from pyromq.broker.flow.message_properties import (
    closed,
    delay_level,
    is_true,
    is_unusual,
    with_property,
)
from pyromq.broker.flow.writable_queues import NotWrittenYet, WritableQueue, WritableQueues
from pyromq.broker.tables.role import Role
from pyromq.protocol import names
from pyromq.protocol.batch import BatchEntry
from pyromq.protocol.properties import decode_properties, encode_properties
from pyromq.protocol.record import Host
from pyromq.protocol.requests.sending import SendMessage
from pyromq.store.results import AppendStatus, QueueAdvance

TOPIC = "Orders"


@pytest.fixture
async def parts(tmp_path: Path) -> AsyncIterator[BrokerParts]:
    with broker_parts(tmp_path) as built:
        yield built


def draft(
    properties: bytes = b"", topic: str = TOPIC, queue_id: int = 0, sys_flag: int = 0, delay_level: int = 0
) -> Draft:
    return Draft(
        topic, queue_id, b"body", properties, 1, BORN_HOST, sys_flag=sys_flag, delay_level=delay_level
    )


class TestAppending:
    async def test_what_one_turn_appends_is_told_once_at_its_end(self, parts: BrokerParts) -> None:
        told: list[QueueAdvance] = []
        parts.appending.on_advance(told.append)
        parts.appending.append(draft())
        parts.appending.append(draft())
        parts.appending.append_batch(draft(queue_id=1), [BatchEntry(b"1"), BatchEntry(b"2")])
        assert told == []
        await asyncio.sleep(0)
        assert sorted(told) == [QueueAdvance(TOPIC, 0, 2), QueueAdvance(TOPIC, 1, 2)]

    async def test_a_replica_appends_nothing(self, parts: BrokerParts) -> None:
        record = bytes(parts.appending.append(draft()).size_bytes)
        end = parts.store.log.end
        parts.tables.role.change(Role(1, 1))
        results = [
            parts.appending.append(draft()),
            parts.appending.append_batch(draft(), [BatchEntry(b"1")]),
        ]
        assert {each.status for each in results} == {AppendStatus.SERVICE_NOT_AVAILABLE}
        assert parts.appending.append_again(memoryview(record), TOPIC, 0, b"") is None
        assert parts.store.log.end == end

    async def test_large_batches_of_one_turn_can_be_read_in_the_next(self, parts: BrokerParts) -> None:
        for _ in range(100):
            parts.appending.append_batch(draft(), [BatchEntry(b"x")] * 50)
        await asyncio.sleep(0)
        assert parts.store.queues.max_offset(TOPIC, 0) == 5_000

    async def test_what_waited_before_is_dispatched_step_by_step(self, parts: BrokerParts) -> None:
        for _ in range(100):
            parts.store.append_batch(
                TOPIC,
                0,
                [BatchEntry(b"x")] * 50,
                born_timestamp=1,
                born_host=BORN_HOST,
                store_host=STORE_HOST,
            )
        parts.appending.dispatch_soon()
        await asyncio.sleep(0)
        assert 0 < parts.store.queues.max_offset(TOPIC, 0) < 5_000
        await turn_until(lambda: parts.store.queues.max_offset(TOPIC, 0) == 5_000)

    async def test_who_listens_to_a_topic_hears_of_no_other(self, parts: BrokerParts) -> None:
        told: list[QueueAdvance] = []
        parts.appending.on_advance(told.append, "Other")
        parts.appending.append(draft())
        parts.appending.append(draft(topic="Other"))
        await asyncio.sleep(0)
        assert told == [QueueAdvance("Other", 0, 1)]

    async def test_an_id_is_the_one_that_the_store_makes(self, parts: BrokerParts) -> None:
        one = parts.appending.append(draft())
        many = parts.appending.append_batch(draft(), [BatchEntry(b"1"), BatchEntry(b"2")])
        assert parts.appending.message_ids(one) == one.message_id
        assert parts.appending.message_ids(many) == many.message_id

    @pytest.mark.parametrize(
        ("properties", "sys_flag", "level", "parked_level"),
        [
            (b"DELAY\x011\x02", 0, 1, 1),
            (b"DELAY\x0118", 0, 18, 18),
            (b"DELAY\x0199\x02K\x01v\x02", 0, 99, 18),
            (b"DELAY\x012\x02", 0x8, 2, 2),
            (b"TIMER_DELAY_SEC\x015\x02REAL_TOPIC\x01Old\x02REAL_QID\x019\x02", 0, 2, 2),
            (b"", 0, 3, 3),
        ],
    )
    async def test_a_delayed_message_is_parked_on_its_level(
        self, parts: BrokerParts, properties: bytes, sys_flag: int, level: int, parked_level: int
    ) -> None:
        parked = draft(properties, queue_id=3, sys_flag=sys_flag, delay_level=level)
        parts.appending.append(parked)
        assert (parked.topic, parked.queue_id) == (names.SCHEDULE_TOPIC, parked_level - 1)
        (message,) = parts.messages(names.SCHEDULE_TOPIC, parked_level - 1)
        expected = {"DELAY": str(parked_level), "REAL_TOPIC": TOPIC, "REAL_QID": "3"}
        given = decode_properties(properties)
        given.pop("TIMER_DELAY_SEC", None)
        assert message.property_map() == given | expected
        assert message.properties.count(b"\x02") == len(given | expected)

    @pytest.mark.parametrize(("level", "sys_flag"), [(0, 0), (-1, 0), (1, 0x4), (1, 0xC)])
    async def test_other_messages_go_where_they_say(
        self, parts: BrokerParts, level: int, sys_flag: int
    ) -> None:
        went = draft(b"DELAY\x011\x02", sys_flag=sys_flag, delay_level=level)
        parts.appending.append(went)
        assert (went.topic, went.properties) == (TOPIC, b"DELAY\x011\x02")

    async def test_a_topic_that_is_too_long_is_refused_before_it_is_parked(self, parts: BrokerParts) -> None:
        result = parts.appending.append(draft(topic="%DLQ%" + "g" * 123, delay_level=1))
        assert result.status is AppendStatus.MESSAGE_ILLEGAL
        assert parts.appending.append(draft(topic=names.retry_topic("g" * 122), delay_level=1)).is_ok

    async def test_without_levels_nothing_is_delayed(self, tmp_path: Path) -> None:
        with broker_parts(tmp_path / "none", store={"message_delay_levels": ""}) as parts:
            parts.appending.append(draft(delay_level=1))
            assert len(parts.messages(TOPIC)) == 1


class TestSafety:
    @pytest.mark.parametrize(
        ("properties", "waits"),
        [
            (b"", True),
            (b"WAIT\x01true\x02", True),
            (b"WAIT\x01TRUE\x02", True),
            (b"WAIT\x01false\x02", False),
            (b"WAIT\x01maybe\x02", False),
            (b"AWAIT\x01false\x02", True),
        ],
    )
    async def test_with_synchronous_flush_a_message_waits_unless_it_says_no(
        self, tmp_path: Path, properties: bytes, waits: bool
    ) -> None:
        with broker_parts(tmp_path, store={"flush_disk_type": "SYNC_FLUSH"}) as parts:
            result = parts.appending.append(draft())
            assert parts.durability.is_safe_enough(result, properties) is not waits

    async def test_with_asynchronous_flush_nothing_waits(self, parts: BrokerParts) -> None:
        assert parts.durability.is_safe_enough(parts.appending.append(draft()), b"")

    async def test_a_flushed_message_is_told_and_can_be_read(self, tmp_path: Path) -> None:
        with broker_parts(tmp_path, store={"flush_disk_type": "SYNC_FLUSH"}) as parts:
            told: list[AppendStatus] = []
            arrived: list[QueueAdvance] = []
            parts.appending.on_advance(arrived.append)
            parts.durability.when_safe(parts.appending.append(draft()), told.append)
            await turn_until(lambda: arrived and told)
            assert told == [AppendStatus.PUT_OK]


class TestStamping:
    @pytest.mark.parametrize(
        ("text", "level"),
        [
            ("", 0),
            ("DELAY\x013\x02", 3),
            ("K\x01v\x02DELAY\x013", 3),
            ("DELAY\x013\x02DELAY\x01-1\x02", -1),
            ("DELAY\x01+2\x02", 2),
            ("DELAY\x01--2\x02", 0),
            ("DELAY\x01 2\x02", 0),
            ("DELAY\x012.5\x02", 0),
            ("DELAY\x01" + "1" * 5000, 0),
            ("DELAY\x01\u0663\x02", 0),
            ("DELAY\x01-\x02", 0),
            ("DELAY\x01\x02", 0),
            ("DELAYED\x011\x02", 0),
            ("MY_DELAY\x011\x02", 0),
        ],
    )
    def test_a_delay_level_is_a_small_number(self, text: str, level: int) -> None:
        assert delay_level(text) == level

    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            (None, ""),
            ("", ""),
            ("a\x01b", "a\x01b\x02"),
            ("a\x01b\x02", "a\x01b\x02"),
            ("a\x01ü", "a\x01ü\x02"),
            ("a\x01\ud800\x02", "a\x01?\x02"),
        ],
    )
    def test_properties_are_closed_once(self, text: str | None, expected: str) -> None:
        assert closed(text) == expected

    @pytest.mark.parametrize(
        ("name", "expected"),
        [
            *[(name, True) for name in ("POP_CK", "TRAN_MSG", "INNER_NUM")],
            *[(name, True) for name in ("TIMER_DELIVER_MS", "TIMER_DELAY_SEC", "TIMER_DELAY_MS")],
            *[(name, False) for name in ("KEYS", "TAGS", "WAIT", "UNIQ_KEY", "DELAY", "POP_CK_OFFSET")],
        ],
    )
    def test_hardly_any_message_is_unusual(self, name: str, expected: bool) -> None:
        assert is_unusual(f"A\x01b\x02{name}\x01x\x02") is expected

    def test_a_property_that_is_set_replaces_those_of_its_name(self) -> None:
        raw = b"a\x011\x02b\x012\x02a\x013"
        assert with_property(raw, "a", "9") == b"b\x012\x02a\x019\x02"
        assert with_property(b"", "a", "9") == b"a\x019\x02"

    @pytest.mark.parametrize(
        ("value", "expected"), [("true", True), ("True", True), ("1", False), ("", False)]
    )
    def test_only_true_is_true(self, value: str, expected: bool) -> None:
        assert is_true(f"a\x01{value}\x02".encode(), "a") is expected

    async def test_changed_settings_change_the_stamp(self, parts: BrokerParts) -> None:
        broker_properties = BrokerProperties(parts.live)
        parts.change(regionId="R2", traceOn="false")
        assert broker_properties.answer_fields == {"MSG_REGION": "R2", "TRACE_ON": "false"}
        assert broker_properties.reply_suffix == encode_properties(broker_properties.answer_fields)


class TestLanes:
    def request(self, **fields: object) -> SendMessage:
        values: dict[str, object] = {
            "producer_group": "p",
            "topic": TOPIC,
            "default_topic": names.AUTO_CREATE_TOPIC,
            "default_topic_queue_nums": 4,
            "queue_id": 0,
            "sys_flag": 0,
            "born_timestamp": 0,
            "flag": 0,
        }
        return SendMessage(**(values | fields))  # type: ignore[arg-type]

    async def test_an_open_queue_is_found_until_its_topic_changes(self, parts: BrokerParts) -> None:
        writable_queues = WritableQueues(parts.live, parts.tables, parts.clock)
        parts.add_topic(TOPIC)
        parts.add_topic("Other")
        assert writable_queues.find(TOPIC, 0) is None
        queue = writable_queues.open(self.request(), "peer")
        other = writable_queues.open(self.request(topic="Other"), "peer")
        assert (queue, queue.is_plain) == (WritableQueue(TOPIC, 0), True)
        assert writable_queues.find(TOPIC, 0) is queue
        parts.add_topic(TOPIC)
        assert writable_queues.find(TOPIC, 0) is None
        assert writable_queues.find("Other", 0) is other
        parts.topics.delete(TOPIC)
        assert writable_queues.find("Other", 0) is None

    async def test_no_message_overtakes_those_that_wait_for_its_topic(
        self, parts: BrokerParts, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Not even one that comes when the topic is written and the others do not know yet."""
        queues = WritableQueues(parts.live, parts.tables, parts.clock)
        is_written, wakes = False, asyncio.Event()

        async def saved() -> None:
            await wakes.wait()

        monkeypatch.setattr(parts.topics, "is_written", lambda _: is_written)
        monkeypatch.setattr(parts.topics, "saved", saved)
        parts.add_topic(TOPIC)
        order: list[int] = []

        def send(number: int) -> None:
            queues.open(self.request(queue_id=number), "peer")
            order.append(number)

        sent = []
        for number in range(4):
            is_written = number > 1
            if number > 1:
                wakes.set()
            with pytest.raises(NotWrittenYet):
                send(number)
            sent.append(asyncio.ensure_future(queues.when_written(TOPIC, partial(send, number))))
            if number < 2:
                await asyncio.sleep(0)
        await asyncio.gather(*sent)
        assert order == [0, 1, 2, 3]
        send(0)

    async def test_the_last_one_may_give_up_before_the_first_is_over(
        self, parts: BrokerParts, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        queues = WritableQueues(parts.live, parts.tables, parts.clock)
        wakes, order = asyncio.Event(), list[int]()

        async def saved() -> None:
            await wakes.wait()

        monkeypatch.setattr(parts.topics, "saved", saved)
        first = asyncio.ensure_future(queues.when_written(TOPIC, partial(order.append, 0)))
        last = asyncio.ensure_future(queues.when_written(TOPIC, partial(order.append, 1)))
        await asyncio.sleep(0)
        last.cancel()
        await asyncio.wait([last])
        late = asyncio.ensure_future(queues.when_written(TOPIC, partial(order.append, 2)))
        wakes.set()
        await asyncio.gather(first, late)
        assert order == [0, 2]

    async def test_changed_settings_close_every_writable_queue(self, parts: BrokerParts) -> None:
        writable_queues = WritableQueues(parts.live, parts.tables, parts.clock)
        writable_queues.open(self.request(), "peer")
        parts.change(brokerPermission="4")
        assert writable_queues.find(TOPIC, 0) is None

    async def test_queues_with_rules_of_their_own_are_not_plain(self, parts: BrokerParts) -> None:
        writable_queues = WritableQueues(parts.live, parts.tables, parts.clock)
        parts.add_topic("Compact", attributes={"cleanup.policy": "COMPACTION"})
        retry = writable_queues.open(self.request(topic=names.retry_topic("g")), "peer")
        assert (retry.retry_group, retry.is_plain) == ("g", False)
        assert not writable_queues.open(self.request(topic="Compact"), "peer").is_plain
        assert writable_queues.dead_letters("g") == WritableQueue(names.dlq_topic("g"), 0)


def test_the_address_of_a_connection_is_packed_once_and_forgotten_with_it() -> None:
    hosts = BornHosts()
    fake = FakeChannel("10.9.8.7:10911")
    packed = hosts.of(fake)
    assert packed == STORE_HOST
    assert hosts.of(fake) is packed
    fake.close()
    assert repr(hosts) == "<BornHosts connections=0>"


@pytest.mark.parametrize("address", ["[fe80::1%eth0]:99", "[fe80::1]:99"])
def test_the_zone_of_an_address_is_not_part_of_it(address: str) -> None:
    fake = FakeChannel(address)
    assert BornHosts().of(fake) == Host.of("fe80::1", 99).pack()
