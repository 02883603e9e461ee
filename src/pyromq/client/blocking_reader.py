"""The reader for programs without an event loop."""

from collections.abc import Iterable, Iterator
from typing import Unpack

from pyromq.client import reader
from pyromq.client.blocking import Blocking, awaited, on_the_loop
from pyromq.client.consumer.reading.offsets import StartFrom
from pyromq.client.consumer.reading.subscriptions import Expression
from pyromq.client.settings import ClientOptions
from pyromq.client.values import ReceivedMessage


class Reader(Blocking):
    """`with Reader("Prices", "EUR || USD", namesrv="127.0.0.1:9876") as reader: for message in reader: …`.

    Follows a topic without a group: every reader sees every message. `start_from`: "last", "first" or a
    datetime.
    """

    _aio: reader.Reader

    def __init__(
        self,
        topic: str,
        expression: Expression = "*",
        namesrv: str | Iterable[str] | None = None,
        *,
        start_from: StartFrom = "last",
        **options: Unpack[ClientOptions],
    ) -> None:
        super().__init__()
        self._aio = reader.Reader(topic, expression, namesrv, start_from=start_from, **options)

    filter = on_the_loop(reader.Reader.filter)
    receive = awaited(reader.Reader.receive)
    find = awaited(reader.Reader.find)

    def __iter__(self) -> Iterator[ReceivedMessage]:
        while messages := self.receive():
            yield from messages
