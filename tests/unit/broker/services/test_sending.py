"""Sending: what is stored, what is answered, and which error comes first."""

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.broker_parts import (
    CLUSTER,
    PEER,
    BrokerParts,
    FakeChannel,
    at_once,
    broker_parts,
    caller_on,
    refusal,
)
from tests.support.small_stores import STORE_HOST

from pyromq.broker.services.sending import Sending
from pyromq.broker.tables.statistics import SENT_TO_DEAD_LETTERS
from pyromq.clock import elapsed_ms
from pyromq.errors import Refused
from pyromq.protocol import names
from pyromq.protocol.batch import BatchEntry, encode_batch
from pyromq.protocol.body import MessageQueue
from pyromq.protocol.catalogue import RawAnswer
from pyromq.protocol.codes import ResponseCode
from pyromq.protocol.message_id import decode_offset_message_id
from pyromq.protocol.properties import decode_properties, encode_properties
from pyromq.protocol.record import Host, StoredMessage
from pyromq.protocol.requests.sending import SendMessage, SendMessageBatch, SendMessageV2
from pyromq.protocol.requests.topics import TopicFilterType
from pyromq.remoting.routing import Caller
from pyromq.store.faults import Fault

TOPIC = "Orders"
GROUP = "billing"
RETRY = names.retry_topic(GROUP)


class Bench:
    """A sending service with all its parts."""

    def __init__(self, parts: BrokerParts) -> None:
        self.parts = parts
        self.statistics = parts.statistics
        self.writable_queues = parts.inbound.writable_queues
        self.sending = Sending(parts.live, parts.inbound, parts.tables, parts.clock)
        self.caller = caller_on()

    def send(self, caller: Caller | None = None, **fields: Any) -> "RawAnswer | asyncio.Future[RawAnswer]":
        return self.sending.send(request(**fields), caller or self.caller)

    def send_at_once(self, **fields: Any) -> RawAnswer:
        return at_once(self.send(**fields))

    def refused(self, **fields: Any) -> Refused:
        return refusal(lambda: self.send(**fields))

    def batch(self, entries: list[BatchEntry], **fields: Any) -> RawAnswer:
        values = FIELDS | {"body": encode_batch(entries)} | fields
        return at_once(self.sending.send_batch(SendMessageBatch(**values), self.caller))

    def stored(self, topic: str = TOPIC, queue_id: int = 0) -> list[StoredMessage]:
        return self.parts.messages(topic, queue_id)


FIELDS: dict[str, Any] = {
    "producer_group": "producers",
    "topic": TOPIC,
    "default_topic": names.AUTO_CREATE_TOPIC,
    "default_topic_queue_nums": 4,
    "queue_id": 0,
    "sys_flag": 0,
    "born_timestamp": 1_600_000_000_000,
    "flag": 7,
    "properties": "KEYS\x01k1\x02UNIQ_KEY\x01AA\x02",
    "body": b"hello",
}


def request(**fields: Any) -> SendMessage:
    return SendMessage(**(FIELDS | fields))


def texts(**pairs: str) -> str:
    return encode_properties(pairs)


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Callable[..., Bench]]:
    contexts = []

    def build(**settings: Any) -> Bench:
        context = broker_parts(tmp_path, **settings)
        contexts.append(context)
        bench = Bench(context.__enter__())
        bench.parts.add_topic(TOPIC)
        return bench

    yield build
    for context in contexts:
        context.__exit__(None, None, None)


Make = Callable[..., Bench]


class TestStored:
    async def test_a_message_is_stored_as_it_was_sent_and_stamped(self, make: Make) -> None:
        bench = make()
        bench.send(queue_id=2, reconsume_times=3, sys_flag=1)
        (message,) = bench.stored(queue_id=2)
        assert (message.topic, message.body, message.flag, message.sys_flag) == (TOPIC, b"hello", 7, 1)
        assert (message.born_timestamp, message.reconsume_times) == (1_600_000_000_000, 3)
        assert message.store_timestamp == bench.parts.clock.now_ms()
        assert message.properties.decode() == FIELDS["properties"] + texts(
            MSG_REGION="DefaultRegion", TRACE_ON="true", CLUSTER=CLUSTER
        )

    @pytest.mark.parametrize(
        ("address", "host"),
        [
            (PEER, Host.of("10.1.2.3", 40001)),
            ("[2001:db8::1]:5", Host.of("2001:db8::1", 5)),
            ("unknown", Host.of("0.0.0.0", 0)),
        ],
    )
    async def test_a_message_is_born_where_its_connection_comes_from(
        self, make: Make, address: str, host: Host
    ) -> None:
        bench = make()
        bench.send(caller_on(FakeChannel(address)))
        assert bench.stored()[0].born_host == host

    @pytest.mark.parametrize(
        "given", ["", "KEYS\x01k", "KEYS\x01k\x02", "MSG_REGION\x01x\x02CLUSTER\x01y\x02", "a\x01\ud800\x02"]
    )
    async def test_what_the_broker_adds_counts_whatever_was_there_before(
        self, make: Make, given: str
    ) -> None:
        bench = make(broker={"region_id": "R", "trace_on": False})
        bench.send(properties=given)
        stored = bench.stored()[0].property_map()
        expected = decode_properties(given.encode(errors="replace"))
        assert stored == expected | {
            "UNIQ_KEY": stored["UNIQ_KEY"],
            "MSG_REGION": "R",
            "TRACE_ON": "false",
            "CLUSTER": CLUSTER,
        }

    async def test_a_message_without_a_unique_key_gets_one_and_its_producer_is_told(self, make: Make) -> None:
        bench = make()
        answer = bench.send_at_once(properties=None)
        key = bench.stored()[0].get("UNIQ_KEY")
        assert key is not None
        assert (len(key), answer.ext["transactionId"]) == (32, key)

    async def test_a_receipt_of_another_broker_is_removed(self, make: Make) -> None:
        bench = make()
        bench.send(properties=texts(POP_CK="1 2 3", KEYS="POP_CK"))
        stored = bench.stored()[0].property_map()
        assert "POP_CK" not in stored
        assert stored["KEYS"] == "POP_CK"

    async def test_bits_of_a_transaction_are_not_believed(self, make: Make) -> None:
        bench = make()
        bench.send(sys_flag=0x4 | 0x1)
        assert bench.stored()[0].sys_flag == 0x1

    async def test_messages_of_a_topic_with_many_tags_say_so(self, make: Make) -> None:
        bench = make()
        bench.parts.add_topic("Tagged", topic_filter_type=TopicFilterType.MULTI_TAG)
        bench.send(topic="Tagged")
        bench.batch([BatchEntry(b"x")], topic="Tagged")
        assert [message.sys_flag for message in bench.stored("Tagged")] == [0x2, 0x2]

    async def test_all_forms_of_a_send_store_the_same(self, make: Make) -> None:
        bench = make()
        bench.send()
        bench.sending.send_v2(SendMessageV2(**FIELDS), bench.caller)
        first, second = bench.stored()
        assert (first.body, first.properties) == (second.body, second.properties)

    async def test_stored_messages_are_counted(self, make: Make) -> None:
        bench = make()
        bench.send()
        bench.batch([BatchEntry(b"1"), BatchEntry(b"2")])
        bench.refused(body=b"x" * 5_000_000)
        statistics = bench.statistics
        assert (statistics.put_messages, statistics.put_failures) == (3, 1)
        assert statistics.put_bytes == bench.parts.store.statistics().appended_bytes


class TestAnswer:
    async def test_the_answer_has_every_field_that_producers_read(self, make: Make) -> None:
        bench = make()
        bench.send()
        answer = bench.send_at_once()
        message = bench.stored()[1]
        assert answer == RawAnswer(
            ext={
                "msgId": answer.ext["msgId"],
                "queueId": "0",
                "queueOffset": "1",
                "transactionId": "AA",
                "MSG_REGION": "DefaultRegion",
                "TRACE_ON": "true",
            }
        )
        found = decode_offset_message_id(answer.ext["msgId"])
        assert (found.host.pack(), found.log_offset) == (STORE_HOST, message.log_offset)

    async def test_a_batch_is_answered_with_all_its_ids(self, make: Make) -> None:
        bench = make()
        answer = bench.batch([BatchEntry(b"1", b"UNIQ_KEY\x01B1\x02"), BatchEntry(b"2")])
        ids = [decode_offset_message_id(each).log_offset for each in answer.ext["msgId"].split(",")]
        assert ids == [message.log_offset for message in bench.stored()]
        assert (answer.ext["queueOffset"], answer.ext["transactionId"]) == ("0", "AA")

    async def test_a_delayed_message_is_parked_and_answered_with_its_own_queue(self, make: Make) -> None:
        bench = make()
        answer = bench.send_at_once(queue_id=3, properties=texts(DELAY="2", TIMER_DELAY_SEC="9"))
        (message,) = bench.stored(names.SCHEDULE_TOPIC, 1)
        assert (answer.ext["queueId"], answer.ext["queueOffset"]) == ("3", "0")
        assert (message.get("REAL_TOPIC"), message.get("REAL_QID")) == (TOPIC, "3")
        assert message.get("TIMER_DELAY_SEC") is None
        assert bench.stored(queue_id=3) == []

    async def test_a_negative_queue_id_lets_the_broker_choose(self, make: Make) -> None:
        bench = make()
        assert bench.send_at_once(queue_id=-1).ext["queueId"] == "3"
        assert len(bench.stored(queue_id=3)) == 1


class TestTopics:
    async def test_an_unknown_topic_is_created_after_the_default_topic(self, make: Make) -> None:
        bench = make()
        bench.send(topic="New", default_topic_queue_nums=3, unit_mode=True)
        config = bench.parts.topics.get("New")
        assert config is not None
        assert (config.write_queue_nums, config.perm, config.topic_sys_flag) == (3, 6, 1)

    async def test_a_retry_topic_is_created_even_where_topics_are_not(self, make: Make) -> None:
        bench = make(broker={"auto_create_topics": False})
        bench.send(topic=RETRY, unit_mode=True)
        config = bench.parts.topics.get(RETRY)
        assert config is not None
        assert (config.write_queue_nums, config.topic_sys_flag) == (1, 2)

    async def test_a_changed_topic_is_noticed_by_the_next_send(self, make: Make) -> None:
        bench = make()
        bench.send(queue_id=3)
        bench.parts.add_topic(TOPIC, queues=2)
        assert bench.refused(queue_id=3).code == ResponseCode.INVALID_PARAMETER

    async def test_a_deleted_topic_is_noticed_by_the_next_send(self, make: Make) -> None:
        bench = make(broker={"auto_create_topics": False})
        bench.send()
        bench.parts.topics.delete(TOPIC)
        assert bench.refused().code == ResponseCode.TOPIC_NOT_EXIST

    async def test_queues_that_can_only_be_read_may_still_be_sent_to(self, make: Make) -> None:
        bench = make()
        config = bench.parts.add_topic("Shrinking", queues=4)
        config.write_queue_nums = 2
        bench.parts.topics.update(config)
        bench.send(topic="Shrinking", queue_id=3)
        assert bench.refused(topic="Shrinking", queue_id=4).code == ResponseCode.INVALID_PARAMETER

    async def test_an_unwriteable_broker_refuses_ordered_topics_only(self, make: Make) -> None:
        bench = make()
        bench.parts.add_topic("Ordered", order=True)
        bench.send(topic="Ordered")
        bench.parts.change(brokerPermission="4")
        assert bench.refused(topic="Ordered").code == ResponseCode.NO_PERMISSION
        bench.send_at_once()

    async def test_sends_are_refused_before_the_time_that_is_set(self, make: Make) -> None:
        bench = make()
        bench.send()
        bench.parts.change(startAcceptSendRequestTimeStamp=str(bench.parts.clock.now_ms() + 1000))
        assert bench.refused().code == ResponseCode.SYSTEM_ERROR
        bench.parts.clock.advance(1)
        await asyncio.sleep(0)
        bench.send_at_once()


ILLEGAL, PARAMETER = ResponseCode.MESSAGE_ILLEGAL, ResponseCode.INVALID_PARAMETER
FORBIDDEN, ERROR = ResponseCode.NO_PERMISSION, ResponseCode.SYSTEM_ERROR


@pytest.mark.parametrize(
    ("fields", "code", "remark"),
    [
        ({"topic": ""}, PARAMETER, "blank"),
        ({"topic": "a/b"}, PARAMETER, "illegal characters"),
        ({"topic": "a" * 128}, PARAMETER, "longer than 127"),
        *[({"topic": topic}, FORBIDDEN, "clients may not send") for topic in sorted(names.UNSENDABLE_TOPICS)],
        ({"topic": "New", "default_topic": "Nothing"}, ResponseCode.TOPIC_NOT_EXIST, "does not exist"),
        ({"topic": "New", "default_topic": TOPIC}, ResponseCode.TOPIC_NOT_EXIST, "does not exist"),
        ({"queue_id": 4}, PARAMETER, "no queue 4"),
        ({"topic": "New", "default_topic_queue_nums": -1}, PARAMETER, "no queue 0"),
        ({"topic": "New", "default_topic_queue_nums": 0, "queue_id": -1}, ERROR, "has no write queues"),
        ({"topic": "Compact", "properties": None}, ILLEGAL, "needs a key"),
        ({"topic": "Compact", "properties": "KEYS\x01 \x02"}, ILLEGAL, "needs a key"),
        ({"body": b""}, ILLEGAL, "no body"),
        ({"properties": "INNER_NUM\x012\x02"}, ILLEGAL, "inner batches are not supported"),
        ({"sys_flag": 0x80}, ILLEGAL, "inner batches are not supported"),
        ({"properties": "TIMER_DELIVER_MS\x01soon\x02"}, ILLEGAL, "TIMER_DELIVER_MS is 'soon', not a number"),
        ({"properties": "TIMER_DELAY_SEC\x01259201\x02"}, ILLEGAL, "expected at most 259200000 ms"),
        ({"properties": "a\x01" + "b" * 32_700 + "\x02"}, ILLEGAL, "the properties have"),
        ({"body": b"x" * 4_194_305}, ILLEGAL, "the maximum is 4194304"),
        ({"topic": "%DLQ%" + "g" * 123}, ILLEGAL, "128 bytes"),
        ({"batch": True, "body": b"no batch"}, ILLEGAL, "batch entry at 0"),
        ({"batch": True, "body": b""}, ILLEGAL, "no messages"),
        ({"batch": True, "topic": RETRY}, ILLEGAL, "retry topic"),
        ({"batch": True, "topic": "%DLQ%" + "g" * 123}, ILLEGAL, "at most 127"),
        ({"batch": True, "properties": "DELAY\x013\x02"}, ILLEGAL, "cannot be delayed"),
        ({"batch": True, "properties": "TIMER_DELAY_MS\x013\x02"}, ILLEGAL, "time of delivery"),
    ],
)
async def test_what_is_wrong_with_a_message_is_refused_and_named(
    make: Make, fields: dict[str, Any], code: int, remark: str
) -> None:
    bench = make()
    bench.parts.add_topic("Compact", attributes={"cleanup.policy": "COMPACTION"})
    refused = bench.refused(**fields)
    assert refused.code == code
    assert refused.remark is not None
    assert remark in refused.remark
    assert bench.parts.store.statistics().appended_messages == 0


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"topic": "a/b", "queue_id": 99}, PARAMETER),
        ({"topic": names.SCHEDULE_TOPIC, "queue_id": 99}, FORBIDDEN),
        ({"topic": "Compact", "body": b"", "properties": None}, ILLEGAL),
        ({"body": b"", "properties": "TRAN_MSG\x01true\x02"}, ILLEGAL),
        ({"body": b"", "properties": "TIMER_DELAY_SEC\x011\x02"}, ILLEGAL),
        ({"queue_id": 99, "properties": "TRAN_MSG\x01true\x02"}, PARAMETER),
    ],
)
async def test_of_several_things_that_are_wrong_the_first_is_told(
    make: Make, fields: dict[str, Any], code: int
) -> None:
    bench = make()
    bench.parts.add_topic("Compact", attributes={"cleanup.policy": "COMPACTION"})
    assert bench.refused(**fields).code == code


@pytest.mark.parametrize(
    "properties",
    [
        "TRAN_MSG\x01false\x02",
        "KEYS\x01TRAN_MSG\x02",
        "TIMER_DELAY_SEC\x011\x02TIMER_OUT_MS\x015\x02",
        "TIMER_DELAY_SEC\x01\x02",
        "DELAY\x01-1\x02",
        "DELAY\x01soon\x02",
        "DELAY\x01" + "9" * 5000 + "\x02",
    ],
)
async def test_a_message_that_only_looks_unusual_is_stored(make: Make, properties: str) -> None:
    bench = make()
    bench.send_at_once(properties=properties)
    assert len(bench.stored()) == 1


@pytest.mark.parametrize(
    "fields",
    [
        {"properties": "TRAN_MSG\x01true\x02"},
        {"properties": "TRAN_MSG\x01TRUE", "reconsume_times": 1},
        {"properties": "TRAN_MSG\x01true\x02", "body": b""},
    ],
)
async def test_transactions_that_the_settings_forbid_are_refused_for_that_reason(
    make: Make, fields: dict[str, Any]
) -> None:
    bench = make(broker={"reject_transaction_messages": True})
    refused = bench.refused(**fields)
    assert (refused.code, "rejectTransactionMessage is on" in (refused.remark or "")) == (FORBIDDEN, True)


class TestRetries:
    """Consumers that retry by sending the message again."""

    @pytest.mark.parametrize(
        ("reconsume_times", "max_times", "version", "target"),
        [
            (16, None, 479, RETRY),
            (17, None, 479, names.dlq_topic(GROUP)),
            (3, 2, 479, names.dlq_topic(GROUP)),
            (2, 2, 479, RETRY),
            (3, 2, 120, RETRY),
        ],
    )
    async def test_a_message_is_dead_after_too_many_times(
        self, make: Make, reconsume_times: int, max_times: int | None, version: int, target: str
    ) -> None:
        bench = make()
        bench.send(
            caller_on(version=version),
            topic=RETRY,
            reconsume_times=reconsume_times,
            max_reconsume_times=max_times,
            properties=texts(KEYS="k", RETRY_TOPIC=TOPIC),
        )
        (message,) = bench.stored(target)
        assert message.get("DELAY") == (None if target == RETRY else "-1")
        assert message.reconsume_times == reconsume_times
        dead = {} if target == RETRY else {f"{TOPIC}@{GROUP}": 1}
        assert bench.statistics.counted(SENT_TO_DEAD_LETTERS) == dead

    async def test_a_dead_message_is_not_delayed_any_more(self, make: Make) -> None:
        bench = make()
        answer = bench.send_at_once(topic=RETRY, reconsume_times=17, properties=texts(DELAY="3", KEYS="k"))
        (message,) = bench.stored(names.dlq_topic(GROUP))
        assert message.get("DELAY") == "-1"
        assert answer.ext["queueId"] == "0"

    async def test_a_group_that_consumes_in_order_has_given_up(self, make: Make) -> None:
        bench = make()
        queue = MessageQueue(topic=TOPIC, broker_name="b", queue_id=0)
        bench.parts.locks.acquire(GROUP, "client", [queue], elapsed_ms(bench.parts.clock))
        bench.send(topic=RETRY)
        bench.parts.clock.advance(61)
        await asyncio.sleep(0)
        bench.send(topic=RETRY)
        assert len(bench.stored(names.dlq_topic(GROUP))) == 1
        assert len(bench.stored(RETRY)) == 1

    async def test_a_group_that_does_not_exist_has_no_retries(self, make: Make) -> None:
        bench = make(broker={"auto_create_groups": False})
        assert bench.refused(topic=RETRY).code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST

    async def test_an_old_consumer_may_retry_a_message_of_a_transaction(self, make: Make) -> None:
        bench = make()
        bench.send(topic=RETRY, reconsume_times=1, sys_flag=4, properties=texts(TRAN_MSG="true", DELAY="3"))
        assert len(bench.stored(names.SCHEDULE_TOPIC, 2)) == 1


class TestSafety:
    async def test_with_synchronous_flush_the_answer_waits_for_the_disk(self, make: Make) -> None:
        bench = make(store={"flush_disk_type": "SYNC_FLUSH"})
        waiting = bench.send()
        assert isinstance(waiting, asyncio.Future)
        answer = await waiting
        assert (answer.code, answer.ext["queueOffset"]) == (ResponseCode.SUCCESS, "0")
        assert bench.parts.store.flushes.offset == bench.stored()[0].size_bytes

    async def test_a_batch_waits_as_well(self, make: Make) -> None:
        bench = make(store={"flush_disk_type": "SYNC_FLUSH"})
        waiting = bench.send(batch=True, body=encode_batch([BatchEntry(b"1")]))
        assert isinstance(waiting, asyncio.Future)
        assert (await waiting).code == ResponseCode.SUCCESS

    async def test_a_message_that_does_not_want_to_wait_is_answered_at_once(self, make: Make) -> None:
        bench = make(store={"flush_disk_type": "SYNC_FLUSH"})
        assert bench.send_at_once(properties=texts(WAIT="false")).code == ResponseCode.SUCCESS

    async def test_a_flush_that_is_late_is_told(self, make: Make) -> None:
        bench = make(store={"flush_disk_type": "SYNC_FLUSH"})
        # Nobody flushes any more, so the time-out is what ends the wait.
        bench.parts.store._flusher.stop()
        waiting = bench.send()
        assert isinstance(waiting, asyncio.Future)
        bench.parts.clock.advance(6)
        bench.parts.store.flushes.settle()
        answer = await waiting
        assert answer.code == ResponseCode.FLUSH_DISK_TIMEOUT
        assert answer.ext["queueOffset"] == "0"

    async def test_a_store_that_takes_nothing_says_why(self, make: Make) -> None:
        bench = make()
        bench.parts.store._faults.refuse(Fault.DISK_FULL, "the disk is 99% full")
        refused = bench.refused()
        assert (refused.code, refused.remark) == (
            ResponseCode.SERVICE_NOT_AVAILABLE,
            "the disk is 99% full",
        )


class TestPressure:
    async def test_what_waited_too_long_in_one_turn_is_refused(self, make: Make) -> None:
        bench = make()
        bench.send_at_once()
        bench.parts.clock.advance(0.15)
        bench.send_at_once()
        bench.parts.clock.advance(0.15)
        refused = bench.refused()
        assert refused.code == ResponseCode.SYSTEM_BUSY
        assert (refused.remark or "").startswith("[TIMEOUT_CLEAN_QUEUE]")

    async def test_what_comes_after_the_turn_has_not_waited(self, make: Make) -> None:
        bench = make()
        bench.send_at_once()
        bench.parts.clock.advance(0.5)
        bench.refused()
        await asyncio.sleep(0)
        bench.send_at_once()

    @pytest.mark.parametrize("fast_failure", [True, False])
    async def test_an_append_that_stalled_is_named(self, make: Make, fast_failure: bool) -> None:
        bench = make(broker={"fast_failure": fast_failure})
        bench.send_at_once()
        bench.parts.clock.advance(1.5)
        refused = bench.refused()
        assert refused.code == ResponseCode.SYSTEM_BUSY
        assert (refused.remark or "").startswith("[PCBUSY_CLEAN_QUEUE]")
        assert "1500 ms" in (refused.remark or "")

    async def test_without_fast_failure_waiting_is_no_reason(self, make: Make) -> None:
        bench = make(broker={"fast_failure": False})
        for _ in range(4):
            bench.send_at_once()
            bench.parts.clock.advance(0.9)


@pytest.mark.parametrize(
    ("properties", "queue_id", "kept"),
    [
        ({"_SYS_MSG_PRIORITY_": "3"}, 3, "3"),
        ({"_SYS_MSG_PRIORITY_": "0"}, 0, "0"),
        ({"_SYS_MSG_PRIORITY_": "99"}, 3, "99"),
        ({"_SYS_MSG_PRIORITY_": "-1"}, 1, "-1"),
        ({"_SYS_MSG_PRIORITY_": "high"}, 1, "high"),
        ({"_SYS_MSG_PRIORITY_": "3", "__SHARDINGKEY": "k"}, 1, None),
    ],
)
async def test_the_priority_of_a_message_is_its_queue(
    make: Callable[..., Bench], properties: dict[str, str], queue_id: int, kept: str | None
) -> None:
    bench = make()
    answer = bench.send_at_once(queue_id=1, properties=encode_properties(properties))
    assert answer.ext["queueId"] == str(queue_id)
    (message,) = bench.parts.messages(TOPIC, queue_id)
    assert message.get("_SYS_MSG_PRIORITY_") == kept
