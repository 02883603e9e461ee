"""An HTTP/2 connection as its peer sees it: requests, answers, windows, and broken rules."""

import pytest
from tests.support.http2_peer import (
    CALL,
    HELLO,
    data,
    goaway_code,
    greeted,
    headers,
    read_frames,
    receive,
)

from pyromq.http2 import frames
from pyromq.http2.connection import Http2Connection
from pyromq.http2.events import (
    ConnectionEnded,
    DataReceived,
    PeerLeaving,
    RequestReceived,
    StreamDrained,
    StreamReset,
)
from pyromq.http2.frames import ErrorCode
from pyromq.http2.hpack import encode
from pyromq.http2.limits import Http2Limits

ANSWER = encode([(b":status", b"200")])
TRAILERS = encode([(b"grpc-status", b"0")])
CONNECT = [(b":method", b"CONNECT"), *CALL[1:]]


@pytest.fixture
def connection() -> Http2Connection:
    return greeted(Http2Connection())


def test_the_server_greets_with_its_settings_and_acknowledges_the_peers() -> None:
    connection = Http2Connection()
    assert connection.receive(HELLO, 0.0) == []
    kinds = [(each.kind, each.flags) for each in read_frames(connection.take_output())]
    assert kinds == [(frames.SETTINGS, 0), (frames.WINDOW_UPDATE, 0), (frames.SETTINGS, frames.ACK)]


def test_a_request_arrives_with_its_headers_and_its_body(connection: Http2Connection) -> None:
    events = receive(connection, headers(1), data(1, b"bo"), data(1, b"dy", ends=True))
    assert events == [
        RequestReceived(1, CALL, False), DataReceived(1, b"bo", False), DataReceived(1, b"dy", True)
    ]  # fmt: skip


def test_headers_may_come_in_pieces_with_padding_and_priority(connection: Http2Connection) -> None:
    block = encode(CALL)
    first = b"\x03" + b"\0\0\0\0\x10" + block[:5] + b"\0\0\0"
    flags = frames.PADDED | frames.PRIORITIZED | frames.END_STREAM
    events = receive(
        connection,
        frames.frame(frames.HEADERS, flags, 1, first),
        frames.frame(frames.CONTINUATION, 0, 1, block[5:9]),
        frames.frame(frames.CONTINUATION, frames.END_HEADERS, 1, block[9:]),
    )
    assert events == [RequestReceived(1, CALL, True)]


def test_an_answer_is_headers_data_and_trailers(connection: Http2Connection) -> None:
    receive(connection, headers(1, flags=frames.END_HEADERS | frames.END_STREAM))
    connection.send_headers(1, ANSWER)
    assert connection.send_data(1, b"body")
    connection.send_trailers(1, TRAILERS)
    assert read_frames(connection.take_output()) == [
        (frames.HEADERS, frames.END_HEADERS, 1, ANSWER),
        (frames.DATA, 0, 1, b"body"),
        (frames.HEADERS, frames.END_HEADERS | frames.END_STREAM, 1, TRAILERS),
    ]
    assert connection.open_streams == 0


def test_an_early_answer_tells_the_peer_to_send_no_more(connection: Http2Connection) -> None:
    receive(connection, headers(1))
    connection.send_trailers(1, TRAILERS)
    assert read_frames(connection.take_output())[-1] == (frames.RST_STREAM, 0, 1, b"\0\0\0\0")
    # What the peer sent before it knew harms nobody.
    assert receive(connection, data(1, b"late", ends=True)) == []
    assert not connection.has_ended


def test_data_waits_for_the_windows_of_the_stream_and_of_the_connection(connection: Http2Connection) -> None:
    receive(connection, headers(1, flags=frames.END_HEADERS | frames.END_STREAM))
    connection.send_headers(1, ANSWER)
    assert not connection.send_data(1, b"x" * 100_000)
    assert connection.waiting_bytes == 100_000 - 65_535
    sent = [each for each in read_frames(connection.take_output()) if each.kind == frames.DATA]
    assert sum(len(each.payload) for each in sent) == 65_535
    assert max(len(each.payload) for each in sent) == 16_384

    assert receive(connection, frames.window_update(1, 100_000)) == []
    assert connection.take_output() == b""
    assert receive(connection, frames.window_update(0, 100_000)) == [StreamDrained(1)]
    assert connection.waiting_bytes == 0
    assert len(connection.take_output()) > 34_000


def test_trailers_come_after_data_that_had_to_wait(connection: Http2Connection) -> None:
    receive(connection, headers(1, flags=frames.END_HEADERS | frames.END_STREAM))
    connection.send_data(1, b"x" * 70_000)
    connection.send_trailers(1, TRAILERS)
    connection.take_output()
    receive(connection, frames.window_update(1, 70_000), frames.window_update(0, 70_000))
    assert [each.kind for each in read_frames(connection.take_output())] == [frames.DATA, frames.HEADERS]
    assert connection.open_streams == 0


def test_streams_take_turns_when_the_window_of_the_connection_grows(connection: Http2Connection) -> None:
    for stream_id in (1, 3):
        receive(connection, headers(stream_id, flags=frames.END_HEADERS | frames.END_STREAM))
        receive(connection, frames.window_update(stream_id, 1_000_000))
        connection.send_data(stream_id, b"x" * 100_000)
    connection.take_output()
    served = []
    for _ in range(4):
        receive(connection, frames.window_update(0, 1000))
        served.append(read_frames(connection.take_output())[0].stream_id)
    assert served == [1, 3, 1, 3]


def test_windows_of_requests_are_renewed_while_they_are_read(connection: Http2Connection) -> None:
    receive(connection, headers(1))
    total = 0
    for _ in range(800):
        events = receive(connection, data(1, b"x" * 16_000))
        total += sum(len(event.data) for event in events if isinstance(event, DataReceived))
    assert total == 800 * 16_000
    renewed = {each.stream_id for each in read_frames(connection.take_output())}
    assert renewed == {0, 1}


def test_a_reset_stream_is_told_and_takes_nothing_more(connection: Http2Connection) -> None:
    receive(connection, headers(1))
    connection.send_data(1, b"x" * 100_000)
    assert receive(connection, frames.rst_stream(1, ErrorCode.CANCEL)) == [StreamReset(1, ErrorCode.CANCEL)]
    connection.take_output()
    assert connection.waiting_bytes == 0
    connection.send_trailers(1, TRAILERS)
    assert connection.take_output() == b""


def test_streams_beyond_the_limit_are_refused() -> None:
    connection = greeted(Http2Connection(Http2Limits(max_concurrent_streams=1)))
    events = receive(connection, headers(1), headers(3))
    assert events == [RequestReceived(1, CALL, False)]
    expected = frames.rst_stream(3, ErrorCode.REFUSED_STREAM)
    assert connection.take_output() == expected


def test_a_leaving_server_finishes_what_it_has_and_refuses_more(connection: Http2Connection) -> None:
    receive(connection, headers(1))
    connection.leave()
    assert goaway_code(connection.take_output()) == ErrorCode.NO_ERROR
    receive(connection, headers(3), data(1, b"", ends=True))
    connection.send_trailers(1, TRAILERS)
    assert [(each.kind, each.stream_id) for each in read_frames(connection.take_output())] == [
        (frames.RST_STREAM, 3),
        (frames.HEADERS, 1),
    ]


def test_a_peer_that_leaves_is_noticed(connection: Http2Connection) -> None:
    assert receive(connection, frames.goaway(0, 0)) == [PeerLeaving()]


def test_pings_are_answered(connection: Http2Connection) -> None:
    receive(connection, frames.frame(frames.PING, 0, 0, b"12345678"))
    assert connection.take_output() == frames.frame(frames.PING, frames.ACK, 0, b"12345678")


def test_unknown_frames_and_settings_are_ignored(connection: Http2Connection) -> None:
    assert receive(connection, frames.frame(0x42, 0, 7, b"?"), frames.settings({0x99: 1})) == []
    assert not connection.has_ended


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ([*CALL, (b"Upper", b"x")], "upper case"),
        ([*CALL, (b"connection", b"close")], "a header of connections"),
        ([*CALL, (b"te", b"gzip")], "te"),
        ([*CALL, (b"x", b"a\r\nb")], "a line break"),
        ([*CALL, (b":late", b"")], "an unknown pseudo-header"),
        ([CALL[0], *CALL], "a repeated pseudo-header"),
        ([(b":protocol", b"websocket"), *CONNECT], "a protocol where none is taken"),
        (CALL[1:], "no method"),
        ([*CALL, (b"content-length", b"many")], "a length that is no number"),
    ],
)
def test_a_malformed_request_is_reset_and_the_connection_goes_on(
    connection: Http2Connection, fields: list[tuple[bytes, bytes]], why: str
) -> None:
    events = receive(connection, headers(1, fields))
    assert not [event for event in events if isinstance(event, RequestReceived)], why
    assert connection.take_output() == frames.rst_stream(1, ErrorCode.PROTOCOL_ERROR)
    assert receive(connection, headers(3)) == [RequestReceived(3, CALL, False)]


def test_only_connect_may_name_a_protocol_and_only_where_it_is_taken() -> None:
    connection = Http2Connection(takes_protocols=True)
    (settings, *_) = read_frames(connection.take_output())
    assert (frames.ENABLE_CONNECT_PROTOCOL, 1) in frames.SETTING.iter_unpack(settings.payload)
    greeted(connection)
    (opened,) = receive(connection, headers(1, [(b":protocol", b"websocket"), *CONNECT]))
    assert isinstance(opened, RequestReceived)
    assert receive(connection, headers(3, [(b":protocol", b"websocket"), *CALL])) == []
    assert connection.take_output() == frames.rst_stream(3, ErrorCode.PROTOCOL_ERROR)


def test_a_held_stream_gets_no_wider_window_until_it_is_let_go(connection: Http2Connection) -> None:
    window = connection.limits.stream_window_bytes
    receive(connection, headers(1))
    connection.hold(1, is_held=True)
    pieces = [data(1, bytes(16_384))] * (window // 16_384 - 1)
    receive(connection, *pieces)
    assert not [each for each in read_frames(connection.take_output()) if each.stream_id == 1]
    connection.hold(1, is_held=False)
    assert connection.take_output() == frames.window_update(1, 16_384 * len(pieces))


def test_a_body_must_have_the_length_it_promised(connection: Http2Connection) -> None:
    events = receive(connection, headers(1, [*CALL, (b"content-length", b"3")]), data(1, b"four", ends=True))
    assert events[-1] == StreamReset(1, ErrorCode.PROTOCOL_ERROR)


@pytest.mark.parametrize(
    ("broken", "code"),
    [
        (frames.frame(frames.PING, 0, 0, b"short"), ErrorCode.FRAME_SIZE_ERROR),
        (frames.frame(frames.PING, 0, 1, b"12345678"), ErrorCode.PROTOCOL_ERROR),
        (frames.frame(frames.SETTINGS, 0, 1), ErrorCode.PROTOCOL_ERROR),
        (frames.frame(frames.SETTINGS, frames.ACK, 0, b"123456"), ErrorCode.FRAME_SIZE_ERROR),
        (frames.frame(frames.SETTINGS, 0, 0, b"12345"), ErrorCode.FRAME_SIZE_ERROR),
        (frames.settings({frames.ENABLE_PUSH: 2}), ErrorCode.PROTOCOL_ERROR),
        (frames.settings({frames.MAX_FRAME_SIZE: 1}), ErrorCode.PROTOCOL_ERROR),
        (frames.settings({frames.INITIAL_WINDOW_SIZE: 2**31}), ErrorCode.FLOW_CONTROL_ERROR),
        (frames.frame(frames.PUSH_PROMISE, 0, 1, b"1234"), ErrorCode.PROTOCOL_ERROR),
        (frames.frame(frames.CONTINUATION, 0, 1), ErrorCode.PROTOCOL_ERROR),
        (frames.frame(frames.HEADERS, 0, 1) + data(1, b""), ErrorCode.PROTOCOL_ERROR),
        (headers(2), ErrorCode.PROTOCOL_ERROR),
        (headers(0), ErrorCode.PROTOCOL_ERROR),
        (data(1, b""), ErrorCode.PROTOCOL_ERROR),
        (frames.rst_stream(1, 0), ErrorCode.PROTOCOL_ERROR),
        (frames.window_update(1, 1), ErrorCode.PROTOCOL_ERROR),
        (frames.window_update(0, 0), ErrorCode.PROTOCOL_ERROR),
        (frames.window_update(0, frames.MAX_WINDOW), ErrorCode.FLOW_CONTROL_ERROR),
        (frames.frame(frames.GOAWAY, 0, 0, b"1"), ErrorCode.FRAME_SIZE_ERROR),
        (frames.frame(frames.PRIORITY, 0, 0, b"12345"), ErrorCode.PROTOCOL_ERROR),
        (
            frames.frame(frames.HEADERS, frames.PADDED | frames.END_HEADERS, 1, b"\x09"),
            ErrorCode.PROTOCOL_ERROR,
        ),
        (frames.frame(frames.HEADERS, frames.END_HEADERS, 1, b"\xff"), ErrorCode.COMPRESSION_ERROR),
        (frames.frame(frames.DATA, 0, 1, b"x" * 16_385)[:20], ErrorCode.FRAME_SIZE_ERROR),
    ],
)
def test_a_broken_rule_of_the_connection_ends_it(
    connection: Http2Connection, broken: bytes, code: ErrorCode
) -> None:
    events = receive(connection, broken)
    assert [event.code for event in events if isinstance(event, ConnectionEnded)] == [code]
    assert goaway_code(connection.take_output()) == code
    assert receive(connection, headers(5)) == []


def test_another_preface_ends_the_connection() -> None:
    connection = Http2Connection()
    assert isinstance(connection.receive(b"GET / HTTP/1.1\r\n\r\n", 0.0)[0], ConnectionEnded)


def test_a_closed_stream_cannot_be_opened_again(connection: Http2Connection) -> None:
    receive(connection, headers(1, flags=frames.END_HEADERS | frames.END_STREAM))
    connection.send_trailers(1, TRAILERS)
    connection.take_output()
    receive(connection, headers(1))
    assert goaway_code(connection.take_output()) == ErrorCode.STREAM_CLOSED


def test_a_whole_answer_is_the_same_as_its_parts_after_each_other() -> None:
    for size in (1, 100, 70_000):  # the last one is more than the window
        parts, whole = greeted(Http2Connection()), greeted(Http2Connection())
        for connection in (parts, whole):
            receive(connection, headers(1, flags=frames.END_HEADERS | frames.END_STREAM))
            connection.take_output()
        parts.send_headers(1, b"begin")
        parts.send_data(1, b"d" * size)
        parts.send_trailers(1, b"end")
        whole.answer(1, b"begin", b"d" * size, b"end")
        assert whole.take_output() == parts.take_output()
        assert whole.open_streams == parts.open_streams
