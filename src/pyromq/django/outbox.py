"""A message goes with the transaction of the request that sends it.

The half message is sent at once, and a row with its id is written in the caller's transaction. After the
commit the broker is informed. Without that (a rollback, a crash) it asks, and the row decides: a check that
finds none writes one that says "not sent", so that a transaction which still runs can no longer commit.
"""

from functools import partial

from django.db import DEFAULT_DB_ALIAS, IntegrityError, OperationalError, close_old_connections, transaction

from pyromq.client.blocking import TransactionProducer
from pyromq.client.transactions import TransactionState
from pyromq.client.values import Message, ReceivedMessage
from pyromq.django.models import OutboxRow
from pyromq.errors import StateError


def send_on_commit(producer: TransactionProducer, message: Message, *, using: str = DEFAULT_DB_ALIAS) -> str:
    """Send a message that is delivered when the current transaction commits; returns its id.

    Call it inside `atomic`, or with ATOMIC_REQUESTS. The producer's `check` must be `outbox_check`.
    """
    if not transaction.get_connection(using).in_atomic_block:
        raise StateError("there is no transaction: call send_on_commit inside transaction.atomic()")
    sending = producer.transaction(message)
    sending.begin()
    sending.leave_open()
    OutboxRow.objects.using(using).create(message_id=sending.message_id, is_sent=True)
    transaction.on_commit(partial(sending.end, None), using=using, robust=True)
    return sending.message_id


def outbox_check(message: ReceivedMessage, using: str = DEFAULT_DB_ALIAS) -> TransactionState:
    """The `check` of a TransactionProducer; `partial(outbox_check, using="orders")` for another database."""
    close_old_connections()
    rows = OutboxRow.objects.using(using)
    try:
        with transaction.atomic(using=using):
            rows.create(message_id=message.message_id, is_sent=False)
    except IntegrityError:
        is_sent = rows.values_list("is_sent", flat=True).get(pk=message.message_id)
        return TransactionState.COMMIT if is_sent else TransactionState.ROLLBACK
    except OperationalError:  # the row is locked: its transaction still runs
        return TransactionState.UNKNOWN
    finally:
        close_old_connections()
    return TransactionState.ROLLBACK
