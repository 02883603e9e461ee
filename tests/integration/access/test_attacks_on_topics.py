"""What a user with few rights tries at a broker: topics, groups, transactions and receipts of others.

Bob may send to the topic Orders and read it with the group shop. Somebody else has the topic Secrets and the
group vault. Requests that ask for no answer are tried as well: nothing may come of them.
"""

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from tests.support.access import ROOT, SECURE, client, grant, is_refused, user_creation
from tests.support.broker_cluster import (
    CLUSTER,
    BrokerClient,
    consumer,
    message,
    pull,
    running_broker,
    topic_creation,
)
from tests.support.guarded_servers import BOB, RIGHTS
from tests.support.replicas import until
from tests.support.signing import signer
from tests.support.small_stores import read_queue
from tests.support.wire_client import WireClient

from pyromq.broker.broker import Broker
from pyromq.protocol.batch import BatchEntry, encode_batch
from pyromq.protocol.catalogue import Request, encode_request
from pyromq.protocol.codes import ResponseCode
from pyromq.protocol.frame import ONEWAY_FLAG
from pyromq.protocol.message_id import encode_offset_message_id
from pyromq.protocol.names import (
    CHECK_MAX_TIME_TOPIC,
    KEPT_TOPICS,
    REVIVE_GROUP,
    dlq_topic,
    reply_topic,
    retry_topic,
    revive_topic,
)
from pyromq.protocol.pop_receipt import PopReceipt, decode_pop_receipt, decode_start_offsets
from pyromq.protocol.popped import ack_request, change_request, find_request
from pyromq.protocol.properties import encode_properties
from pyromq.protocol.record import StoredMessage, decode_records
from pyromq.protocol.requests.access import ListUsers
from pyromq.protocol.requests.membership import UnregisterClient
from pyromq.protocol.requests.offsets import UpdateConsumerOffset
from pyromq.protocol.requests.popping import AckMessages, BatchAck, BatchAckMessageRequestBody, PopMessage
from pyromq.protocol.requests.pulling import QueryMessage
from pyromq.protocol.requests.pushes import PushReply
from pyromq.protocol.requests.sending import SendMessageBack, SendReply
from pyromq.protocol.requests.topics import DeleteTopicFromBroker
from pyromq.protocol.requests.transactions import EndTransaction, ResumeTransactionCheck

UNIQUE = {"UNIQ_KEY": "7F00000100002A9F000000000000AC01"}
SECRET = b"what only others may read"
EVERYTHING_BUT = ("Pub,Sub,Get on Topic:*", "Sub on Group:shop", "not Pub,Sub,Get on Topic:Secrets")
"""The rights of somebody for whom one topic is closed."""


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    async with running_broker(tmp_path, **SECURE, auto_create_topics=True) as broker:
        async with client(broker.address, ROOT) as root:
            await root.call(user_creation(BOB))
            await root.call(grant(BOB, *RIGHTS))
            for topic in ("Orders", "Secrets"):
                await root.create_topic(topic)
            await root.heartbeat(consumer("shop"), consumer("vault", "Secrets"))
        yield broker


@asynccontextmanager
async def both(broker: Broker) -> AsyncIterator[tuple[BrokerClient, BrokerClient]]:
    async with (
        client(broker.address, ROOT, client_id="root") as root,
        client(broker.address, BOB, client_id="bob") as bob,
    ):
        yield root, bob


def state(broker: Broker) -> Any:
    return broker.statistics().topics, broker.store.log.end


def records(broker: Broker, topic: str) -> list[StoredMessage]:
    while broker.store.has_dispatch_work:
        broker.store.dispatch()
    return read_queue(broker.store, topic)


async def attempt(broker: Broker, *requests: Request[Any]) -> None:
    """Bob sends each of them with and without a wish for an answer; nothing comes of it."""
    sign, before = signer(BOB), state(broker)
    frames = []
    for opaque, request in enumerate(requests):
        for flag in (0, ONEWAY_FLAG):
            frame = encode_request(request, opaque)
            frame.flag |= flag
            sign(frame)
            frames.append(frame)
    last = encode_request(ListUsers(), len(requests))
    async with await WireClient.connect(broker.address) as wire:
        wire.send(*frames, last)
        answers = {answer.opaque: answer.code for answer in await wire.frames(len(requests) + 1)}
    for opaque, request in enumerate(requests):
        assert answers[opaque] == ResponseCode.NO_PERMISSION, request
    assert state(broker) == before


def sends_to(topic: str) -> list[Request[Any]]:
    """A message, one that may take the fast path, a batch, a half message, a delayed one, and a reply."""
    entries = encode_batch([BatchEntry(b"1"), BatchEntry(b"2")])
    plain = message(topic=topic)
    reply = {name: getattr(plain, name) for name in SendReply.__struct_fields__ if hasattr(plain, name)}
    return [
        plain,
        message(topic=topic, properties=UNIQUE),
        message(entries, topic, batch=True),
        message(topic=topic, properties={**UNIQUE, "TRAN_MSG": "true", "PGROUP": "p"}, sys_flag=4),
        message(topic=topic, properties={**UNIQUE, "DELAY": "1"}),
        message(topic=topic, reconsume_times=99, max_reconsume_times=1),
        SendReply(**reply),
    ]


@pytest.mark.parametrize(
    "topic",
    [
        "Secrets",
        "NewOne",
        retry_topic("vault"),
        f"{retry_topic('vault')}_Secrets",
        dlq_topic("vault"),
        dlq_topic("shop"),
        revive_topic(CLUSTER),
        *sorted(KEPT_TOPICS),
    ],
)
async def test_nothing_is_sent_to_topics_of_others_and_of_the_system(broker: Broker, topic: str) -> None:
    async with both(broker) as (_, bob):
        await bob.send(properties=UNIQUE)
        assert await is_refused(bob, pull(0, topic))
    await attempt(broker, *sends_to(topic), pull(0, topic))


async def test_who_may_send_to_every_topic_but_one_writes_nothing_into_those_that_brokers_keep(
    broker: Broker,
) -> None:
    """A record in the revive log makes the broker hand out the message that it names; one among the half
    messages becomes a message of any topic."""
    async with both(broker) as (root, bob):
        await root.call(grant(BOB, *EVERYTHING_BUT))
        await bob.send(topic="Another", properties=UNIQUE)
        await root.call(grant(BOB, "All on Topic:*", "All on Group:*", "not All on Topic:Secrets"))
    for topic in (revive_topic(CLUSTER), *KEPT_TOPICS):
        offset = UpdateConsumerOffset(
            consumer_group=REVIVE_GROUP, topic=topic, queue_id=0, commit_offset=1 << 40
        )
        changes = topic_creation(topic, 1), DeleteTopicFromBroker(topic=topic), offset
        await attempt(broker, *sends_to(topic), *changes)


async def test_a_closed_topic_is_not_read_where_brokers_keep_its_messages(broker: Broker) -> None:
    async with both(broker) as (root, bob):
        await root.call(grant(BOB, *EVERYTHING_BUT))
        closed = {**UNIQUE, "KEYS": "k"}
        await root.send(SECRET, "Secrets", properties=closed | {"DELAY": "18"})
        await root.send(SECRET, "Secrets", properties=closed | {"TIMER_DELAY_SEC": "3000"})
        await root.send(SECRET, "Secrets", properties=closed | {"TRAN_MSG": "true"}, sys_flag=4)
        for topic in KEPT_TOPICS:
            assert await is_refused(bob, pull(0, topic)), topic
            assert await is_refused(bob, pop(topic=topic)), topic
            for key in ("k", UNIQUE["UNIQ_KEY"]):
                query = QueryMessage(
                    topic=topic, key=key, max_num=9, begin_timestamp=0, end_timestamp=1 << 62
                )
                assert await is_refused(bob, query), topic


async def test_a_reply_reaches_the_client_of_its_id_and_not_another_user_who_claims_the_id(
    broker: Broker,
) -> None:
    async with (
        client(broker.address, ROOT, client_id="waiting") as waiting,
        client(broker.address, BOB, client_id="waiting") as thief,
        client(broker.address, ROOT, client_id="answering") as answering,
    ):
        await waiting.heartbeat(producers=("askers",))
        await thief.heartbeat(producers=("askers", "others"))
        sent = message(SECRET, reply_topic(CLUSTER))
        fields = {name: getattr(sent, name) for name in SendReply.__struct_fields__ if hasattr(sent, name)}
        fields["properties"] = encode_properties({"REPLY_TO_CLIENT": "waiting", "CORRELATION_ID": "1"})
        reply = SendReply(**fields)
        await answering.call(reply)
        assert isinstance(await waiting.next_push(), PushReply)
        assert thief.pushed.empty()
        # A client that connects anew is the same user, and gets its replies.
        async with client(broker.address, ROOT, client_id="waiting") as again:
            await again.heartbeat(producers=("askers",))
            await answering.call(reply)
            assert isinstance(await again.next_push(), PushReply)


async def test_messages_are_not_sent_back_for_groups_of_others(broker: Broker) -> None:
    async with both(broker) as (root, bob):
        await root.send(SECRET, "Secrets")
        await bob.send()
    own = next(each.log_offset for each in records(broker, "Orders"))
    secret = next(each.log_offset for each in records(broker, "Secrets"))
    back = SendMessageBack(group="vault", offset=own, delay_level=0)
    await attempt(
        broker,
        back,
        replace(back, origin_topic="Orders"),
        replace(back, delay_level=-1),
        replace(back, offset=secret),
        replace(back, group="shop", offset=secret, origin_topic="Orders"),
        replace(back, group="shop", offset=secret, delay_level=-1),
    )


async def test_members_offsets_and_clients_of_other_groups_stay_as_they_are(broker: Broker) -> None:
    async with both(broker) as (root, bob):
        await root.heartbeat(consumer("vault", "Secrets"), producers=("tills",))
        offset = UpdateConsumerOffset(consumer_group="vault", topic="Secrets", queue_id=0, commit_offset=9)
        mixed = replace(offset, topic="Orders")
        leaving = UnregisterClient(client_id="root", consumer_group="vault")
        await attempt(broker, offset, mixed, leaving)
        await bob.call(UnregisterClient(client_id="root", producer_group="tills"))
        assert "vault" in {group.name for group in broker._started.tables.consumers}
        assert broker._started.tables.producers.find("root") is not None


async def test_transactions_of_others_are_not_ended_by_forged_offsets(broker: Broker) -> None:
    half = {**UNIQUE, "TRAN_MSG": "true", "PGROUP": "tills"}
    async with both(broker) as (root, bob):
        secret = await root.send(SECRET, "Secrets", properties=half, sys_flag=4)
        own = await bob.send(properties=half, sys_flag=4)
        end = EndTransaction(
            producer_group="tills",
            tran_state_table_offset=secret.queue_offset,
            commit_log_offset=0,
            commit_or_rollback=8,
            msg_id=UNIQUE["UNIQ_KEY"],
        )
        forged = [
            replace(end, topic=topic, commit_or_rollback=how) for topic in (None, "Orders") for how in (8, 12)
        ]
        await attempt(broker, *forged, replace(end, topic="Secrets"))
        # His own half message, with the offset of the other one in the queue.
        own_offset = next(
            each.log_offset for each in records(broker, "RMQ_SYS_TRANS_HALF_TOPIC") if each.body != SECRET
        )
        mixed = replace(end, commit_log_offset=own_offset)
        assert (await bob.refusal(mixed)).code == ResponseCode.SYSTEM_ERROR
        assert broker.store.queues.max_offset("Secrets", 0) == 0
        await bob.call(replace(mixed, tran_state_table_offset=own.queue_offset))
        await root.call(end)
        assert [each.body for each in records(broker, "Secrets")] == [SECRET]


async def test_transactions_of_others_that_were_given_up_are_not_checked_again(tmp_path: Path) -> None:
    at_once: dict[str, Any] = {
        "transaction_timeout_ms": 0,
        "transaction_check_interval_ms": 20,
        "transaction_op_interval_ms": 20,
        "transaction_check_max": 0,
    }
    half = {**UNIQUE, "TRAN_MSG": "true", "PGROUP": "tills"}
    async with running_broker(tmp_path, **SECURE, **at_once) as broker, both(broker) as (root, bob):
        await root.call(user_creation(BOB))
        await root.call(grant(BOB, "All on Topic:Orders"))
        await root.create_topic("Secrets")
        await root.send(SECRET, "Secrets", properties=half, sys_flag=4)
        await until(lambda: broker.store.queues.max_offset(CHECK_MAX_TIME_TOPIC, 0) > 0)
        (given_up,) = records(broker, CHECK_MAX_TIME_TOPIC)
        place = encode_offset_message_id(given_up.store_host, given_up.log_offset)
        assert await is_refused(bob, ResumeTransactionCheck(topic="Orders", msg_id=place))
        await root.call(ResumeTransactionCheck(topic="Orders", msg_id=place))


def pop(topic: str = "Orders", group: str = "shop") -> PopMessage:
    return PopMessage(
        consumer_group=group,
        topic=topic,
        queue_id=0,
        max_msg_nums=1,
        invisible_time=60_000,
        poll_time=0,
        born_time=time.time_ns() // 1_000_000,
        init_mode=0,
    )


async def popped(asking: BrokerClient, topic: str, group: str) -> PopReceipt:
    answer = await asking.call(pop(topic, group))
    (found,) = decode_records(answer.body)
    if (own := found.get("POP_CK")) is not None:
        return decode_pop_receipt(own)
    start = decode_start_offsets(answer.start_offset_info or "")["0", 0]
    return PopReceipt(
        start,
        answer.pop_time,
        answer.invisible_time,
        answer.revive_qid,
        "0",
        "broker-a",
        0,
        found.queue_offset,
    )


async def test_receipts_of_other_groups_are_of_no_use(broker: Broker) -> None:
    async with both(broker) as (root, _):
        await root.send(SECRET, "Secrets")
        await root.send(topic="Orders")
        secret = await popped(root, "Secrets", "vault")
        others = await popped(root, "Orders", "vault")
        requests: list[Request[Any]] = []
        for receipt, topic in ((secret, "Secrets"), (others, "Orders")):
            for form in (receipt, replace(receipt, retry_mark="1"), replace(receipt, retry_mark="2")):
                requests += (
                    ack_request(form, topic, "vault", 0),
                    change_request(form, topic, "vault", 0, 0),
                    find_request(form, topic, "vault", 0),
                )
        batch = BatchAck(
            bit_set=b"\1",
            consumer_group="vault",
            invisible_time=others.invisible_time_ms,
            pop_time=others.pop_time_ms,
            queue_id=0,
            retry="0",
            revive_queue_id=others.revive_queue_id,
            start_offset=0,
            topic="Orders",
        )
        own = replace(batch, consumer_group="shop")
        for acks in ([batch], [own, batch], [replace(own, topic="Secrets")]):
            requests.append(AckMessages(body=BatchAckMessageRequestBody(acks=acks, broker_name="broker-a")))
        await attempt(broker, *requests, pop("Secrets", "shop"), pop("Orders", "vault"))
        await root.call(ack_request(secret, "Secrets", "vault", 0))
        await root.call(ack_request(others, "Orders", "vault", 0))


async def test_a_member_acknowledges_what_was_delivered_again(broker: Broker) -> None:
    """Retries of popped messages are in a topic whose name has the group and the topic."""
    async with both(broker) as (_, bob):
        await bob.send()
        receipt = await popped(bob, "Orders", "shop")
        for mark in ("1", "2"):
            ack = ack_request(replace(receipt, retry_mark=mark), "Orders", "shop", 0)
            assert (await bob.refusal(ack)).code != ResponseCode.NO_PERMISSION

        # To read them takes a right to the group whose retries have the same name, on the fast path as well.
        for _ in range(2):
            assert await is_refused(bob, pull(0, f"{retry_topic('shop')}_Orders"))


async def test_rights_of_a_namespace_end_at_its_border(broker: Broker) -> None:
    async with both(broker) as (root, bob):
        await root.call(grant(BOB, "All on Topic:east%*", "All on Group:east%*"))
        for topic in ("east%Orders", "west%Orders", "eastern%Orders"):
            await root.create_topic(topic)
        await root.heartbeat(consumer("west%shop", "west%Orders"), consumer("east%shop", "east%Orders"))
        await bob.send(topic="east%Orders")
        await bob.call(pull(0, "east%Orders", group="east%shop"))
        await bob.call(pull(0, retry_topic("east%shop"), group="east%shop"))
    across = (
        "west%Orders",
        "eastern%Orders",
        "Orders%east%",
        retry_topic("west%shop"),
        dlq_topic("east%shop"),
    )
    for topic in across:
        named = replace(message(topic=topic), namespace_name="east", is_namespaced=True)
        await attempt(broker, *sends_to(topic), named, pull(0, topic, group="east%shop"))
    await attempt(broker, pull(0, "east%Orders", group="west%shop"))
