"""Transactions against a broker that plays its part by script."""

import asyncio
import socket
import threading
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import timedelta

import pytest
from tests.conftest import ErrorLogs
from tests.support.scripted_broker import ScriptedBroker

from pyromq import TransactionProducer, aio
from pyromq.client.transactions import TransactionState
from pyromq.client.values import Message, ReceivedMessage
from pyromq.errors import BadMessage, Refused, SendFailed, StateError, TransportError
from pyromq.protocol.properties import encode_properties, get_property
from pyromq.protocol.record import Host, StoredMessage, encode_record
from pyromq.protocol.requests.inspection import GetConsumerRunningInfo
from pyromq.protocol.requests.pushes import CheckTransactionState
from pyromq.remoting.addresses import format_address

COMMIT, ROLLBACK, UNKNOWN = TransactionState.COMMIT, TransactionState.ROLLBACK, TransactionState.UNKNOWN


@pytest.fixture
async def broker() -> AsyncIterator[ScriptedBroker]:
    async with ScriptedBroker("Orders", "RMQ_SYS_TRACE_TOPIC") as running:
        yield running


def never(_: object) -> TransactionState:
    raise AssertionError("nobody asked for this")


def half(group: str = "orders", key: str = "AAAA") -> bytes:
    """A prepared message, as a broker shows it when it asks."""
    properties = {"PGROUP": group, "UNIQ_KEY": key, "TRAN_MSG": "true", "KEYS": "o-1"}
    return encode_record(
        StoredMessage(
            "Orders",
            b"paid?",
            encode_properties(properties).encode(),
            queue_id=1,
            born_host=Host.of("127.0.0.1", 1),
            store_host=Host.of("127.0.0.1", 10911),
            log_offset=77,
        )
    )


def question(**fields: str) -> CheckTransactionState:
    return CheckTransactionState(
        topic="RMQ_SYS_TRANS_HALF_TOPIC",
        tran_state_table_offset=5,
        commit_log_offset=77,
        msg_id="AAAA",
        transaction_id="tx-1",
        target_broker_name="scripted",
        body=half(**fields),
    )


@pytest.mark.parametrize(("state", "bits"), [(COMMIT, 8), (ROLLBACK, 12), (UNKNOWN, 0)])
async def test_the_broker_learns_how_the_local_transaction_ended(
    broker: ScriptedBroker, state: TransactionState, bits: int
) -> None:
    async def work(message: Message) -> TransactionState:
        [sent] = broker.sent
        assert message.body == b"paid"
        assert sent.sys_flag & 0xC == 4, "it is prepared, nobody sees it yet"
        return state

    async with aio.TransactionProducer("orders", broker.address, check=never) as producer:
        result = await producer.send_in_transaction(Message("Orders", b"paid"), work)
        end = await broker.ended.get()
    [sent] = broker.sent
    assert result.state is state
    assert get_property(sent.properties or "", "TRAN_MSG") == "true"
    assert get_property(sent.properties or "", "PGROUP") == "orders"
    assert end.commit_or_rollback == bits
    assert end.from_transaction_check is False
    assert (end.tran_state_table_offset, end.commit_log_offset) == (1, 1001)
    assert (end.msg_id, end.transaction_id) == (result.send_result.message_id, "transaction-1")
    assert (end.producer_group, end.topic) == ("orders", "Orders")


async def test_a_plain_function_runs_on_a_thread(broker: ScriptedBroker) -> None:
    threads: list[threading.Thread] = []

    def work(_: Message) -> TransactionState:
        threads.append(threading.current_thread())
        return COMMIT

    async with aio.TransactionProducer("orders", broker.address, check=never) as producer:
        await producer.send_in_transaction(Message("Orders", b"paid"), work)
    assert threads != [threading.current_thread()]


async def test_a_failing_local_transaction_is_unknown_and_raises(broker: ScriptedBroker) -> None:
    async def work(_: Message) -> TransactionState:
        raise ValueError("no money")

    async with aio.TransactionProducer("orders", broker.address, check=never) as producer:
        with pytest.raises(ValueError, match="no money"):
            await producer.send_in_transaction(Message("Orders", b"paid"), work)
        end = await broker.ended.get()
    assert (end.commit_or_rollback, end.remark) == (0, "ValueError: no money")


async def test_what_a_local_transaction_returns_is_never_guessed(broker: ScriptedBroker) -> None:
    async with aio.TransactionProducer("orders", broker.address, check=never) as producer:
        with pytest.raises(StateError, match="must return a TransactionState, not None"):
            await producer.send_in_transaction(Message("Orders", b"x"), lambda _: None)  # type: ignore[arg-type,return-value]
        assert (await broker.ended.get()).commit_or_rollback == 0


async def test_a_message_that_may_be_lost_is_rolled_back(broker: ScriptedBroker) -> None:
    broker.answers.append(10)
    async with aio.TransactionProducer("orders", broker.address, check=never) as producer:
        result = await producer.send_in_transaction(Message("Orders", b"x"), never)
        assert (await broker.ended.get()).commit_or_rollback == 12
    assert result.state is ROLLBACK


async def test_a_message_of_a_transaction_cannot_be_delayed(broker: ScriptedBroker) -> None:
    async with aio.TransactionProducer("orders", broker.address, check=never) as producer:
        with pytest.raises(BadMessage, match=r"cannot be delayed.*: remove delay_level=1"):
            await producer.send_in_transaction(Message("Orders", b"x", delay_level=1), never)


@pytest.mark.parametrize(("state", "bits"), [(COMMIT, 8), (ROLLBACK, 12), (UNKNOWN, 0)])
async def test_a_broker_that_asks_is_answered(
    broker: ScriptedBroker, state: TransactionState, bits: int
) -> None:
    asked: list[ReceivedMessage] = []

    async def check(message: ReceivedMessage) -> TransactionState:
        asked.append(message)
        return state

    async with aio.TransactionProducer("orders", broker.address, check=check) as producer:
        await producer.queues("Orders")
        await producer._started().session.heartbeat_now()
        broker.push(question())
        end = await broker.ended.get()
    [message] = asked
    assert (message.topic, message.body, message.message_id) == ("Orders", b"paid?", "AAAA")
    assert (end.commit_or_rollback, end.from_transaction_check) == (bits, True)
    assert (end.tran_state_table_offset, end.commit_log_offset) == (5, 77)
    assert (end.msg_id, end.transaction_id, end.target_broker_name) == ("AAAA", "tx-1", "scripted")


async def test_a_producer_that_sends_nothing_is_known_to_the_brokers_of_its_topics(
    broker: ScriptedBroker,
) -> None:
    """After a restart it answers for its predecessor."""
    async with aio.TransactionProducer(
        "orders", broker.address, check=lambda _: COMMIT, topics=["Orders", "Nowhere"]
    ):
        assert (await broker.heartbeats.get()).body.producer_data_set[0].group_name == "orders"
        broker.push(question())
        assert (await broker.ended.get()).commit_or_rollback == 8


async def test_brokers_that_create_topics_know_the_producer_at_once(broker: ScriptedBroker) -> None:
    broker.topics.append("TBW102")
    async with aio.TransactionProducer("orders", broker.address, check=never):
        assert not broker.heartbeats.empty()


async def test_brokers_are_answered_while_local_transactions_take_all_threads(
    broker: ScriptedBroker,
) -> None:
    """A local transaction may wait for the very thing that the broker asks about."""
    was_asked = threading.Event()
    loop = asyncio.get_running_loop()
    loop.set_default_executor(ThreadPoolExecutor(1))

    def work(_: Message) -> TransactionState:
        loop.call_soon_threadsafe(broker.push, question())
        assert was_asked.wait(60)
        return COMMIT

    def check(_: ReceivedMessage) -> TransactionState:
        was_asked.set()
        return ROLLBACK

    async with aio.TransactionProducer("orders", broker.address, check=check, topics=["Orders"]) as producer:
        await producer.send_in_transaction(Message("Orders", b"paid"), work)
        ends = [(await broker.ended.get()).from_transaction_check for _ in range(2)]
    assert sorted(ends) == [False, True]


async def test_the_broker_learns_when_to_ask(broker: ScriptedBroker) -> None:
    async with aio.TransactionProducer("orders", broker.address, check=never) as producer:
        message, after = Message("Orders", b"paid"), timedelta(milliseconds=1001)
        await producer.send_in_transaction(message, lambda _: COMMIT, check_after=after)
        with pytest.raises(BadMessage, match="check_after must be a second or more, not 0:00:00"):
            await producer.send_in_transaction(message, never, check_after=timedelta(0))
        with pytest.raises(BadMessage, match="check_after must be a timedelta, not int 5"):
            await producer.send_in_transaction(message, never, check_after=5)  # type: ignore[arg-type]
    [sent] = broker.sent
    assert get_property(sent.properties or "", "CHECK_IMMUNITY_TIME_IN_SECONDS") == "2"


async def test_closing_waits_for_an_open_transaction(broker: ScriptedBroker) -> None:
    producer = aio.TransactionProducer("orders", broker.address, check=never)
    await producer.start()
    began, may_end = asyncio.Event(), asyncio.Event()

    async def work(_: Message) -> TransactionState:
        began.set()
        await may_end.wait()
        return COMMIT

    sending = asyncio.create_task(producer.send_in_transaction(Message("Orders", b"paid"), work))
    await began.wait()
    closing = asyncio.create_task(producer.close())
    await asyncio.sleep(0)
    with pytest.raises(StateError, match="is closed"):
        await producer.send_in_transaction(Message("Orders", b"too late"), never)
    may_end.set()
    await closing
    assert (await sending).state is COMMIT
    assert (await broker.ended.get()).commit_or_rollback == 8


async def test_closing_does_not_wait_for_a_half_message_that_was_refused(broker: ScriptedBroker) -> None:
    broker.answers.append(13)
    async with aio.TransactionProducer("orders", broker.address, check=never) as producer:
        with pytest.raises(Refused):
            await producer.send_in_transaction(Message("Orders", b"x"), never)


async def test_a_local_transaction_cannot_close_its_producer(broker: ScriptedBroker) -> None:
    async with aio.TransactionProducer("orders", broker.address, check=never) as producer:

        async def work(_: Message) -> TransactionState:
            await producer.close()
            return COMMIT

        with pytest.raises(StateError, match="cannot be closed by one of its local transactions"):
            await producer.send_in_transaction(Message("Orders", b"x"), work)
        assert (await broker.ended.get()).commit_or_rollback == 0


async def test_the_answer_finds_a_broker_whose_connection_was_lost_meanwhile(broker: ScriptedBroker) -> None:
    async def check(_: ReceivedMessage) -> TransactionState:
        (asking,) = broker.connections
        asking.abort()
        session = producer._started().session
        while asking in broker.connections or not broker.connections:
            with suppress(TransportError):  # until the client has seen it, and has a new connection
                await session.routes.refresh("Orders")
        return COMMIT

    producer = aio.TransactionProducer("orders", broker.address, check=check, topics=["Orders"])
    async with producer:
        broker.push(question())
        assert (await broker.ended.get()).commit_or_rollback == 8


async def test_a_producer_that_sends_nothing_connects_again_at_once(broker: ScriptedBroker) -> None:
    async with aio.TransactionProducer("orders", broker.address, check=never, topics=["Orders"]):
        for _ in range(2):  # at the start, and the first of the regular ones
            await broker.heartbeats.get()
        for connection in broker.connections:
            connection.abort()
        assert (await broker.heartbeats.get()).body.producer_data_set[0].group_name == "orders"


async def test_a_failing_check_is_unknown(broker: ScriptedBroker, error_logs: ErrorLogs) -> None:
    def check(_: ReceivedMessage) -> TransactionState:
        raise ValueError("the books are closed")

    async with aio.TransactionProducer("orders", broker.address, check=check) as producer:
        await producer.queues("Orders")
        await producer._started().session.heartbeat_now()
        broker.push(question())
        end = await broker.ended.get()
    assert (end.commit_or_rollback, end.remark) == (0, "ValueError: the books are closed")
    error_logs.expect("the check of a transaction failed")


async def test_questions_about_other_groups_are_not_answered(
    broker: ScriptedBroker, caplog: pytest.LogCaptureFixture
) -> None:
    async with (
        aio.Producer("plain", broker.address) as plain,
        aio.TransactionProducer("orders", broker.address, check=lambda _: COMMIT) as producer,
    ):
        await producer.queues("Orders")
        await plain._started().session.heartbeat_now()
        broker.push(question(group="strangers"))
        broker.push(question(group="plain"))
        broker.push(question(group="orders"))
        assert (await broker.ended.get()).producer_group == "orders"
        assert broker.ended.empty()
    assert "without a transaction producer group=strangers" in caplog.text
    assert "without a transaction producer group=plain" in caplog.text


async def test_a_check_under_way_ends_with_the_producer(broker: ScriptedBroker) -> None:
    asked = asyncio.Event()

    async def check(_: ReceivedMessage) -> TransactionState:
        asked.set()
        await asyncio.get_running_loop().create_future()
        return COMMIT

    async with aio.TransactionProducer("orders", broker.address, check=check) as producer:
        await producer.queues("Orders")
        await producer._started().session.heartbeat_now()
        broker.push(question())
        await asked.wait()
    assert broker.ended.empty()


async def test_a_question_that_comes_while_the_producer_closes_is_left_to_others(
    broker: ScriptedBroker,
) -> None:
    async def check(_: ReceivedMessage) -> TransactionState:
        await asyncio.get_running_loop().create_future()
        return COMMIT

    producer = aio.TransactionProducer("orders", broker.address, check=check)
    await producer.start()
    broker.hold = asyncio.Event()
    sending = asyncio.create_task(producer.send(Message("Orders", b"x"), timeout_s=60))
    await broker.arrived.get()
    await broker.heartbeats.get()
    closing = asyncio.create_task(producer.close())
    await asyncio.sleep(0)
    broker.push(question())
    (connection,) = broker.clients.values()
    with pytest.raises(Refused):  # once this is answered, the question has been read
        await connection.call(GetConsumerRunningInfo(consumer_group="nobody", client_id="c"), 60)
    broker.hold.set()
    await closing
    assert (await sending).is_ok
    assert broker.ended.empty()


async def test_a_start_that_is_given_up_leaves_nothing_behind(broker: ScriptedBroker) -> None:
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        broker.other_brokers["deaf"] = format_address(*deaf.getsockname())
        async with aio.Producer("plain", broker.address, call_timeout_s=60) as plain:
            await plain.queues("Orders")
            producer = aio.TransactionProducer("orders", broker.address, check=never, call_timeout_s=60)
            starting = asyncio.create_task(producer.start())
            while not (await broker.heartbeats.get()).body.producer_data_set[1:]:
                pass  # until one tells of both
            starting.cancel()
            await asyncio.gather(starting, return_exceptions=True)
            assert plain._started().session.statistics().users == 1
            assert plain._started().session.statistics().producer_groups == 1


async def test_the_ends_of_transactions_are_reported(broker: ScriptedBroker) -> None:
    async with aio.TransactionProducer(
        "orders", broker.address, check=lambda _: ROLLBACK, trace=True
    ) as producer:
        result = await producer.send_in_transaction(Message("Orders", b"paid", keys="k"), lambda _: COMMIT)
        await broker.ended.get()
        broker.push(question())
        await broker.ended.get()
    [trace] = [sent for sent in broker.sent if sent.topic == "RMQ_SYS_TRACE_TOPIC"]
    records = [record.split("\x01") for record in trace.body.decode().split("\x02")[:-1]]
    assert [record[0] for record in records] == ["Pub", "EndTransaction", "EndTransaction"]
    assert records[0][11] == "1", "half a transaction"
    assert records[1][5] == result.send_result.message_id
    assert records[1][10:] == ["transaction-1", "COMMIT_MESSAGE", "false"]
    assert records[2][10:] == ["tx-1", "ROLLBACK_MESSAGE", "true"]


async def test_the_blocking_face_runs_the_local_transaction_on_the_callers_thread(
    broker: ScriptedBroker,
) -> None:
    threads: list[threading.Thread] = []

    def work(_: Message) -> TransactionState:
        threads.append(threading.current_thread())
        return COMMIT

    def script() -> threading.Thread:
        with TransactionProducer("orders", broker.address, check=never) as producer:
            assert producer.send_in_transaction(Message("Orders", b"paid"), work).state is COMMIT
            with pytest.raises(ZeroDivisionError):
                producer.send_in_transaction(Message("Orders", b"paid"), lambda _: TransactionState(1 // 0))

            async def awaited(_: Message) -> TransactionState:
                return ROLLBACK

            producer.send_in_transaction(Message("Orders", b"paid"), awaited)
            with pytest.raises(StateError, match="cannot be closed by one of its local transactions"):
                producer.send_in_transaction(Message("Orders", b"paid"), lambda _: producer.close())  # type: ignore[arg-type,return-value]
        return threading.current_thread()

    caller = await asyncio.to_thread(script)
    assert threads == [caller]
    assert [(await broker.ended.get()).commit_or_rollback for _ in range(4)] == [8, 0, 12, 0]


async def ended(broker: ScriptedBroker, how: str, *, raises: bool = False) -> None:
    """A block of the asyncio form, in which something happens."""
    async with aio.TransactionProducer("orders", broker.address, check=never) as producer:
        with suppress(KeyError):
            async with producer.transaction(Message("Orders", b"paid")) as transaction:
                assert transaction.message_id
                if how == "rollback":
                    transaction.rollback()
                if raises:
                    raise KeyError("no such account")


def ended_blocking(broker: ScriptedBroker, how: str, *, raises: bool = False) -> None:
    with (
        TransactionProducer("orders", broker.address, check=never) as producer,
        suppress(KeyError),
        producer.transaction(Message("Orders", b"paid")) as transaction,
    ):
        assert transaction.message_id
        with pytest.raises(StateError, match="cannot be closed by one of its local transactions"):
            producer.close()
        if how == "rollback":
            transaction.rollback()
        if raises:
            raise KeyError("no such account")


@pytest.mark.parametrize(
    ("how", "raises", "bits"),
    [("ends", False, 8), ("rollback", False, 12), ("rollback", True, 12), ("raises", True, 0)],
)
async def test_a_block_ends_its_transaction(
    broker: ScriptedBroker, how: str, raises: bool, bits: int
) -> None:
    await ended(broker, how, raises=raises)
    await asyncio.to_thread(ended_blocking, broker, how, raises=raises)
    assert [(await broker.ended.get()).commit_or_rollback for _ in range(2)] == [bits, bits]


async def test_a_block_does_not_begin_if_its_message_may_be_lost(broker: ScriptedBroker) -> None:
    broker.answers.append(10)
    async with aio.TransactionProducer("orders", broker.address, check=never) as producer:
        with pytest.raises(SendFailed, match="FLUSH_DISK_TIMEOUT"):
            async with producer.transaction(Message("Orders", b"paid")):
                raise AssertionError("it must not begin")
        assert (await broker.ended.get()).commit_or_rollback == 12


async def test_closing_does_not_wait_for_a_transaction_that_is_left_open(broker: ScriptedBroker) -> None:
    async with aio.TransactionProducer("orders", broker.address, check=never) as producer:
        transaction = producer.transaction(Message("Orders", b"paid"))
        await transaction.begin()
        transaction.leave_open()
    with pytest.raises(StateError, match="begin only once"):
        await transaction.begin()
