"""A small service for tests of the remoting floor: requests of its own, and handlers tests can steer."""

import asyncio

from pyromq.errors import Refused
from pyromq.protocol.catalogue import (
    BROKER,
    CATALOGUE,
    CLIENT,
    Answer,
    Int32,
    RawAnswer,
    Request,
    declaration_of,
    request,
)
from pyromq.protocol.codes import ResponseCode
from pyromq.protocol.needs import GET, cluster
from pyromq.remoting.routing import Caller, Routes, handles


class EchoAnswer(Answer):
    text: str
    body: bytes


@request(31_001, to=BROKER | CLIENT, needs=(cluster(GET),))
class Echo(Request[EchoAnswer]):
    """Say it again."""

    text: str = ""
    body: bytes = b""


@request(31_002, to=BROKER | CLIENT, needs=(cluster(GET),))
class Wait(Request[EchoAnswer]):
    """Answer when the service is told to."""

    number: Int32
    body: bytes = b""


@request(31_003, to=BROKER, needs=(cluster(GET),))
class WaitPerhaps(Request[EchoAnswer]):
    """Answer at once or later, from a plain method."""

    wait: bool


@request(31_004, to=BROKER, needs=(cluster(GET),))
class Fail(Request[Answer]):
    """Fail in the way that is asked for."""

    how: str


@request(31_005, to=BROKER | CLIENT, needs=(cluster(GET),), oneway=True)
class Note(Request[Answer]):
    """Remember it; nobody waits."""

    text: str


@request(31_006, to=BROKER, needs=(cluster(GET),))
class Large(Request[EchoAnswer]):
    """Answer with a body of that many bytes."""

    size_bytes: Int32


@request(31_007, to=BROKER, needs=(cluster(GET),))
class Nobody(Request[Answer]):
    """Declared, and not served by anyone."""


UNSERVED = {31_007: "only here to be declined"}

# Other tests walk through the catalogue: what is declared here stays out of it.
for _request_type in (Echo, Wait, WaitPerhaps, Fail, Note, Large, Nobody):
    del CATALOGUE[declaration_of(_request_type).code]


class EchoService:
    def __init__(self) -> None:
        self.notes: list[str] = []
        self.callers: list[str] = []
        self.waiting: dict[int, asyncio.Future[None]] = {}
        self.arrived = asyncio.Condition()
        self.perhaps: asyncio.Future[EchoAnswer] | None = None

    def routes(self) -> Routes:
        return Routes(self, serving=BROKER, unserved=UNSERVED)

    @handles(Echo)
    def echo(self, request: Echo, caller: Caller) -> EchoAnswer:
        self.callers.append(caller.address)
        return EchoAnswer(text=request.text, body=request.body)

    @handles(Wait)
    async def wait(self, request: Wait, caller: Caller) -> EchoAnswer:
        self.waiting[request.number] = asyncio.get_running_loop().create_future()
        async with self.arrived:
            self.arrived.notify_all()
        await self.waiting[request.number]
        return EchoAnswer(text=str(request.number), body=b"")

    @handles(WaitPerhaps, may_wait=True)
    def wait_perhaps(self, request: WaitPerhaps, caller: Caller) -> EchoAnswer | asyncio.Future[EchoAnswer]:
        if not request.wait:
            return EchoAnswer(text="at once", body=b"")
        self.perhaps = asyncio.get_running_loop().create_future()
        return self.perhaps

    @handles(Fail)
    def fail(self, request: Fail, caller: Caller) -> Answer:
        if request.how == "refused":
            raise Refused(ResponseCode.NO_PERMISSION, "not today")
        if request.how == "surrogate":
            raise Refused(ResponseCode.NO_PERMISSION, "odd \udcff name")
        if request.how == "wrong":
            return "not an answer"  # type: ignore[return-value]
        raise RuntimeError("a bug " + "x" * 5000)

    @handles(Note)
    def note(self, request: Note, caller: Caller) -> None:
        self.notes.append(request.text)

    @handles(Large)
    def large(self, request: Large, caller: Caller) -> RawAnswer:
        return RawAnswer(bytes(request.size_bytes), {"text": "large"})

    async def wait_arrived(self, count: int) -> None:
        """Wait until that many requests wait here."""
        async with self.arrived:
            await self.arrived.wait_for(lambda: len(self.waiting) >= count)

    def release(self, number: int) -> None:
        self.waiting.pop(number).set_result(None)
