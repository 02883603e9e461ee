"""Every request passes the admission, and only connections it vouches for take a shorter way."""

from typing import Any

from tests.support.admissions import ScriptedAdmission
from tests.support.echo_service import Echo, EchoService, Fail, Nobody
from tests.support.fake_transport import FakeTransport

from pyromq.protocol.catalogue import Request, declaration_of, encode_request
from pyromq.protocol.codes import ResponseCode
from pyromq.protocol.direct import DirectHeaders
from pyromq.protocol.frame import Frame
from pyromq.protocol.framing import encode_frame
from pyromq.remoting.connection import Connection
from pyromq.remoting.connection_group import ConnectionGroup, ConnectionTerms


class Line:
    """A connection to a server with an admission, direct headers and a fast path that takes nothing."""

    def __init__(self) -> None:
        self.admission = ScriptedAdmission()
        self.service = EchoService()
        self.reads_on_the_fast_path = 0
        group = ConnectionGroup(
            ConnectionTerms(
                admission=self.admission,
                direct=DirectHeaders([declaration_of(Echo)]),
                fast_path=self._fast_path,
            ),
            routes=self.service.routes(),
        )
        self.connection = Connection(group)
        self.transport = FakeTransport(self.connection)
        self.connection.connection_made(self.transport)

    def _fast_path(self, data: bytes, connection: Connection) -> tuple[int, int]:
        self.reads_on_the_fast_path += 1
        return 0, 0

    def say(self, *frames: Frame) -> list[tuple[int, str | None]]:
        self.connection.data_received(b"".join(map(encode_frame, frames)))
        return [(frame.code, frame.remark) for frame in self.transport.frames()]

    def ask(self, *requests: Request[Any]) -> list[tuple[int, str | None]]:
        return self.say(*(encode_request(request, opaque) for opaque, request in enumerate(requests)))


async def test_a_caller_who_is_refused_learns_nothing_else() -> None:
    line = Line()
    line.admission.change_rules(refuses_callers=True)
    unreadable = Frame(31_002, ext={"number": "many"})
    answers = line.say(encode_request(Echo(), 1), encode_request(Nobody(), 2), Frame(29_999), unreadable)
    assert answers == [(ResponseCode.NO_PERMISSION, "not you")] * 4
    assert not line.service.callers
    assert not line.admission.authorized


async def test_a_request_can_be_refused_before_its_handler_sees_it() -> None:
    line = Line()
    line.admission.change_rules(refuses_requests=True)
    assert line.ask(Echo(), Fail(how="bug")) == [(ResponseCode.NO_PERMISSION, "not that")] * 2
    assert not line.service.callers
    assert line.admission.authorized == ["Echo", "Fail"]


async def test_a_connection_takes_the_fast_path_only_once_it_is_vouched_for() -> None:
    line = Line()
    line.ask(Echo(text="a"))
    assert line.reads_on_the_fast_path == 0
    line.ask(Echo(text="b"))
    assert line.reads_on_the_fast_path == 1


async def test_headers_are_read_whole_because_signatures_cover_them() -> None:
    line = Line()
    line.ask(Echo(text="a"))
    line.ask(Echo(text="b"))
    assert [caller.frame.ext for caller in line.admission.identified] == [{"text": "a"}, {"text": "b"}]


async def test_changed_rules_take_the_fast_path_away_from_every_connection() -> None:
    line = Line()
    line.ask(Echo(text="a"))
    line.admission.change_rules(vouches=False)
    assert line.ask(Echo(text="b")) == [(0, None)]
    assert line.reads_on_the_fast_path == 0
    assert line.admission.identified[-1].frame.ext == {"text": "b"}
