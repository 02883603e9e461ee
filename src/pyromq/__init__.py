"""Apache RocketMQ, rebuilt in Python.

from pyromq import Message, Producer, PushConsumer

with Producer("orders", namesrv="127.0.0.1:9876") as producer:
    producer.send(Message("Orders", b"...", tags="Created", keys=["o-1"]))

with PushConsumer("billing", namesrv="127.0.0.1:9876") as consumer:
    for message in consumer.subscribe("Orders", "Created || Paid"):
        ...

`pyromq.aio` has the same names for asyncio. Nothing is imported before it is used.
"""

TYPE_CHECKING = False  # as type checkers know it; importing typing takes longer than all of this

if TYPE_CHECKING:
    from pyromq.admin.blocking import Admin
    from pyromq.admin.erasing import ErasedKey
    from pyromq.admin.facade import GroupLag, QueueLag, QueueRange, TopicDescription
    from pyromq.admin.failures import NotFound
    from pyromq.client.blocking import Producer, Transaction, TransactionProducer
    from pyromq.client.blocking_dead_letters import DeadLetters
    from pyromq.client.blocking_reader import Reader
    from pyromq.client.blocking_schedule import Schedule
    from pyromq.client.codecs import JSON, MSGPACK, Codec
    from pyromq.client.consumer.blocking import LiteConsumer, PullConsumer, PushConsumer, SimpleConsumer
    from pyromq.client.consumer.handling.outcomes import GiveUp, RetryLater
    from pyromq.client.consumer.handling.routers import Router
    from pyromq.client.consumer.handling.typed import typed
    from pyromq.client.consumer.reading.popping import PoppedMessage
    from pyromq.client.consumer.reading.subscriptions import Sql
    from pyromq.client.dead_letters import DeadLetter
    from pyromq.client.health import ConsumerHealth, Health
    from pyromq.client.readiness import readiness
    from pyromq.client.settings import Credentials, TlsOptions
    from pyromq.client.transactions import TransactionResult, TransactionState
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

    __version__: str

_HOMES = {
    "JSON": "client.codecs",
    "MSGPACK": "client.codecs",
    "Admin": "admin.blocking",
    "AskerGone": "errors",
    "BadBody": "errors",
    "BadExpression": "errors",
    "BadMessage": "errors",
    "Codec": "client.codecs",
    "Compression": "protocol.compression",
    "ConfigError": "errors",
    "ConsumerHealth": "client.health",
    "Credentials": "client.settings",
    "DeadLetter": "client.dead_letters",
    "DeadLetters": "client.blocking_dead_letters",
    "ErasedKey": "admin.erasing",
    "GiveUp": "client.consumer.handling.outcomes",
    "GroupLag": "admin.facade",
    "Health": "client.health",
    "LiteConsumer": "client.consumer.blocking",
    "Message": "client.values",
    "MessageQueue": "client.values",
    "NoReply": "errors",
    "NoRoute": "errors",
    "NotFound": "admin.failures",
    "PoppedMessage": "client.consumer.reading.popping",
    "Producer": "client.blocking",
    "PullConsumer": "client.consumer.blocking",
    "PushConsumer": "client.consumer.blocking",
    "PyroError": "errors",
    "QueueLag": "admin.facade",
    "QueueRange": "admin.facade",
    "Reader": "client.blocking_reader",
    "ReceivedMessage": "client.values",
    "Refused": "errors",
    "RequestFailed": "errors",
    "RetryLater": "client.consumer.handling.outcomes",
    "Router": "client.consumer.handling.routers",
    "Schedule": "client.blocking_schedule",
    "SendFailed": "errors",
    "SendResult": "client.values",
    "SendStatus": "client.values",
    "SimpleConsumer": "client.consumer.blocking",
    "Sql": "client.consumer.reading.subscriptions",
    "StateError": "errors",
    "TlsOptions": "client.settings",
    "TopicDescription": "admin.facade",
    "Transaction": "client.blocking",
    "TransactionProducer": "client.blocking",
    "TransactionResult": "client.transactions",
    "TransactionState": "client.transactions",
    "TransportError": "errors",
    "readiness": "client.readiness",
    "typed": "client.consumer.handling.typed",
}

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


if not TYPE_CHECKING:  # for a type checker a name that is not above does not exist

    def __getattr__(name: str) -> object:
        if name in _HOMES:
            from importlib import import_module

            value = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
            globals()[name] = value
            return value
        if name == "__version__":
            from pyromq.version import version

            return version()
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
