"""A message that is seen only if the payment succeeds: `python examples/transaction.py [name server]`.

Prints `o-1: COMMIT` and `o-2: ROLLBACK`.
"""

import sys

from pyromq import Message, ReceivedMessage, TransactionProducer, TransactionState

PAID: set[str] = set()
"""Stands for the database."""


def pay(message: Message) -> TransactionState:
    """The local transaction; runs while the message is stored and nobody sees it."""
    order = message.keys[0]
    if message.body == b"card declined":
        return TransactionState.ROLLBACK
    PAID.add(order)
    return TransactionState.COMMIT


def check(message: ReceivedMessage) -> TransactionState:
    """Asked by the broker when it was never told: after a crash, for example."""
    return TransactionState.COMMIT if PAID.intersection(message.keys) else TransactionState.ROLLBACK


def main(namesrv: str = "127.0.0.1:9876") -> None:
    with TransactionProducer("payments", namesrv=namesrv, check=check) as producer:
        for order, body in (("o-1", b"9.99"), ("o-2", b"card declined")):
            result = producer.send_in_transaction(Message("Payments", body, keys=[order]), pay)
            print(f"{order}: {result.state.name}")


if __name__ == "__main__":
    main(*sys.argv[1:])
