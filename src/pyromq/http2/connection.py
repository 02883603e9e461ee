"""The server's side of one HTTP/2 connection: `receive` takes bytes and returns events, `take_output` has the
answer.

It knows no socket and no clock. A broken rule of one stream resets that stream; anything that leaves the two
sides in doubt about the connection ends it, and so does a peer that only makes work.
"""

from collections import deque
from typing import Any

from pyromq.compiled import twin
from pyromq.errors import RemoteProtocolError
from pyromq.http2 import frames
from pyromq.http2.budget import Budget
from pyromq.http2.events import (
    ConnectionEnded,
    DataReceived,
    Event,
    PeerLeaving,
    RequestReceived,
    StreamDrained,
    StreamReset,
    WholeRequest,
)
from pyromq.http2.frames import ErrorCode
from pyromq.http2.header_rules import GOOD_NAMES, problem_of_request, problem_of_trailers
from pyromq.http2.hpack import Decoder, Header, HeadersTooLarge
from pyromq.http2.limits import Http2Limits

_native = twin("http2.twin_hpack")
new_decoder: type[Decoder] = Decoder if _native is None else _native.Decoder

_answer_frames = frames.answer if _native is None else _native.answer_frames

_FIRST_WINDOW = 65_535
_TINY_INCREMENT = 64
_MAX_CONTINUATIONS = 128
_IDLE_FRAMES_PER_REQUEST = 8
_IDLE_FRAMES_PER_ANSWER = 4


class _ConnectionError(Exception):
    def __init__(self, code: ErrorCode, reason: str) -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason


class _StreamError(Exception):
    def __init__(self, stream_id: int, code: ErrorCode) -> None:
        super().__init__(stream_id, code)
        self.stream_id = stream_id
        self.code = code


class _Stream:
    __slots__ = (
        "expected_bytes",
        "has_peer_ended",
        "receive_window",
        "send_window",
        "trailers",
        "waiting",
    )

    def __init__(self, send_window: int, receive_window: int, has_peer_ended: bool = False) -> None:
        self.send_window = send_window
        self.receive_window = receive_window
        self.has_peer_ended = has_peer_ended
        self.expected_bytes: int | None = None
        self.waiting: deque[bytes] | None = None
        """Data that waits for the peer's window."""
        self.trailers: bytes | None = None
        """The header block that ends the stream after the waiting data."""


class Http2Connection:
    def __init__(self, limits: Http2Limits | None = None) -> None:
        self.limits = limits if limits is not None else Http2Limits()
        self._streams: dict[int, _Stream] = {}
        self._decoder = new_decoder(self.limits.max_header_list_bytes)
        self._output: list[bytes] = []
        self._input = b""
        self._has_preface = self._has_settings = False
        self._last_stream_id = 0
        self._send_window = _FIRST_WINDOW
        self._receive_window = self.limits.connection_window_bytes
        self._peer_window = _FIRST_WINDOW
        self._peer_max_frame = frames.MIN_FRAME_BYTES
        self._block: bytearray | None = None
        self._block_stream_id = self._block_flags = self._block_frames = 0
        self._resets = Budget(self.limits.max_resets, self.limits.resets_per_s)
        self._idle_frames = Budget(self.limits.max_idle_frames, self.limits.idle_frames_per_s)
        self._now = 0.0
        self._blocked: dict[int, None] = {}
        """Streams whose data waits, in the order in which they get a turn."""
        self.waiting_bytes = 0
        self.is_leaving = self.has_ended = False
        values = {
            frames.MAX_CONCURRENT_STREAMS: self.limits.max_concurrent_streams,
            frames.INITIAL_WINDOW_SIZE: self.limits.stream_window_bytes,
            frames.MAX_FRAME_SIZE: self.limits.max_frame_bytes,
            frames.MAX_HEADER_LIST_SIZE: self.limits.max_header_list_bytes,
        }
        self._output.append(frames.settings(values))
        self._output.append(frames.window_update(0, self.limits.connection_window_bytes - _FIRST_WINDOW))

    def __repr__(self) -> str:
        state = "ended" if self.has_ended else "leaving" if self.is_leaving else "open"
        return f"<Http2Connection {state} streams={len(self._streams)} waiting_bytes={self.waiting_bytes}>"

    @property
    def open_streams(self) -> int:
        return len(self._streams)

    @property
    def has_output(self) -> bool:
        return bool(self._output)

    def take_output(self) -> bytes:
        """The bytes to write now."""
        if not self._output:
            return b""
        output = b"".join(self._output)
        self._output.clear()
        return output

    # Reading

    def receive(self, data: bytes, now: float) -> list[Event]:
        """`now`: the time in seconds by any clock that never goes back."""
        events: list[Event] = []
        if self.has_ended:
            return events
        self._now = now
        data = self._input + data if self._input else data
        try:
            position = self._receive(data, events)
            self._input = data[position:]
        except _ConnectionError as error:
            self._end(error.code, error.reason, events)
        return events

    def _receive(self, data: bytes, events: list[Event]) -> int:
        position, length = 0, len(data)
        if not self._has_preface:
            position = len(frames.PREFACE)
            if data[:position] != frames.PREFACE[:length]:
                raise _ConnectionError(ErrorCode.PROTOCOL_ERROR, "the connection preface is not HTTP/2's")
            if length < position:
                return 0
            self._has_preface = True
        while length - position >= frames.HEADER_BYTES:
            if _native is not None and self._has_settings and self._block is None:
                after = self._whole_request(data, position, events)
                if after:
                    position = after
                    continue
            size, kind, flags, stream_id = frames.read_header(data, position)
            if size > self.limits.max_frame_bytes:
                raise _ConnectionError(
                    ErrorCode.FRAME_SIZE_ERROR,
                    f"a frame of {size} bytes; at most {self.limits.max_frame_bytes} are allowed",
                )
            start = position + frames.HEADER_BYTES
            end = start + size
            if end > length:
                break
            if not self._has_settings and (kind != frames.SETTINGS or flags & frames.ACK):
                raise _ConnectionError(ErrorCode.PROTOCOL_ERROR, "the first frame must be SETTINGS")
            try:
                self._frame(kind, flags, stream_id, data[start:end], events)
            except _StreamError as error:
                self._break(error.stream_id, error.code, events)
            position = end
        return position

    def _frame(self, kind: int, flags: int, stream_id: int, payload: bytes, events: list[Event]) -> None:
        if self._block is not None and (kind != frames.CONTINUATION or stream_id != self._block_stream_id):
            raise _ConnectionError(ErrorCode.PROTOCOL_ERROR, "a header block was not finished")
        if kind == frames.DATA:
            self._data(flags, stream_id, payload, events)
        elif kind == frames.HEADERS:
            self._headers(flags, stream_id, payload, events)
        elif kind == frames.WINDOW_UPDATE:
            self._window_update(stream_id, payload, events)
        elif kind == frames.CONTINUATION:
            self._continuation(flags, stream_id, payload, events)
        elif kind == frames.RST_STREAM:
            self._rst_stream(stream_id, payload, events)
        elif kind == frames.PING:
            self._ping(flags, stream_id, payload)
        elif kind == frames.SETTINGS:
            self._settings(flags, stream_id, payload, events)
        elif kind == frames.GOAWAY:
            self._goaway(stream_id, payload, events)
        elif kind == frames.PRIORITY:
            self._priority(stream_id, payload)
        elif kind == frames.PUSH_PROMISE:
            raise _ConnectionError(ErrorCode.PROTOCOL_ERROR, "a client cannot push")
        else:
            self._tolerate()  # extensions are ignored

    def _tolerate(self) -> None:
        if not self._idle_frames.spend(self._now):
            raise _ConnectionError(ErrorCode.ENHANCE_YOUR_CALM, "too many frames that carry nothing")

    # Requests

    def _headers(self, flags: int, stream_id: int, payload: bytes, events: list[Event]) -> None:
        if not stream_id & 1:
            raise _ConnectionError(ErrorCode.PROTOCOL_ERROR, f"a client cannot open stream {stream_id}")
        payload = _unpadded(flags, payload)
        if flags & frames.PRIORITIZED:
            if len(payload) < 5:
                raise _ConnectionError(ErrorCode.FRAME_SIZE_ERROR, "a HEADERS frame ends within its priority")
            if frames.NUMBER.unpack_from(payload)[0] & 0x7FFFFFFF == stream_id:
                raise _ConnectionError(ErrorCode.PROTOCOL_ERROR, f"stream {stream_id} depends on itself")
            payload = payload[5:]
        if flags & frames.END_HEADERS:
            self._request(flags, stream_id, payload, events)
            return
        self._block = bytearray()
        self._block_stream_id, self._block_flags, self._block_frames = stream_id, flags, 0
        self._extend_block(payload)

    def _continuation(self, flags: int, stream_id: int, payload: bytes, events: list[Event]) -> None:
        if self._block is None:
            raise _ConnectionError(ErrorCode.PROTOCOL_ERROR, "CONTINUATION without HEADERS")
        self._extend_block(payload)
        if flags & frames.END_HEADERS:
            block, self._block = bytes(self._block), None
            self._request(self._block_flags, stream_id, block, events)

    def _extend_block(self, payload: bytes) -> None:
        assert self._block is not None
        self._block += payload
        self._block_frames += 1
        if len(self._block) > self.limits.max_header_block_bytes or self._block_frames > _MAX_CONTINUATIONS:
            raise _ConnectionError(
                ErrorCode.ENHANCE_YOUR_CALM,
                f"a header block of {len(self._block)} bytes in {self._block_frames} frames; at most"
                f" {self.limits.max_header_block_bytes} in {_MAX_CONTINUATIONS} are allowed",
            )

    def _whole_request(self, data: bytes, position: int, events: list[Event]) -> int:
        """Take a plain request in one step, to the same effect as its frames one by one; returns the position
        behind it, or 0 if something else is there."""
        assert _native is not None
        limits = self.limits
        try:
            found: tuple[Any, ...] | None = _native.whole_request(
                data, position, self._decoder, GOOD_NAMES, limits.max_frame_bytes, self._last_stream_id
            )
        except RemoteProtocolError as problem:
            raise _undecodable(problem) from None
        if found is None:
            return 0
        after, stream_id, headers, payload, is_plain = found
        size = len(payload)
        if (
            not is_plain
            or self.is_leaving
            or len(self._streams) >= limits.max_concurrent_streams
            or size > min(self._receive_window, limits.stream_window_bytes)
        ):
            try:
                self._open(stream_id, headers, False, events)
            except _StreamError as error:
                self._break(error.stream_id, error.code, events)
            try:
                self._data(frames.END_STREAM, stream_id, payload, events)
            except _StreamError as error:
                self._break(error.stream_id, error.code, events)
            return int(after)
        self._last_stream_id = stream_id
        self._streams[stream_id] = _Stream(self._peer_window, limits.stream_window_bytes - size, True)
        self._idle_frames.earn(_IDLE_FRAMES_PER_REQUEST)
        self._receive_window -= size
        self._widen()
        events.append(WholeRequest(stream_id, headers, payload))
        return int(after)

    def _request(self, flags: int, stream_id: int, block: bytes, events: list[Event]) -> None:
        try:
            headers = self._decoder.decode(block)
        except RemoteProtocolError as problem:
            raise _undecodable(problem) from None
        self._open(stream_id, headers, bool(flags & frames.END_STREAM), events)

    def _open(self, stream_id: int, headers: list[Header], has_ended: bool, events: list[Event]) -> None:
        stream = self._streams.get(stream_id)
        if stream is not None:
            self._trailers(stream, stream_id, headers, has_ended, events)
            return
        if stream_id <= self._last_stream_id:
            self._late(stream_id, "HEADERS")
            return
        self._last_stream_id = stream_id
        if self.is_leaving or len(self._streams) >= self.limits.max_concurrent_streams:
            self._output.append(frames.rst_stream(stream_id, ErrorCode.REFUSED_STREAM))
            self._tolerate()
            return
        if problem_of_request(headers) is not None:
            raise _StreamError(stream_id, ErrorCode.PROTOCOL_ERROR)
        stream = _Stream(self._peer_window, self.limits.stream_window_bytes)
        self._streams[stream_id] = stream
        for name, value in headers:
            if name == b"content-length":
                if not value.isdigit() or len(value) > 18:
                    raise _StreamError(stream_id, ErrorCode.PROTOCOL_ERROR)
                stream.expected_bytes = int(value)
        if has_ended:
            self._peer_ended(stream, stream_id)
        self._idle_frames.earn(_IDLE_FRAMES_PER_REQUEST)
        events.append(RequestReceived(stream_id, headers, has_ended))

    def _trailers(
        self,
        stream: _Stream,
        stream_id: int,
        headers: list[Header],
        has_ended: bool,
        events: list[Event],
    ) -> None:
        if stream.has_peer_ended:
            raise _StreamError(stream_id, ErrorCode.STREAM_CLOSED)
        if not has_ended or problem_of_trailers(headers) is not None:
            raise _StreamError(stream_id, ErrorCode.PROTOCOL_ERROR)
        self._peer_ended(stream, stream_id)
        events.append(DataReceived(stream_id, b"", True))

    def _data(self, flags: int, stream_id: int, payload: bytes, events: list[Event]) -> None:
        size = len(payload)  # padding counts as well
        self._receive_window -= size
        if self._receive_window < 0:
            raise _ConnectionError(ErrorCode.FLOW_CONTROL_ERROR, "more data than the connection's window")
        self._widen()
        stream = self._streams.get(stream_id)
        if stream is None:
            self._check_known(stream_id, "DATA")
            self._late(stream_id, "DATA")
            return
        if stream.has_peer_ended:
            raise _StreamError(stream_id, ErrorCode.STREAM_CLOSED)
        stream.receive_window -= size
        if stream.receive_window < 0:
            raise _StreamError(stream_id, ErrorCode.FLOW_CONTROL_ERROR)
        payload = _unpadded(flags, payload)
        has_ended = bool(flags & frames.END_STREAM)
        if not payload and not has_ended:
            self._tolerate()
        if stream.expected_bytes is not None:
            stream.expected_bytes -= len(payload)
        if has_ended:
            self._peer_ended(stream, stream_id)
        elif stream.receive_window * 2 < self.limits.stream_window_bytes:
            self._output.append(
                frames.window_update(stream_id, self.limits.stream_window_bytes - stream.receive_window)
            )
            stream.receive_window = self.limits.stream_window_bytes
        events.append(DataReceived(stream_id, payload, has_ended))

    def _widen(self) -> None:
        """Let the peer send more, once half of the connection's window is used."""
        if self._receive_window * 2 < self.limits.connection_window_bytes:
            self._output.append(
                frames.window_update(0, self.limits.connection_window_bytes - self._receive_window)
            )
            self._receive_window = self.limits.connection_window_bytes

    def _peer_ended(self, stream: _Stream, stream_id: int) -> None:
        if stream.expected_bytes:
            raise _StreamError(stream_id, ErrorCode.PROTOCOL_ERROR)
        stream.has_peer_ended = True

    def _check_known(self, stream_id: int, kind: str) -> None:
        if stream_id > self._last_stream_id or not stream_id & 1:
            raise _ConnectionError(
                ErrorCode.PROTOCOL_ERROR, f"{kind} on stream {stream_id}, which is not open"
            )

    def _late(self, stream_id: int, kind: str) -> None:
        """A frame for a stream that is over: the peer may not know that yet."""
        self._tolerate()
        if kind == "HEADERS":
            raise _ConnectionError(ErrorCode.STREAM_CLOSED, f"HEADERS on stream {stream_id}, which is over")
        self._output.append(frames.rst_stream(stream_id, ErrorCode.STREAM_CLOSED))

    # Streams that end early

    def _rst_stream(self, stream_id: int, payload: bytes, events: list[Event]) -> None:
        if len(payload) != 4:
            raise _ConnectionError(
                ErrorCode.FRAME_SIZE_ERROR, f"RST_STREAM of {len(payload)} bytes, expected 4"
            )
        self._check_known(stream_id, "RST_STREAM")
        if stream_id not in self._streams:
            self._tolerate()
            return
        if not self._resets.spend(self._now):
            raise _ConnectionError(ErrorCode.ENHANCE_YOUR_CALM, "too many streams were reset")
        self._forget(stream_id)
        events.append(StreamReset(stream_id, frames.NUMBER.unpack(payload)[0]))

    def _break(self, stream_id: int, code: ErrorCode, events: list[Event]) -> None:
        """The peer broke a rule on one stream."""
        self._output.append(frames.rst_stream(stream_id, code))
        if self._forget(stream_id):
            events.append(StreamReset(stream_id, code))
        if not self._resets.spend(self._now):
            raise _ConnectionError(ErrorCode.ENHANCE_YOUR_CALM, "too many streams with errors")

    def _forget(self, stream_id: int) -> bool:
        stream = self._streams.pop(stream_id, None)
        if stream is None:
            return False
        self._blocked.pop(stream_id, None)
        self.waiting_bytes -= sum(map(len, stream.waiting or ()))
        return True

    # The connection as a whole

    def _ping(self, flags: int, stream_id: int, payload: bytes) -> None:
        if stream_id:
            raise _ConnectionError(ErrorCode.PROTOCOL_ERROR, "PING on a stream")
        if len(payload) != 8:
            raise _ConnectionError(ErrorCode.FRAME_SIZE_ERROR, f"PING of {len(payload)} bytes, expected 8")
        self._tolerate()
        if not flags & frames.ACK:
            self._output.append(frames.frame(frames.PING, frames.ACK, 0, payload))

    def _settings(self, flags: int, stream_id: int, payload: bytes, events: list[Event]) -> None:
        if stream_id:
            raise _ConnectionError(ErrorCode.PROTOCOL_ERROR, "SETTINGS on a stream")
        if flags & frames.ACK:
            if payload:
                raise _ConnectionError(ErrorCode.FRAME_SIZE_ERROR, "an acknowledgement of SETTINGS is empty")
            self._tolerate()
            return
        if len(payload) % frames.SETTING.size:
            raise _ConnectionError(ErrorCode.FRAME_SIZE_ERROR, f"SETTINGS of {len(payload)} bytes")
        if self._has_settings:
            self._tolerate()
        self._has_settings = True
        for name, value in frames.SETTING.iter_unpack(payload):
            self._set(name, value)
        self._output.append(frames.frame(frames.SETTINGS, frames.ACK, 0))
        self._pump(events)

    def _set(self, name: int, value: int) -> None:
        if name == frames.INITIAL_WINDOW_SIZE:
            if value > frames.MAX_WINDOW:
                raise _ConnectionError(ErrorCode.FLOW_CONTROL_ERROR, f"an initial window of {value} bytes")
            change = value - self._peer_window
            for stream in self._streams.values():
                stream.send_window += change
                if stream.send_window > frames.MAX_WINDOW:
                    raise _ConnectionError(ErrorCode.FLOW_CONTROL_ERROR, "a stream's window is too large")
            self._peer_window = value
        elif name == frames.MAX_FRAME_SIZE:
            if not frames.MIN_FRAME_BYTES <= value <= frames.MAX_FRAME_BYTES:
                raise _ConnectionError(ErrorCode.PROTOCOL_ERROR, f"frames of {value} bytes")
            self._peer_max_frame = min(value, self.limits.max_frame_bytes)
        elif name == frames.ENABLE_PUSH and value > 1:
            raise _ConnectionError(ErrorCode.PROTOCOL_ERROR, f"ENABLE_PUSH={value}, expected 0 or 1")

    def _goaway(self, stream_id: int, payload: bytes, events: list[Event]) -> None:
        if stream_id:
            raise _ConnectionError(ErrorCode.PROTOCOL_ERROR, "GOAWAY on a stream")
        if len(payload) < frames.LAST_STREAM_AND_CODE.size:
            raise _ConnectionError(ErrorCode.FRAME_SIZE_ERROR, f"GOAWAY of {len(payload)} bytes")
        self._tolerate()
        events.append(PeerLeaving())

    def _priority(self, stream_id: int, payload: bytes) -> None:
        if not stream_id:
            raise _ConnectionError(ErrorCode.PROTOCOL_ERROR, "PRIORITY without a stream")
        self._tolerate()
        if len(payload) != 5:
            raise _StreamError(stream_id, ErrorCode.FRAME_SIZE_ERROR)
        if frames.NUMBER.unpack_from(payload)[0] & 0x7FFFFFFF == stream_id:
            raise _StreamError(stream_id, ErrorCode.PROTOCOL_ERROR)

    def _window_update(self, stream_id: int, payload: bytes, events: list[Event]) -> None:
        if len(payload) != 4:
            raise _ConnectionError(ErrorCode.FRAME_SIZE_ERROR, f"WINDOW_UPDATE of {len(payload)} bytes")
        increment = frames.NUMBER.unpack(payload)[0] & 0x7FFFFFFF
        if increment < _TINY_INCREMENT:
            self._tolerate()
        if not stream_id:
            self._send_window += increment
            if not increment or self._send_window > frames.MAX_WINDOW:
                code = ErrorCode.FLOW_CONTROL_ERROR if increment else ErrorCode.PROTOCOL_ERROR
                raise _ConnectionError(code, f"the connection's window grows by {increment}")
        else:
            stream = self._streams.get(stream_id)
            if stream is None:
                self._check_known(stream_id, "WINDOW_UPDATE")
                return
            stream.send_window += increment
            if not increment:
                raise _StreamError(stream_id, ErrorCode.PROTOCOL_ERROR)
            if stream.send_window > frames.MAX_WINDOW:
                raise _StreamError(stream_id, ErrorCode.FLOW_CONTROL_ERROR)
        if self._blocked:
            self._pump(events)

    def _end(self, code: ErrorCode, reason: str, events: list[Event]) -> None:
        self.has_ended = True
        self._output.append(frames.goaway(self._last_stream_id, code, reason))
        self._streams.clear()
        self._blocked.clear()
        self.waiting_bytes = 0
        events.append(ConnectionEnded(code, reason))

    # Sending

    def is_open(self, stream_id: int) -> bool:
        return stream_id in self._streams

    def send_headers(self, stream_id: int, block: bytes) -> None:
        if stream_id in self._streams:
            self._put_headers(stream_id, block, 0)

    def send_data(self, stream_id: int, data: bytes) -> bool:
        """Send a part of the answer; False if a rest of it waits for the peer's window."""
        stream = self._streams.get(stream_id)
        if stream is None:
            return True
        if not stream.waiting:
            data = self._put_data(stream, stream_id, data)
        if not data:
            return True
        if stream.waiting is None:
            stream.waiting = deque()
        stream.waiting.append(data)
        self.waiting_bytes += len(data)
        self._blocked[stream_id] = None
        return False

    def send_trailers(self, stream_id: int, block: bytes) -> None:
        """End the answer with these headers, after all of its data."""
        stream = self._streams.get(stream_id)
        if stream is None:
            return
        if stream.waiting:
            stream.trailers = block
        else:
            self._finish(stream, stream_id, block)

    def answer(self, stream_id: int, headers: bytes, data: bytes, trailers: bytes) -> None:
        """A whole answer: the same as headers, data and trailers after each other."""
        stream = self._streams.get(stream_id)
        size, limit = len(data), self._peer_max_frame
        if (
            stream is None
            or not 0 < size <= limit
            or size > stream.send_window
            or size > self._send_window
            or len(headers) > limit
            or len(trailers) > limit
            or not stream.has_peer_ended
        ):
            self.send_headers(stream_id, headers)
            self.send_data(stream_id, data)
            self.send_trailers(stream_id, trailers)
            return
        self._send_window -= size
        self._idle_frames.earn(_IDLE_FRAMES_PER_ANSWER)
        self._resets.earn(1)
        del self._streams[stream_id]
        self._output.append(_answer_frames(stream_id, headers, data, trailers))

    def reset(self, stream_id: int, code: int) -> None:
        """Give up a stream."""
        if self._forget(stream_id):
            self._output.append(frames.rst_stream(stream_id, code))

    def ping(self) -> None:
        """Ask the peer for a sign of life."""
        self._output.append(frames.frame(frames.PING, 0, 0, bytes(8)))

    def leave(self) -> None:
        """Take no more streams; those that are open go on."""
        if not self.is_leaving and not self.has_ended:
            self.is_leaving = True
            self._output.append(frames.goaway(self._last_stream_id, ErrorCode.NO_ERROR))

    def _finish(self, stream: _Stream, stream_id: int, block: bytes) -> None:
        self._put_headers(stream_id, block, frames.END_STREAM)
        self._resets.earn(1)
        if not stream.has_peer_ended:
            # The answer is complete: the rest of the request is not needed.
            self._output.append(frames.rst_stream(stream_id, ErrorCode.NO_ERROR))
        del self._streams[stream_id]

    def _put_headers(self, stream_id: int, block: bytes, flags: int) -> None:
        limit = self._peer_max_frame
        if len(block) <= limit:
            self._output.append(frames.frame(frames.HEADERS, flags | frames.END_HEADERS, stream_id, block))
            return
        self._output.append(frames.frame(frames.HEADERS, flags, stream_id, block[:limit]))
        for start in range(limit, len(block), limit):
            last = frames.END_HEADERS if start + limit >= len(block) else 0
            piece = block[start : start + limit]
            self._output.append(frames.frame(frames.CONTINUATION, last, stream_id, piece))

    def _put_data(self, stream: _Stream, stream_id: int, data: bytes) -> bytes:
        """Send as much as the windows allow; returns the rest."""
        allowed = min(stream.send_window, self._send_window, len(data))
        if allowed <= 0:
            return data
        stream.send_window -= allowed
        self._send_window -= allowed
        self._idle_frames.earn(_IDLE_FRAMES_PER_ANSWER)
        limit = self._peer_max_frame
        if allowed == len(data) <= limit:
            self._output.append(frames.frame(frames.DATA, 0, stream_id, data))
            return b""
        for start in range(0, allowed, limit):
            piece = data[start : min(start + limit, allowed)]
            self._output.append(frames.frame(frames.DATA, 0, stream_id, piece))
        return data[allowed:]

    def _pump(self, events: list[Event]) -> None:
        """The windows grew: send what waited, one piece of each stream in turn."""
        for stream_id in list(self._blocked):
            if self._send_window <= 0:
                return
            stream = self._streams[stream_id]
            while stream.waiting and stream.send_window > 0 and self._send_window > 0:
                piece = stream.waiting.popleft()
                rest = self._put_data(stream, stream_id, piece)
                self.waiting_bytes -= len(piece) - len(rest)
                if rest:
                    stream.waiting.appendleft(rest)
            del self._blocked[stream_id]
            if stream.waiting:
                self._blocked[stream_id] = None  # behind the others
                continue
            if stream.trailers is not None:
                self._finish(stream, stream_id, stream.trailers)
            else:
                events.append(StreamDrained(stream_id))


def _undecodable(problem: RemoteProtocolError) -> _ConnectionError:
    is_large = isinstance(problem, HeadersTooLarge)
    code = ErrorCode.ENHANCE_YOUR_CALM if is_large else ErrorCode.COMPRESSION_ERROR
    return _ConnectionError(code, str(problem))


def _unpadded(flags: int, payload: bytes) -> bytes:
    if not flags & frames.PADDED:
        return payload
    if not payload or payload[0] >= len(payload):
        raise _ConnectionError(ErrorCode.PROTOCOL_ERROR, "a frame has more padding than bytes")
    return payload[1 : len(payload) - payload[0]]
