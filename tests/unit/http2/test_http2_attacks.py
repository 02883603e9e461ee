"""The known attacks on HTTP/2: each one ends its own connection after a bounded amount of work and memory."""

import pytest
from tests.support.http2_peer import CALL, data, goaway_code, greeted, headers, receive

from pyromq.http2 import frames
from pyromq.http2.connection import Http2Connection
from pyromq.http2.events import ConnectionEnded, StreamReset
from pyromq.http2.frames import ErrorCode
from pyromq.http2.hpack import encode
from pyromq.http2.limits import Http2Limits

CALM = ErrorCode.ENHANCE_YOUR_CALM


@pytest.fixture
def connection() -> Http2Connection:
    return greeted(Http2Connection(Http2Limits(max_resets=50, max_idle_frames=100)))


def _ended_after(connection: Http2Connection, *rounds: bytes, at_most: int) -> int:
    """How many rounds it took until the connection ended."""
    for number, each in enumerate(rounds):
        if any(isinstance(event, ConnectionEnded) for event in receive(connection, each)):
            assert goaway_code(connection.take_output()) == CALM
            assert connection.open_streams == 0
            return number
    pytest.fail(f"still open after {at_most} rounds")


def test_rapid_reset(connection: Http2Connection) -> None:
    rounds = [
        headers(stream_id, flags=frames.END_HEADERS | frames.END_STREAM) + frames.rst_stream(stream_id, 8)
        for stream_id in range(1, 1001, 2)
    ]
    assert _ended_after(connection, *rounds, at_most=500) == 50


def test_resets_provoked_by_broken_requests(connection: Http2Connection) -> None:
    rounds = [headers(stream_id, CALL[1:]) for stream_id in range(1, 1001, 2)]
    assert _ended_after(connection, *rounds, at_most=500) == 50


def test_resets_now_and_then_are_no_attack(connection: Http2Connection) -> None:
    for number in range(1000):
        stream_id = 2 * number + 1
        events = receive(connection, headers(stream_id), frames.rst_stream(stream_id, 8), now=number / 10)
        assert events[-1] == StreamReset(stream_id, 8)


@pytest.mark.parametrize("size", [0, 10])
def test_continuation_flood(connection: Http2Connection, size: int) -> None:
    receive(connection, frames.frame(frames.HEADERS, 0, 1, b""))
    piece = frames.frame(frames.CONTINUATION, 0, 1, b"x" * size)
    assert _ended_after(connection, *[piece] * 1000, at_most=1000) <= 128


def test_continuation_flood_with_large_frames(connection: Http2Connection) -> None:
    receive(connection, frames.frame(frames.HEADERS, 0, 1, b""))
    piece = frames.frame(frames.CONTINUATION, 0, 1, b"x" * 16_384)
    assert _ended_after(connection, *[piece] * 10, at_most=10) == 2


def test_header_bomb(connection: Http2Connection) -> None:
    large = b"\x40\x01a\x7f\xa1\x1e" + b"v" * 4000
    block = encode(CALL) + large + b"\xbe" * 10_000
    assert len(block) < 16_384
    attack = frames.frame(frames.HEADERS, frames.END_HEADERS, 1, block)
    assert _ended_after(connection, attack, at_most=1) == 0


@pytest.mark.parametrize(
    "flood",
    [
        frames.frame(frames.PING, 0, 0, b"12345678"),
        frames.frame(frames.PING, frames.ACK, 0, b"12345678"),
        frames.settings({}),
        frames.settings({frames.INITIAL_WINDOW_SIZE: 1}),
        frames.frame(frames.SETTINGS, frames.ACK, 0),
        frames.frame(frames.PRIORITY, 0, 1, b"\0\0\0\0\0"),
        frames.frame(0x42, 0, 0, b""),
        frames.window_update(0, 1),
        frames.goaway(0, 0),
        data(1, b""),
    ],
)
def test_floods_of_frames_that_carry_nothing(connection: Http2Connection, flood: bytes) -> None:
    receive(connection, headers(1))
    connection.take_output()
    assert _ended_after(connection, *[flood] * 1000, at_most=1000) == 100


def test_pings_of_a_patient_client_are_no_attack(connection: Http2Connection) -> None:
    for number in range(1000):
        assert receive(connection, frames.frame(frames.PING, 0, 0, b"12345678"), now=number * 0.01) == []


def test_a_busy_client_that_pings_with_every_answer_is_no_attack(connection: Http2Connection) -> None:
    ping = frames.frame(frames.PING, 0, 0, b"12345678")
    for number in range(2000):
        stream_id = 2 * number + 1
        call = headers(stream_id, flags=frames.END_HEADERS | frames.END_STREAM)
        assert len(receive(connection, call, ping, ping, frames.window_update(0, 5))) == 1
        connection.send_data(stream_id, b"body!")
        connection.send_trailers(stream_id, b"")
        assert not connection.has_ended


def test_floods_of_refused_streams() -> None:
    connection = greeted(Http2Connection(Http2Limits(max_concurrent_streams=1, max_idle_frames=100)))
    rounds = [headers(stream_id) for stream_id in range(1, 1001, 2)]
    assert _ended_after(connection, *rounds, at_most=500) == 101


def test_a_window_that_overflows_ends_its_stream(connection: Http2Connection) -> None:
    events = receive(connection, headers(1), frames.window_update(1, frames.MAX_WINDOW))
    assert events[-1] == StreamReset(1, ErrorCode.FLOW_CONTROL_ERROR)


def test_windows_that_overflow_by_a_setting_end_the_connection(connection: Http2Connection) -> None:
    receive(connection, headers(1), frames.window_update(1, frames.MAX_WINDOW - 65_535))
    receive(connection, frames.settings({frames.INITIAL_WINDOW_SIZE: 65_536}))
    assert goaway_code(connection.take_output()) == ErrorCode.FLOW_CONTROL_ERROR


def test_more_data_than_the_window_ends_the_stream() -> None:
    connection = greeted(Http2Connection(Http2Limits(stream_window_bytes=1000)))
    events = receive(connection, headers(1), data(1, b"x" * 1001))
    assert events[-1] == StreamReset(1, ErrorCode.FLOW_CONTROL_ERROR)


def test_more_data_than_the_window_of_the_connection_ends_it() -> None:
    connection = greeted(Http2Connection(Http2Limits(connection_window_bytes=65_535, max_frame_bytes=70_000)))
    receive(connection, headers(1), data(1, b"x" * 66_000))
    assert goaway_code(connection.take_output()) == ErrorCode.FLOW_CONTROL_ERROR
