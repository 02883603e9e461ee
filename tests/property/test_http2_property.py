"""HTTP/2 under any bytes, any split of them and any windows."""

from hypothesis import given
from hypothesis import strategies as st
from tests.support.http2_peer import CALL, HELLO, data, greeted, headers, read_frames, receive

from pyromq.http2 import frames
from pyromq.http2.connection import Http2Connection
from pyromq.http2.events import ConnectionEnded, DataReceived, Event, RequestReceived, WholeRequest
from pyromq.http2.hpack import encode

_STREAMS = st.sampled_from([0, 1, 2, 3, 5, 7, 9, 2**31 - 1])
_PAYLOADS = st.binary(max_size=40) | st.just(encode(CALL))
_BLOCKS = st.sampled_from(
    [
        encode(CALL),
        encode([*CALL, (b"content-length", b"3")]),
        encode([*CALL, (b"Upper", b"x")]),
        encode([*CALL, (b"x-mq", b"1")]),
        b"\xff",
    ]
)
_REQUESTS = st.builds(
    lambda stream_id, block, body: (
        frames.frame(frames.HEADERS, frames.END_HEADERS, stream_id, block) + data(stream_id, body, ends=True)
    ),
    st.sampled_from([1, 3, 5, 7, 9, 11, 13]),
    _BLOCKS,
    st.binary(max_size=8),
)
_FRAMES = st.one_of(
    st.builds(frames.frame, st.integers(0, 11), st.integers(0, 255), _STREAMS, _PAYLOADS),
    st.builds(headers, _STREAMS),
    st.builds(data, _STREAMS, st.binary(max_size=20), ends=st.booleans()),
    st.builds(frames.window_update, _STREAMS, st.integers(0, 2**31 - 1)),
    st.builds(frames.rst_stream, _STREAMS, st.integers(0, 13)),
    st.builds(
        lambda name, value: frames.settings({name: value}), st.integers(0, 8), st.integers(0, 2**32 - 1)
    ),
)


def _one_by_one(events: list[Event]) -> list[Event]:
    """The same events without those that stand for two."""
    parts: list[Event] = []
    for event in events:
        if isinstance(event, WholeRequest):
            parts.append(RequestReceived(event.stream_id, event.headers, False))
            parts.append(DataReceived(event.stream_id, event.data, True))
        else:
            parts.append(event)
    return parts


@given(st.lists(_FRAMES | _REQUESTS | st.binary(max_size=30), max_size=30), st.data())
def test_any_frames_give_the_same_events_however_they_are_split(
    pieces: list[bytes], draw: st.DataObject
) -> None:
    stream = HELLO + b"".join(pieces)
    whole, split = Http2Connection(), Http2Connection()
    expected = whole.receive(stream, 0.0)
    events: list[Event] = []
    position = 0
    while position < len(stream):
        size = draw.draw(st.integers(1, 1 + len(stream) // 3))
        events += split.receive(stream[position : position + size], 0.0)
        position += size
    assert _one_by_one(events) == _one_by_one(expected)
    assert split.take_output() == whole.take_output()
    assert sum(isinstance(event, ConnectionEnded) for event in events) == whole.has_ended


_STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("send"), st.sampled_from([1, 3, 5]), st.integers(0, 70_000)),
        st.tuples(st.just("window"), st.sampled_from([0, 1, 3, 5]), st.integers(64, 50_000)),
        st.tuples(st.just("initial"), st.just(0), st.integers(0, 100_000)),
    ),
    max_size=40,
)


@given(_STEPS)
def test_answers_never_exceed_a_window_and_arrive_whole(steps: list[tuple[str, int, int]]) -> None:
    connection = greeted(Http2Connection())
    streams = (1, 3, 5)
    initial = 65_535
    granted = {0: initial, **dict.fromkeys(streams, initial)}
    sent, arrived = ({stream_id: bytearray() for stream_id in streams} for _ in range(2))
    for stream_id in streams:
        receive(connection, headers(stream_id, flags=frames.END_HEADERS | frames.END_STREAM))

    def read() -> None:
        for each in read_frames(connection.take_output()):
            if each.kind == frames.DATA:
                arrived[each.stream_id] += each.payload
        for stream_id in streams:
            # A smaller initial window may leave a stream below zero, but only if nothing was sent since.
            assert len(arrived[stream_id]) <= max(granted[stream_id], highest[stream_id])
        assert sum(map(len, arrived.values())) <= granted[0]

    highest = dict.fromkeys(streams, initial)
    for kind, stream_id, amount in steps:
        if kind == "send":
            letter = bytes((len(sent[stream_id]) % 251,))
            connection.send_data(stream_id, letter * amount)
            sent[stream_id] += letter * amount
        elif kind == "window":
            granted[stream_id] += amount
            receive(connection, frames.window_update(stream_id, amount))
        else:
            for each in streams:
                granted[each] += amount - initial
            initial = amount
            receive(connection, frames.settings({frames.INITIAL_WINDOW_SIZE: amount}))
        highest = {each: max(highest[each], granted[each]) for each in streams}
        read()
    for stream_id in (0, *streams):
        receive(connection, frames.window_update(stream_id, 10_000_000))
    connection.receive(b"", 0.0)
    for stream_id in streams:
        connection.send_trailers(stream_id, encode([(b"grpc-status", b"0")]))
    granted = {each: granted[each] + 10_000_000 for each in granted}
    read()
    assert arrived == sent
    assert connection.waiting_bytes == 0
    assert connection.open_streams == 0
