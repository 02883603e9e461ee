"""What one connection does with what it reads, without a socket."""

import asyncio
from typing import Any

import pytest
from tests.conftest import ErrorLogs
from tests.support.broker_parts import FakeChannel
from tests.support.echo_service import Echo, EchoService, Fail, Large, Nobody, Note, Wait, WaitPerhaps
from tests.support.fake_transport import FakeTransport

from pyromq.clock import ManualClock
from pyromq.errors import CallTimeout, ConnectionLost, LocalProtocolError, Refused, RemoteProtocolError
from pyromq.protocol.catalogue import Declaration, Request, encode_request
from pyromq.protocol.codes import V5_3_1, ResponseCode
from pyromq.protocol.frame import ONEWAY_FLAG, RESPONSE_FLAG, Frame, HeaderForm
from pyromq.protocol.framing import encode_frame
from pyromq.remoting import connection_group
from pyromq.remoting.connection import Connection
from pyromq.remoting.connection_group import ConnectionGroup, ConnectionTerms
from pyromq.remoting.limits import ServerLimits
from pyromq.remoting.routing import Caller


class Line:
    """A connection to nowhere: `say` is what the peer sends, `heard` what it receives."""

    def __init__(self, group: ConnectionGroup | None = None, service: EchoService | None = None) -> None:
        self.service = service or EchoService()
        self.group = group or ConnectionGroup(
            ConnectionTerms(clock=ManualClock()), routes=self.service.routes()
        )
        self.connection = Connection(self.group)
        self.transport = FakeTransport(self.connection)
        self.connection.connection_made(self.transport)

    def say(self, *frames: Frame) -> None:
        self.connection.data_received(b"".join(map(encode_frame, frames)))

    def ask(self, *requests: Request[Any]) -> None:
        """Send requests, with opaque numbers counted from 0, in one read."""
        self.say(*(encode_request(request, opaque) for opaque, request in enumerate(requests)))

    def heard(self) -> list[Frame]:
        return self.transport.frames()


def limited(**limits: Any) -> Line:
    service = EchoService()
    return Line(
        ConnectionGroup(
            ConnectionTerms(limits=ServerLimits(**limits), clock=ManualClock()), routes=service.routes()
        ),
        service,
    )


async def turns(count: int = 5) -> None:
    """Let what is ready run."""
    for _ in range(count):
        await asyncio.sleep(0)


@pytest.mark.parametrize(
    ("peer", "proxied", "is_private"),
    [
        ("127.0.0.1", "", True),
        ("192.0.2.2", "", True),
        ("192.0.2.1", "", False),
        ("192.0.2.2", "192.0.2.2:1", False),
        ("192.0.2.2", "127.0.0.1:1", False),
    ],
)
async def test_a_connection_is_private_if_its_peer_is_on_this_machine(
    peer: str, proxied: str, is_private: bool
) -> None:
    connection = Connection(
        ConnectionGroup(ConnectionTerms(clock=ManualClock()), routes=EchoService().routes())
    )
    connection.peer_address = proxied
    connection.connection_made(FakeTransport(connection, peer))
    assert connection.is_private is is_private


@pytest.mark.parametrize("proxied", ["", "192.0.2.1:1"])
async def test_a_connection_over_a_unix_socket_is_private_without_a_proxy(proxied: str) -> None:
    connection = Connection(
        ConnectionGroup(ConnectionTerms(clock=ManualClock()), routes=EchoService().routes())
    )
    connection.peer_address = proxied
    transport: Any = FakeTransport(connection)
    transport._extra = {"peername": "", "sockname": "/run/broker.socket"}
    connection.connection_made(transport)
    assert connection.is_private is not bool(proxied)


async def test_all_frames_of_one_read_are_answered_in_one_write() -> None:
    line = Line()
    line.ask(Echo(text="a"), Echo(text="b"), Nobody(), Echo(text="c"))
    assert len(line.transport.writes) == 1
    assert [(frame.opaque, frame.code) for frame in line.heard()] == [(0, 0), (1, 0), (2, 3), (3, 0)]


async def test_a_plain_handler_needs_no_task() -> None:
    line = Line()
    line.ask(Echo(), WaitPerhaps(wait=False), Note(text="x"))
    assert asyncio.all_tasks() == {asyncio.current_task()}
    assert len(line.heard()) == 3


async def test_an_async_handler_answers_later_and_others_overtake_it() -> None:
    line = Line()
    line.ask(Wait(number=1), Wait(number=2), Echo(text="first"))
    assert [frame.ext["text"] for frame in line.heard()] == ["first"]
    await line.service.wait_arrived(2)
    line.service.release(2)
    await turns()
    line.service.release(1)
    await turns()
    assert [(frame.opaque, frame.ext["text"]) for frame in line.heard()] == [(1, "2"), (0, "1")]


async def test_answers_that_become_ready_together_leave_in_one_write() -> None:
    line = Line()
    line.ask(*(Wait(number=number) for number in range(10)))
    await line.service.wait_arrived(10)
    for number in range(10):
        line.service.release(number)
    await turns()
    assert len(line.transport.writes) == 1
    assert len(line.heard()) == 10


async def test_a_plain_handler_may_return_a_future() -> None:
    line = Line()
    line.ask(WaitPerhaps(wait=True))
    assert line.group.in_flight == 1
    assert line.service.perhaps is not None
    line.service.perhaps.set_exception(Refused(ResponseCode.NO_MESSAGE, "nothing came"))
    await turns()
    assert [(frame.code, frame.remark) for frame in line.heard()] == [(208, "nothing came")]
    assert line.group.in_flight == 0


async def test_nothing_returned_is_the_bare_success() -> None:
    line = Line()
    line.ask(Note(text="please confirm"))
    assert [(frame.code, frame.ext, frame.body) for frame in line.heard()] == [(0, {}, b"")]


@pytest.mark.parametrize("form", list(HeaderForm))
async def test_an_answer_has_the_header_form_of_its_request(form: HeaderForm) -> None:
    line = Line()
    line.say(*(encode_request(request, 1, form=form) for request in (Echo(text="x"), Fail(how="refused"))))
    assert [frame.form for frame in line.heard()] == [form, form]


async def test_an_unknown_code_is_not_supported() -> None:
    line = Line()
    line.say(Frame(29_999, opaque=7))
    (answer,) = line.heard()
    assert (answer.code, answer.opaque, answer.remark) == (3, 7, " request type 29999 not supported")
    assert line.group.statistics().unsupported_requests == 1


async def test_an_unserved_request_is_told_why() -> None:
    line = Line()
    line.ask(Nobody())
    (answer,) = line.heard()
    assert (answer.code, answer.remark) == (3, " request type 31007 not supported: only here to be declined")


async def test_a_refusal_is_answered_with_its_code_and_remark() -> None:
    line = Line()
    line.ask(Fail(how="refused"), Fail(how="surrogate"))
    assert [(frame.code, frame.remark) for frame in line.heard()] == [(16, "not today"), (16, "odd ? name")]


async def test_a_request_that_cannot_be_read_is_answered_with_what_is_wrong() -> None:
    line = Line()
    line.say(Frame(31_002, ext={"number": "many"}))
    (answer,) = line.heard()
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "number" in (answer.remark or "")


@pytest.mark.parametrize(("how", "remark"), [("bug", "RuntimeError: a bug"), ("wrong", "AttributeError: ")])
async def test_a_failing_handler_answers_system_error_and_logs(
    how: str, remark: str, error_logs: ErrorLogs
) -> None:
    line = Line()
    line.ask(Fail(how=how), Echo(text="still here"))
    failed, fine = line.heard()
    assert (failed.code, fine.code) == (1, 0)
    assert (failed.remark or "").startswith(remark)
    assert len(failed.remark or "") <= 1024
    assert error_logs.records[0].exc_info
    error_logs.expect("a handler failed code=31004 peer=192.0.2.1:5000")


async def test_a_failing_async_handler_answers_system_error_and_logs(error_logs: ErrorLogs) -> None:
    line = Line()
    line.ask(Wait(number=1))
    await line.service.wait_arrived(1)
    line.service.waiting.pop(1).set_exception(ValueError("broken"))
    await turns()
    assert [(frame.code, frame.remark) for frame in line.heard()] == [(1, "ValueError: broken")]
    assert line.group.in_flight == 0
    error_logs.expect("a handler failed code=31002")


async def test_oneway_requests_are_never_answered(error_logs: ErrorLogs) -> None:
    line = limited(max_in_flight=1)
    line.say(
        *(
            encode_request(request, 1, oneway=True)
            for request in (
                Note(text="kept"),
                Echo(text="?"),
                Nobody(),
                Fail(how="refused"),
                Fail(how="bug"),
                Large(size_bytes=20_000_000),
                Wait(number=1),
                Wait(number=2),  # over the limit
            )
        ),
        Frame(29_999, flag=ONEWAY_FLAG),
        Frame(31_002, flag=ONEWAY_FLAG, ext={"number": "many"}),
    )
    await line.service.wait_arrived(1)
    line.service.release(1)
    await turns()
    assert line.heard() == []
    assert line.service.notes == ["kept"]
    error_logs.expect("a handler failed")


async def test_an_answer_too_large_for_a_frame_becomes_system_error() -> None:
    line = limited(max_frame_bytes=4096)
    line.ask(Large(size_bytes=5000), Large(size_bytes=3000))
    large, small = line.heard()
    assert (large.code, large.body) == (1, b"")
    assert "4096 are allowed" in (large.remark or "")
    assert (small.code, len(small.body)) == (0, 3000)
    assert line.connection.is_open


# Calling


async def test_a_call_gets_its_typed_answer() -> None:
    line = Line()
    call = asyncio.ensure_future(line.connection.call(Echo(text="hi", body=b"there"), 5))
    await turns()
    (sent,) = line.heard()
    assert (sent.code, sent.ext, sent.body, sent.flag) == (31_001, {"text": "hi"}, b"there", 0)
    line.say(Frame(0, sent.opaque, RESPONSE_FLAG, ext={"text": "back"}, body=b"b"))
    answer = await call
    assert (answer.text, answer.body) == ("back", b"b")


async def test_calls_of_one_turn_leave_in_one_write_and_are_answered_in_any_order() -> None:
    line = Line()
    calls = [asyncio.ensure_future(line.connection.call(Echo(text=str(n)), 5)) for n in range(5)]
    await turns()
    assert len(line.transport.writes) == 1
    sent = line.heard()
    line.say(*(Frame(0, frame.opaque, RESPONSE_FLAG, ext=frame.ext) for frame in reversed(sent)))
    assert [answer.text for answer in await asyncio.gather(*calls)] == ["0", "1", "2", "3", "4"]


async def test_the_same_opaque_may_be_in_flight_in_both_directions() -> None:
    line = Line()
    call = asyncio.ensure_future(line.connection.call(Echo(text="ours"), 5))
    await turns()
    (ours,) = line.heard()
    line.say(encode_request(Echo(text="theirs"), ours.opaque))
    (answer_to_them,) = line.heard()
    assert (answer_to_them.opaque, answer_to_them.ext["text"]) == (ours.opaque, "theirs")
    assert not call.done()
    line.say(Frame(0, ours.opaque, RESPONSE_FLAG, ext={"text": "done"}))
    assert (await call).text == "done"


async def test_unmatched_answers_are_dropped_and_counted() -> None:
    line = Line()
    line.say(Frame(0, 77, RESPONSE_FLAG), Frame(1, 78, RESPONSE_FLAG), encode_request(Echo(), 1))
    assert len(line.heard()) == 1
    assert line.group.statistics().unmatched_answers == 2


async def test_opaque_numbers_wrap_like_an_int32() -> None:
    line = Line()
    line.connection._pending._next_opaque = 2**31 - 1
    for _ in range(3):
        line.connection.send_oneway(Note(text=""))
    await turns()
    assert [frame.opaque for frame in line.heard()] == [2**31 - 1, -(2**31), -(2**31) + 1]


async def test_a_oneway_request_says_so() -> None:
    line = Line()
    line.connection.send_oneway(Note(text="n"))
    await turns()
    assert [frame.flag for frame in line.heard()] == [ONEWAY_FLAG]
    assert line.connection.pending_calls == 0


async def test_a_call_that_is_refused_raises_what_was_answered() -> None:
    line = Line()
    call = asyncio.ensure_future(line.connection.call(Echo(), 5))
    await turns()
    line.say(Frame(17, line.heard()[0].opaque, RESPONSE_FLAG, remark="no such topic"))
    with pytest.raises(Refused) as refusal:
        await call
    assert (refusal.value.code, refusal.value.remark) == (17, "no such topic")


async def test_an_answer_that_cannot_be_read_is_the_peers_fault() -> None:
    line = Line()
    call = asyncio.ensure_future(line.connection.call(Echo(), 5))
    await turns()
    line.say(Frame(0, line.heard()[0].opaque, RESPONSE_FLAG))  # no text
    with pytest.raises(RemoteProtocolError, match="answer to Echo"):
        await call
    assert line.connection.is_open


async def test_a_call_ends_at_its_deadline_and_a_late_answer_is_dropped() -> None:
    line = Line()
    with pytest.raises(CallTimeout, match="no answer to Echo"):
        await line.connection.call(Echo(), 0)
    (sent,) = line.heard()
    line.say(Frame(0, sent.opaque, RESPONSE_FLAG))
    assert line.group.statistics().unmatched_answers == 1


async def test_a_cancelled_call_is_forgotten() -> None:
    line = Line()
    call = asyncio.ensure_future(line.connection.call(Echo(), 5))
    await turns()
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert line.connection.pending_calls == 0


async def test_calls_end_with_the_connection() -> None:
    line = Line()
    call = asyncio.ensure_future(line.connection.call(Echo(), 5))
    await turns()
    line.connection.connection_lost(ConnectionResetError("reset by peer"))
    with pytest.raises(ConnectionLost, match=r"192\.0\.2\.1:5000: reset by peer"):
        await call
    with pytest.raises(ConnectionLost):
        await line.connection.call(Echo(), 5)
    with pytest.raises(ConnectionLost):
        line.connection.send_oneway(Note(text=""))


async def test_a_request_too_large_for_a_frame_is_not_sent() -> None:
    line = limited(max_frame_bytes=1024)
    with pytest.raises(LocalProtocolError):
        await line.connection.call(Echo(body=bytes(2000)), 5)
    await turns()
    assert line.transport.writes == []
    assert line.connection.pending_calls == 0


async def test_requests_can_be_prepared_before_they_leave() -> None:
    def sign(frame: Frame) -> None:
        frame.ext["Signature"] = frame.ext["text"].upper()

    line = Line(ConnectionGroup(ConnectionTerms(form=HeaderForm.BINARY), new_signer=lambda: sign))
    line.connection.send_oneway(Note(text="abc"))
    await turns()
    (sent,) = line.heard()
    assert (sent.ext["Signature"], sent.form) == ("ABC", HeaderForm.BINARY)


# Limits


async def test_too_many_requests_in_flight_on_a_connection_are_refused() -> None:
    line = limited(max_in_flight_per_connection=2)
    line.ask(Wait(number=0), Wait(number=1), Wait(number=2), WaitPerhaps(wait=False), Echo(text="plain"))
    answers = line.heard()
    remark = "[OVERLOAD]system busy: 2 requests in flight on this connection"
    assert [(frame.opaque, frame.code) for frame in answers] == [(2, 2), (3, 2), (4, 0)]
    assert answers[0].remark == remark
    assert line.group.statistics().busy_answers == 2
    await line.service.wait_arrived(2)
    line.service.release(0)
    await turns()
    line.ask(WaitPerhaps(wait=False))
    assert [frame.code for frame in line.heard()] == [0, 0]
    line.service.release(1)
    await turns()


async def test_too_many_bytes_in_flight_stop_the_reading_of_that_socket() -> None:
    line = limited(max_in_flight_bytes_per_connection=10_000)
    line.ask(Wait(number=0, body=bytes(6000)))
    assert line.transport.is_reading()
    line.ask(Wait(number=1, body=bytes(6000)), Wait(number=2))
    assert not line.transport.is_reading()
    (busy,) = line.heard()
    assert busy.remark == "[OVERLOAD]system busy: 10000 bytes in flight on this connection"
    await line.service.wait_arrived(2)
    line.service.release(1)
    await turns()
    assert line.transport.is_reading()
    line.service.release(0)
    await turns()
    assert (line.group.in_flight_bytes, line.connection.in_flight) == (0, 0)


@pytest.mark.parametrize(
    ("limits", "body", "remark"),
    [
        ({"max_in_flight": 2}, b"", "2 requests in flight on this server"),
        ({"max_in_flight_bytes": 10_000}, bytes(5000), "10000 bytes in flight on this server"),
    ],
)
async def test_limits_in_total_hold_for_everyone(limits: dict[str, int], body: bytes, remark: str) -> None:
    service = EchoService()
    group = ConnectionGroup(
        ConnectionTerms(limits=ServerLimits(**limits), clock=ManualClock()), routes=service.routes()
    )
    first, second = Line(group, service), Line(group, service)
    first.ask(Wait(number=0, body=body), Wait(number=1, body=body))
    second.ask(Wait(number=2, body=body), Echo(text="plain"))
    busy, plain = second.heard()
    assert (busy.code, busy.remark, plain.code) == (2, f"[OVERLOAD]system busy: {remark}", 0)
    await service.wait_arrived(2)
    service.release(0)
    service.release(1)
    await turns()
    second.ask(WaitPerhaps(wait=False))
    assert [frame.code for frame in second.heard()] == [0]


async def test_a_group_closes_connections_that_open_while_it_closes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_group, "_CLOSE_TIMEOUT_S", 0.01)
    group = ConnectionGroup()
    first = Line(group)
    monkeypatch.setattr(first.transport, "close", lambda: None)  # its peer does not take the rest
    closing = asyncio.create_task(group.close(0))
    await turns()
    second = Line(group)  # its attempt had begun before
    monkeypatch.setattr(second.transport, "close", lambda: None)
    first.transport.abort()
    async with asyncio.timeout(60):
        await closing
    assert second.transport.is_aborted
    assert not group.connections


async def test_a_group_closes_though_a_connection_is_never_told_of_its_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connection_group, "_CLOSE_TIMEOUT_S", 0.01)
    group = ConnectionGroup()
    line = Line(group)
    monkeypatch.setattr(line.transport, "close", lambda: None)
    monkeypatch.setattr(line.transport, "abort", lambda: None)
    async with asyncio.timeout(60):
        await group.close(0)
    assert not group.connections


async def test_nothing_is_read_from_a_peer_that_does_not_read() -> None:
    line = limited(write_high_water_bytes=10_000)
    line.transport.hold_back = True
    line.ask(*(Large(size_bytes=4000) for _ in range(20)))
    assert not line.transport.is_reading()
    handled = len(line.heard())
    assert handled < 20, "answers were piled up although nobody reads them"
    line.ask(Echo(text="later"))  # already on its way when reading stopped
    assert line.heard() == []
    line.transport.drain()
    assert line.transport.is_reading()
    answers = line.heard()
    assert len(answers) == 20 - handled + 1
    assert answers[-1].ext["text"] == "later"


async def test_who_dialed_reads_on_whatever_waits_to_be_sent() -> None:
    """If both ends stopped reading, neither could ever send again."""
    service = EchoService()
    limits = ServerLimits(write_high_water_bytes=10_000, max_in_flight_bytes_per_connection=1000)
    line = Line(
        ConnectionGroup(
            ConnectionTerms(limits=limits, clock=ManualClock()), routes=service.routes(), pauses_reading=False
        ),
        service,
    )
    line.transport.hold_back = True
    line.ask(*(Large(size_bytes=4000) for _ in range(20)), Wait(number=1))
    assert line.transport.is_reading()
    assert len(line.heard()) == 20
    await service.wait_arrived(1)
    service.release(1)
    await turns()


async def test_a_call_waits_until_there_is_room_for_it() -> None:
    line = limited(write_high_water_bytes=10_000)
    line.transport.hold_back = True
    calls = [asyncio.ensure_future(line.connection.call(Echo(body=bytes(6000)), 5)) for _ in range(10)]
    await turns()
    first = line.heard()
    assert len(first) == 2, "more was sent than there was room for"
    line.transport.drain()
    await turns()
    rest = line.heard()
    assert len(rest) == 8
    line.say(*(Frame(0, frame.opaque, RESPONSE_FLAG, ext={"text": ""}) for frame in first + rest))
    await asyncio.gather(*calls)


async def test_a_call_that_finds_no_room_ends_at_its_deadline() -> None:
    line = limited(write_high_water_bytes=1000)
    line.transport.hold_back = True
    line.connection.send_oneway(Note(text="x" * 2000))
    with pytest.raises(CallTimeout, match="was not sent"):
        await line.connection.call(Echo(), 0)
    waiting = asyncio.ensure_future(line.connection.call(Echo(), 5))
    await turns()
    line.connection.abort()
    with pytest.raises(ConnectionLost):
        await waiting


async def test_what_waits_for_a_peer_that_never_reads_is_bounded() -> None:
    line = limited(write_high_water_bytes=1000, max_unsent_bytes_per_connection=50_000)
    line.transport.hold_back = True
    pushed = 0
    while line.connection.is_open and pushed < 1_000_000:
        line.connection.send_oneway(Note(text="x" * 1000))
        pushed += 1000
        await turns(1)
    assert pushed < 100_000
    with pytest.raises(ConnectionLost, match="the peer does not read"):
        line.connection.send_oneway(Note(text="once more"))
    assert line.transport.is_aborted
    assert line.group.statistics().closed_for_not_reading == 1


async def test_unfinished_frames_are_bounded_over_all_connections() -> None:
    group = ConnectionGroup(ConnectionTerms(limits=ServerLimits(max_partial_bytes=10_000)))
    lines = [Line(group, EchoService()) for _ in range(4)]
    start_of_frame = encode_frame(Frame(1, body=bytes(100_000)))
    for line, size in zip(lines, (2000, 5000, 2500, 2000), strict=True):
        line.connection.data_received(start_of_frame[:size])
    assert [line.connection.is_open for line in lines] == [True, False, True, True]
    assert group.partial_bytes == 6500
    assert group.statistics().closed_for_bad_input == 1
    lines[0].connection.data_received(start_of_frame[2000:3000])
    assert group.partial_bytes == 7500
    for line in lines:
        line.connection.close()
    assert group.partial_bytes == 0


async def test_damage_answers_what_was_whole_and_closes() -> None:
    line = Line()
    line.connection.data_received(encode_frame(encode_request(Echo(text="whole"), 1)) + b"\xff" * 8)
    assert [frame.ext["text"] for frame in line.heard()] == ["whole"]
    assert not line.connection.is_open
    assert line.group.statistics().closed_for_bad_input == 1


# Idling, draining, ending


async def test_a_connection_without_traffic_is_closed_after_the_idle_time() -> None:
    clock = ManualClock()
    group = ConnectionGroup(ConnectionTerms(limits=ServerLimits(idle_s=120), clock=clock))
    silent, reading, writing = (Line(group, EchoService()) for _ in range(3))
    for _ in range(12):
        clock.advance(10)
        reading.say(Frame(1))
        writing.connection.send_oneway(Note(text="x"))
        await turns(1)
        group.close_idle()
    clock.advance(10)
    group.close_idle()
    assert not silent.connection.is_open
    assert reading.connection.is_open
    assert writing.connection.is_open
    assert group.statistics().closed_for_idling == 1


async def test_a_peer_that_reads_slowly_is_not_idle() -> None:
    clock = ManualClock()
    line = Line(ConnectionGroup(ConnectionTerms(limits=ServerLimits(idle_s=120), clock=clock)))
    for unsent_bytes in (5000, 3000, 1000):
        clock.advance(100)
        line.transport._unsent_bytes = unsent_bytes
        line.group.close_idle()
    assert line.connection.is_open
    clock.advance(120)
    line.group.close_idle()
    assert line.transport.is_aborted, "a stuck peer must not keep the connection alive"


@pytest.mark.parametrize(("version", "code"), [(V5_3_1, 0), (V5_3_1 + 1, 1500), (479, 1500)])
async def test_a_draining_server_sends_new_clients_away(version: int, code: int) -> None:
    line = Line()
    line.group.is_draining = True
    line.say(encode_request(Echo(), 1, version=version), encode_request(Note(text="n"), 2, oneway=True))
    assert [frame.code for frame in line.heard()] == [code]
    assert line.service.notes == ["n"]


@pytest.mark.parametrize(("version", "code"), [(V5_3_1, 14), (V5_3_1 + 1, 1500)])
async def test_a_draining_server_takes_nothing_that_may_have_to_wait(version: int, code: int) -> None:
    line = Line()
    line.group.is_draining = True
    line.say(
        encode_request(WaitPerhaps(wait=True), 1, version=version),
        encode_request(Wait(number=1), 2, version=version),
        encode_request(Wait(number=2), 3, version=version, oneway=True),
    )
    assert [(frame.opaque, frame.code) for frame in line.heard()] == [(1, code), (2, code)]
    assert line.group.in_flight == 0


async def test_close_callbacks_are_called_once_even_if_one_fails(error_logs: ErrorLogs) -> None:
    line = Line()
    seen: list[Connection] = []

    def fail(_: Connection) -> None:
        raise RuntimeError("callback")

    line.connection.on_close(fail)
    line.connection.on_close(seen.append)
    line.connection.close()
    line.connection.close()
    assert seen == [line.connection]
    error_logs.expect("a close callback failed")


async def test_what_was_said_before_closing_is_still_sent() -> None:
    line = Line()
    line.connection.send_oneway(Note(text="last words"))
    line.connection.close()
    assert [frame.ext["text"] for frame in line.heard()] == ["last words"]


async def test_an_answer_for_a_connection_that_is_gone_is_dropped() -> None:
    line = Line()
    line.ask(Wait(number=1))
    await line.service.wait_arrived(1)
    line.connection.close()
    line.service.release(1)
    await turns()
    assert line.heard() == []
    assert line.group.in_flight == 0


# Hooks


class Tally:
    def __init__(self) -> None:
        self.seen: list[tuple[str | None, int, int, float, bool]] = []

    def request_handled(
        self, declaration: Declaration | None, code: int, result_code: int, seconds: float, waited: bool
    ) -> None:
        self.seen.append((declaration.name if declaration else None, code, result_code, seconds, waited))


async def test_an_observer_sees_every_request_with_its_result_and_time() -> None:
    tally, clock, service = Tally(), ManualClock(), EchoService()
    line = Line(
        ConnectionGroup(ConnectionTerms(observer=tally, clock=clock), routes=service.routes()), service
    )
    line.ask(Wait(number=1), Echo(), Fail(how="refused"))
    line.say(Frame(29_999), encode_request(Note(text="x"), 1, oneway=True))
    await service.wait_arrived(1)
    clock.advance(2)
    service.release(1)
    await turns()
    assert tally.seen == [
        ("Echo", 31_001, 0, 0.0, False),
        ("Fail", 31_004, 16, 0.0, False),
        (None, 29_999, 3, 0.0, False),
        ("Note", 31_005, 0, 0.0, False),
        ("Wait", 31_002, 0, 2.0, True),
    ]


def test_a_caller_tells_who_calls() -> None:
    frame = Frame(1, version=401, language=9)

    caller = Caller(FakeChannel("192.0.2.9:1"), frame)
    assert (caller.address, caller.version, caller.language) == ("192.0.2.9:1", 401, 9)


async def test_objects_say_what_they_are() -> None:
    line = Line()
    assert repr(line.connection) == (
        "<Connection 192.0.2.2:10911 to 192.0.2.1:5000 open calls=0 in_flight=0 unsent_bytes=0>"
    )
    assert repr(line.group) == "<ConnectionGroup connections=1 in_flight=0 in_flight_bytes=0 partial_bytes=0>"
    line.connection.close()
    assert "closed" in repr(line.connection)
