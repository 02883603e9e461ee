"""Dead letters for programs without an event loop."""

from typing import Unpack

from pyromq.client import dead_letters
from pyromq.client.blocking import BlockingClient, awaited
from pyromq.client.settings import ClientOptions


class DeadLetters(BlockingClient):
    """`with DeadLetters("billing", namesrv=...) as letters: letters.list()`."""

    _aio: dead_letters.DeadLetters

    def __init__(self, group: str, namesrv: str | None = None, **options: Unpack[ClientOptions]) -> None:
        """`group`: the consumer group that gave the messages up."""
        super().__init__()
        self._aio = dead_letters.DeadLetters(group, namesrv, **options)

    list = awaited(dead_letters.DeadLetters.list)
    resend = awaited(dead_letters.DeadLetters.resend)
    drop = awaited(dead_letters.DeadLetters.drop)
