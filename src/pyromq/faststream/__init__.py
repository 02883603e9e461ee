"""FastStream on RocketMQ: `broker = RocketBroker("127.0.0.1:9876")`, `@broker.subscriber("orders")`.

Needs `pyromq[faststream]`. `docs/howto/faststream.md` says what can be set and what differs from others.
"""

from typing import Annotated

from faststream import Context

from pyromq.faststream import message
from pyromq.faststream.broker import RocketBroker
from pyromq.faststream.commands import RocketResponse
from pyromq.faststream.registrator import RocketPublisher, RocketRoute, RocketRouter
from pyromq.faststream.testing import TestRocketBroker

RocketMessage = Annotated[message.RocketMessage, Context("message")]
"""The type of a handler's parameter that gets the message itself."""

__all__ = [
    "RocketBroker",
    "RocketMessage",
    "RocketPublisher",
    "RocketResponse",
    "RocketRoute",
    "RocketRouter",
    "TestRocketBroker",
]
