"""Brokers and name servers that answer anything: frames as a test says, read as a connection reads them."""

from collections.abc import Callable
from typing import Any, TypeVar

from hypothesis import strategies as st
from tests.support.hostile_frames import BAD_BODIES, BAD_TEXTS

from pyromq.cluster.name_servers import NameServers
from pyromq.cluster.route_table import KnownRoutes
from pyromq.cluster.routes import Route
from pyromq.errors import RemoteProtocolError
from pyromq.protocol.catalogue import Answer, Request, decode_answer
from pyromq.protocol.frame import RESPONSE_FLAG, Frame, HeaderForm
from pyromq.protocol.framing import FrameReader, encode_frame
from pyromq.protocol.request_forms import FilledForm

A = TypeVar("A", bound=Answer)

Reply = Callable[[Request[Any]], Frame]


CODES = st.sampled_from((0, 0, 0, 1, 2, 10, 17, 19, 20, 21, 22, 206, 1500, -1, 2**31 - 1))
TEXTS = st.sampled_from(BAD_TEXTS) | st.integers(-3, 20).map(str) | st.text(max_size=8)
BODIES = st.sampled_from(BAD_BODIES) | st.binary(max_size=64)
OFFSETS = st.integers(0, 20).map(str) | TEXTS


def sometimes(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({}, optional=fields)


class HostileNetwork:
    """`reply` makes the answer to every request, whoever is asked."""

    def __init__(self, reply: Reply, *routes: Route) -> None:
        self.reply = reply
        self.fills_forms = False
        self.asked = 0
        self.routes = KnownRoutes(NameServers(["n:1", "n:2"]), self.call, 1.0)
        for route in routes:
            self.routes._take(route)

    async def call(self, address: str, request: Request[A] | FilledForm[A], timeout_s: float) -> A:
        assert isinstance(request, Request)
        self.asked += 1
        return decode_answer(type(request), over_the_wire(self.reply(request)))

    async def send_oneway(self, address: str, request: Request[Any]) -> None:
        pass


def an_answer(code: int, ext: dict[str, str], body: bytes = b"", form: HeaderForm = HeaderForm.JSON) -> Frame:
    return Frame(code, 1, RESPONSE_FLAG, ext=ext, body=body, form=form)


def over_the_wire(frame: Frame) -> Frame:
    reader = FrameReader(1 << 28)
    frames = reader.feed(encode_frame(frame, 1 << 28))
    if reader.damage is not None:
        raise RemoteProtocolError(str(reader.damage))
    [read] = frames
    return read
