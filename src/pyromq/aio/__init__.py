"""The asyncio face: the names of `pyromq`, to be awaited."""

from pyromq.client.consumer.pull import PullConsumer
from pyromq.client.consumer.push import PushConsumer
from pyromq.client.producer import Producer
from pyromq.client.transactions import TransactionProducer, TransactionResult, TransactionState

__all__ = [
    "Producer",
    "PullConsumer",
    "PushConsumer",
    "TransactionProducer",
    "TransactionResult",
    "TransactionState",
]
