"""Django: a message is delivered if the transaction of its request commits, and never if it does not."""

import threading
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest

from pyromq import Message, ReceivedMessage, SimpleConsumer, TransactionProducer, TransactionState
from pyromq.errors import StateError
from pyromq.protocol.record import StoredMessage
from pyromq.testing import RunningCluster

pytest.importorskip("django")
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module")
def outbox() -> Iterator[Any]:
    from tests.support.django_project import set_up

    set_up()
    from pyromq.django import outbox

    yield outbox
    from django.db import connections

    connections.close_all()


@pytest.fixture
def producer(rocketmq: RunningCluster, outbox: Any) -> Iterator[TransactionProducer]:
    with TransactionProducer("orders", rocketmq.namesrv, check=outbox.outbox_check) as running:
        yield running


def question(message_id: str) -> ReceivedMessage:
    """What a broker asks about."""
    from pyromq.client.values import MessageQueue

    stored = StoredMessage("Orders", b"", f"UNIQ_KEY\x01{message_id}\x02".encode())
    return ReceivedMessage(stored, MessageQueue("Orders", "broker-a", 0))


def asked_on_a_thread(outbox: Any, message_id: str) -> TransactionState:
    """As a producer has it: each thread has a connection to the database."""
    answers: list[TransactionState] = []
    asking = threading.Thread(target=lambda: answers.append(outbox.outbox_check(question(message_id))))
    asking.start()
    asking.join()
    return answers[0]


def fails(sending: Any) -> str:
    """A part of a request that sends and then raises."""
    from django.db import transaction

    sent: list[str] = []
    with suppress(KeyError), transaction.atomic():
        sent.append(sending())
        raise KeyError("as a view does")
    return sent[0]


def test_a_message_is_delivered_after_the_commit(
    outbox: Any, producer: TransactionProducer, rocketmq: RunningCluster
) -> None:
    from django.db import transaction

    with SimpleConsumer("billing", rocketmq.namesrv, start_from="first") as consumer:
        consumer.subscribe("Orders")
        rolled_back = fails(lambda: outbox.send_on_commit(producer, Message("Orders", b"rolled back")))
        with transaction.atomic():
            committed = outbox.send_on_commit(producer, Message("Orders", b"committed"))
            in_savepoint = fails(lambda: outbox.send_on_commit(producer, Message("Orders", b"savepoint")))
        received = consumer.receive(16, wait_s=30)
    assert [message.body for message in received] == [b"committed"]
    assert outbox.outbox_check(question(committed)) is TransactionState.COMMIT
    for lost in (rolled_back, in_savepoint):
        for _ in range(2):
            assert outbox.outbox_check(question(lost)) is TransactionState.ROLLBACK


def test_a_check_during_the_transaction_waits_for_its_end(outbox: Any, producer: TransactionProducer) -> None:
    from django.db import transaction

    with transaction.atomic():
        message_id = outbox.send_on_commit(producer, Message("Orders", b"slow"))
        assert asked_on_a_thread(outbox, message_id) is TransactionState.UNKNOWN
    assert outbox.outbox_check(question(message_id)) is TransactionState.COMMIT


def test_a_transaction_that_a_check_gave_up_cannot_commit(
    outbox: Any, producer: TransactionProducer, monkeypatch: pytest.MonkeyPatch
) -> None:
    from django.db import IntegrityError, transaction

    leave_open = type(producer.transaction(Message("Orders", b""))).leave_open

    def checked_first(sending: Any) -> None:
        leave_open(sending)
        assert asked_on_a_thread(outbox, sending.message_id) is TransactionState.ROLLBACK

    monkeypatch.setattr("pyromq.client.blocking.Transaction.leave_open", checked_first)
    with pytest.raises(IntegrityError), transaction.atomic():
        outbox.send_on_commit(producer, Message("Orders", b"too late"))


def test_there_must_be_a_transaction(outbox: Any, producer: TransactionProducer) -> None:
    with pytest.raises(StateError, match="there is no transaction"):
        outbox.send_on_commit(producer, Message("Orders", b"x"))
