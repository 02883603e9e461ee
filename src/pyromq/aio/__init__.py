"""The asyncio API: the same names as in `pyromq`, with awaitable methods; values are the same classes."""

from pyromq.admin.erasing import ErasedKey
from pyromq.admin.facade import Admin, GroupLag, QueueLag, QueueRange, TopicDescription
from pyromq.admin.failures import NotFound
from pyromq.client.codecs import JSON, MSGPACK, Codec
from pyromq.client.consumer.handling.outcomes import GiveUp, RetryLater
from pyromq.client.consumer.handling.routers import Router
from pyromq.client.consumer.handling.typed import typed
from pyromq.client.consumer.lite import LiteConsumer
from pyromq.client.consumer.pull import PullConsumer
from pyromq.client.consumer.push import PushConsumer
from pyromq.client.consumer.reading.popping import PoppedMessage
from pyromq.client.consumer.reading.subscriptions import Sql
from pyromq.client.consumer.simple import SimpleConsumer
from pyromq.client.dead_letters import DeadLetter, DeadLetters
from pyromq.client.health import ConsumerHealth, Health
from pyromq.client.producer import Producer
from pyromq.client.reader import Reader
from pyromq.client.readiness import aio_readiness as readiness
from pyromq.client.schedule import Schedule
from pyromq.client.settings import Credentials, TlsOptions
from pyromq.client.transactions import Transaction, TransactionProducer, TransactionResult, TransactionState
from pyromq.client.values import Message, MessageQueue, ReceivedMessage, SendResult, SendStatus
from pyromq.errors import (
    AskerGone,
    BadBody,
    BadExpression,
    BadMessage,
    ConfigError,
    NoReply,
    NoRoute,
    PyroError,
    Refused,
    RequestFailed,
    SendFailed,
    StateError,
    TransportError,
)
from pyromq.protocol.compression import Compression

__all__ = [
    "JSON",
    "MSGPACK",
    "Admin",
    "AskerGone",
    "BadBody",
    "BadExpression",
    "BadMessage",
    "Codec",
    "Compression",
    "ConfigError",
    "ConsumerHealth",
    "Credentials",
    "DeadLetter",
    "DeadLetters",
    "ErasedKey",
    "GiveUp",
    "GroupLag",
    "Health",
    "LiteConsumer",
    "Message",
    "MessageQueue",
    "NoReply",
    "NoRoute",
    "NotFound",
    "PoppedMessage",
    "Producer",
    "PullConsumer",
    "PushConsumer",
    "PyroError",
    "QueueLag",
    "QueueRange",
    "Reader",
    "ReceivedMessage",
    "Refused",
    "RequestFailed",
    "RetryLater",
    "Router",
    "Schedule",
    "SendFailed",
    "SendResult",
    "SendStatus",
    "SimpleConsumer",
    "Sql",
    "StateError",
    "TlsOptions",
    "TopicDescription",
    "Transaction",
    "TransactionProducer",
    "TransactionResult",
    "TransactionState",
    "TransportError",
    "readiness",
    "typed",
]
