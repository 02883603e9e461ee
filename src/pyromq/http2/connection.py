"""The server's side of one HTTP/2 connection: `receive` takes bytes and returns events, `take_output` has the
answer.

It knows no socket and no clock. A broken rule of one stream resets that stream; anything that leaves the two
sides in doubt about the connection ends it, and so does a peer that only makes work.
"""

from collections.abc import Callable
from typing import Any

from pyromq.compiled import twin
from pyromq.errors import RemoteProtocolError
from pyromq.http2 import frames
from pyromq.http2.events import (
    ConnectionEnded,
    DataReceived,
    Event,
    PeerLeaving,
    RequestReceived,
    StreamReset,
    WholeRequest,
)
from pyromq.http2.frames import ErrorCode
from pyromq.http2.header_rules import GOOD_NAMES, problem_of_request, problem_of_trailers
from pyromq.http2.hpack import Decoder, Header, HeadersTooLarge
from pyromq.http2.limits import Http2Limits
from pyromq.http2.sending import FIRST_WINDOW, SendingSide
from pyromq.http2.streams import BrokenConnection, BrokenStream, Stream

_native = twin("http2.twin_hpack")
new_decoder: type[Decoder] = Decoder if _native is None else _native.Decoder

_TINY_INCREMENT = 64
_MAX_CONTINUATIONS = 128
_IDLE_FRAMES_PER_REQUEST = 8


class Http2Connection(SendingSide):
    def __init__(self, limits: Http2Limits | None = None, *, takes_protocols: bool = False) -> None:
        """`takes_protocols`: a stream may become a connection of another protocol (RFC 8441)."""
        super().__init__(limits if limits is not None else Http2Limits())
        self._takes_protocols = takes_protocols
        self._decoder = new_decoder(self.limits.max_header_list_bytes)
        self._input = b""
        self._has_preface = self._has_settings = False
        self._receive_window = self.limits.connection_window_bytes
        self._peer_window = FIRST_WINDOW
        self._block: bytearray | None = None
        self._block_stream_id = self._block_flags = self._block_frames = 0
        self._now = 0.0
        values = {
            frames.MAX_CONCURRENT_STREAMS: self.limits.max_concurrent_streams,
            frames.INITIAL_WINDOW_SIZE: self.limits.stream_window_bytes,
            frames.MAX_FRAME_SIZE: self.limits.max_frame_bytes,
            frames.MAX_HEADER_LIST_SIZE: self.limits.max_header_list_bytes,
        }
        if takes_protocols:
            values[frames.ENABLE_CONNECT_PROTOCOL] = 1
        self._output.append(frames.settings(values))
        self._output.append(frames.window_update(0, self.limits.connection_window_bytes - FIRST_WINDOW))

    def __repr__(self) -> str:
        state = "ended" if self.has_ended else "leaving" if self.is_leaving else "open"
        return f"<Http2Connection {state} streams={len(self._streams)} waiting_bytes={self.waiting_bytes}>"

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
        except BrokenConnection as error:
            self._end(error.code, error.reason, events)
        return events

    def _receive(self, data: bytes, events: list[Event]) -> int:
        position, length = 0, len(data)
        if not self._has_preface:
            position = len(frames.PREFACE)
            if data[:position] != frames.PREFACE[:length]:
                raise BrokenConnection(ErrorCode.PROTOCOL_ERROR, "the connection preface is not HTTP/2's")
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
                raise BrokenConnection(
                    ErrorCode.FRAME_SIZE_ERROR,
                    f"a frame of {size} bytes; at most {self.limits.max_frame_bytes} are allowed",
                )
            start = position + frames.HEADER_BYTES
            end = start + size
            if end > length:
                break
            if not self._has_settings and (kind != frames.SETTINGS or flags & frames.ACK):
                raise BrokenConnection(ErrorCode.PROTOCOL_ERROR, "the first frame must be SETTINGS")
            try:
                self._frame(kind, flags, stream_id, data[start:end], events)
            except BrokenStream as error:
                self._break(error.stream_id, error.code, events)
            position = end
        return position

    def _frame(self, kind: int, flags: int, stream_id: int, payload: bytes, events: list[Event]) -> None:
        if self._block is not None and (kind != frames.CONTINUATION or stream_id != self._block_stream_id):
            raise BrokenConnection(ErrorCode.PROTOCOL_ERROR, "a header block was not finished")
        handler = _HANDLERS.get(kind)
        if handler is None:
            self._tolerate()  # extensions are ignored
        else:
            handler(self, flags, stream_id, payload, events)

    def _tolerate(self) -> None:
        if not self._idle_frames.spend(self._now):
            raise BrokenConnection(ErrorCode.ENHANCE_YOUR_CALM, "too many frames that carry nothing")

    # Requests

    def _headers(self, flags: int, stream_id: int, payload: bytes, events: list[Event]) -> None:
        if not stream_id & 1:
            raise BrokenConnection(ErrorCode.PROTOCOL_ERROR, f"a client cannot open stream {stream_id}")
        payload = _unpadded(flags, payload)
        if flags & frames.PRIORITIZED:
            if len(payload) < 5:
                raise BrokenConnection(ErrorCode.FRAME_SIZE_ERROR, "a HEADERS frame ends within its priority")
            if frames.NUMBER.unpack_from(payload)[0] & 0x7FFFFFFF == stream_id:
                raise BrokenConnection(ErrorCode.PROTOCOL_ERROR, f"stream {stream_id} depends on itself")
            payload = payload[5:]
        if flags & frames.END_HEADERS:
            self._request(flags, stream_id, payload, events)
            return
        self._block = bytearray()
        self._block_stream_id, self._block_flags, self._block_frames = stream_id, flags, 0
        self._extend_block(payload)

    def _continuation(self, flags: int, stream_id: int, payload: bytes, events: list[Event]) -> None:
        if self._block is None:
            raise BrokenConnection(ErrorCode.PROTOCOL_ERROR, "CONTINUATION without HEADERS")
        self._extend_block(payload)
        if flags & frames.END_HEADERS:
            block, self._block = bytes(self._block), None
            self._request(self._block_flags, stream_id, block, events)

    def _extend_block(self, payload: bytes) -> None:
        assert self._block is not None
        self._block += payload
        self._block_frames += 1
        if len(self._block) > self.limits.max_header_block_bytes or self._block_frames > _MAX_CONTINUATIONS:
            raise BrokenConnection(
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
            except BrokenStream as error:
                self._break(error.stream_id, error.code, events)
            try:
                self._data(frames.END_STREAM, stream_id, payload, events)
            except BrokenStream as error:
                self._break(error.stream_id, error.code, events)
            return int(after)
        self._last_stream_id = stream_id
        self._streams[stream_id] = Stream(self._peer_window, limits.stream_window_bytes - size, True)
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
        if problem_of_request(headers, takes_protocols=self._takes_protocols) is not None:
            raise BrokenStream(stream_id, ErrorCode.PROTOCOL_ERROR)
        stream = Stream(self._peer_window, self.limits.stream_window_bytes)
        self._streams[stream_id] = stream
        for name, value in headers:
            if name == b"content-length":
                if not value.isdigit() or len(value) > 18:
                    raise BrokenStream(stream_id, ErrorCode.PROTOCOL_ERROR)
                stream.expected_bytes = int(value)
        if has_ended:
            self._peer_ended(stream, stream_id)
        self._idle_frames.earn(_IDLE_FRAMES_PER_REQUEST)
        events.append(RequestReceived(stream_id, headers, has_ended))

    def _trailers(
        self,
        stream: Stream,
        stream_id: int,
        headers: list[Header],
        has_ended: bool,
        events: list[Event],
    ) -> None:
        if stream.has_peer_ended:
            raise BrokenStream(stream_id, ErrorCode.STREAM_CLOSED)
        if not has_ended or problem_of_trailers(headers) is not None:
            raise BrokenStream(stream_id, ErrorCode.PROTOCOL_ERROR)
        self._peer_ended(stream, stream_id)
        events.append(DataReceived(stream_id, b"", True))

    def _data(self, flags: int, stream_id: int, payload: bytes, events: list[Event]) -> None:
        size = len(payload)  # padding counts as well
        self._receive_window -= size
        if self._receive_window < 0:
            raise BrokenConnection(ErrorCode.FLOW_CONTROL_ERROR, "more data than the connection's window")
        self._widen()
        stream = self._streams.get(stream_id)
        if stream is None:
            self._check_known(stream_id, "DATA")
            self._late(stream_id, "DATA")
            return
        if stream.has_peer_ended:
            raise BrokenStream(stream_id, ErrorCode.STREAM_CLOSED)
        stream.receive_window -= size
        if stream.receive_window < 0:
            raise BrokenStream(stream_id, ErrorCode.FLOW_CONTROL_ERROR)
        payload = _unpadded(flags, payload)
        has_ended = bool(flags & frames.END_STREAM)
        if not payload and not has_ended:
            self._tolerate()
        if stream.expected_bytes is not None:
            stream.expected_bytes -= len(payload)
        if has_ended:
            self._peer_ended(stream, stream_id)
        elif not stream.is_held:
            self._widen_stream(stream, stream_id)
        events.append(DataReceived(stream_id, payload, has_ended))

    def hold(self, stream_id: int, *, is_held: bool) -> None:
        """Let the peer send no more on a stream than its window allows now, or continue."""
        stream = self._streams.get(stream_id)
        if stream is not None:
            stream.is_held = is_held
            if not is_held and not stream.has_peer_ended:
                self._widen_stream(stream, stream_id)

    def _widen_stream(self, stream: Stream, stream_id: int) -> None:
        if stream.receive_window * 2 < self.limits.stream_window_bytes:
            self._output.append(
                frames.window_update(stream_id, self.limits.stream_window_bytes - stream.receive_window)
            )
            stream.receive_window = self.limits.stream_window_bytes

    def _widen(self) -> None:
        """Let the peer send more, once half of the connection's window is used."""
        if self._receive_window * 2 < self.limits.connection_window_bytes:
            self._output.append(
                frames.window_update(0, self.limits.connection_window_bytes - self._receive_window)
            )
            self._receive_window = self.limits.connection_window_bytes

    def _peer_ended(self, stream: Stream, stream_id: int) -> None:
        if stream.expected_bytes:
            raise BrokenStream(stream_id, ErrorCode.PROTOCOL_ERROR)
        stream.has_peer_ended = True

    def _check_known(self, stream_id: int, kind: str) -> None:
        if stream_id > self._last_stream_id or not stream_id & 1:
            raise BrokenConnection(
                ErrorCode.PROTOCOL_ERROR, f"{kind} on stream {stream_id}, which is not open"
            )

    def _late(self, stream_id: int, kind: str) -> None:
        """A frame for a stream that is over: the peer may not know that yet."""
        self._tolerate()
        if kind == "HEADERS":
            raise BrokenConnection(ErrorCode.STREAM_CLOSED, f"HEADERS on stream {stream_id}, which is over")
        self._output.append(frames.rst_stream(stream_id, ErrorCode.STREAM_CLOSED))

    # Streams that end early

    def _rst_stream(self, flags: int, stream_id: int, payload: bytes, events: list[Event]) -> None:
        if len(payload) != 4:
            raise BrokenConnection(
                ErrorCode.FRAME_SIZE_ERROR, f"RST_STREAM of {len(payload)} bytes, expected 4"
            )
        self._check_known(stream_id, "RST_STREAM")
        if stream_id not in self._streams:
            self._tolerate()
            return
        if not self._resets.spend(self._now):
            raise BrokenConnection(ErrorCode.ENHANCE_YOUR_CALM, "too many streams were reset")
        self._forget(stream_id)
        events.append(StreamReset(stream_id, frames.NUMBER.unpack(payload)[0]))

    def _break(self, stream_id: int, code: ErrorCode, events: list[Event]) -> None:
        """The peer broke a rule on one stream."""
        self._output.append(frames.rst_stream(stream_id, code))
        if self._forget(stream_id):
            events.append(StreamReset(stream_id, code))
        if not self._resets.spend(self._now):
            raise BrokenConnection(ErrorCode.ENHANCE_YOUR_CALM, "too many streams with errors")

    # The connection as a whole

    def _ping(self, flags: int, stream_id: int, payload: bytes, events: list[Event]) -> None:
        if stream_id:
            raise BrokenConnection(ErrorCode.PROTOCOL_ERROR, "PING on a stream")
        if len(payload) != 8:
            raise BrokenConnection(ErrorCode.FRAME_SIZE_ERROR, f"PING of {len(payload)} bytes, expected 8")
        self._tolerate()
        if not flags & frames.ACK:
            self._output.append(frames.frame(frames.PING, frames.ACK, 0, payload))

    def _settings(self, flags: int, stream_id: int, payload: bytes, events: list[Event]) -> None:
        if stream_id:
            raise BrokenConnection(ErrorCode.PROTOCOL_ERROR, "SETTINGS on a stream")
        if flags & frames.ACK:
            if payload:
                raise BrokenConnection(ErrorCode.FRAME_SIZE_ERROR, "an acknowledgement of SETTINGS is empty")
            self._tolerate()
            return
        if len(payload) % frames.SETTING.size:
            raise BrokenConnection(ErrorCode.FRAME_SIZE_ERROR, f"SETTINGS of {len(payload)} bytes")
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
                raise BrokenConnection(ErrorCode.FLOW_CONTROL_ERROR, f"an initial window of {value} bytes")
            change = value - self._peer_window
            for stream in self._streams.values():
                stream.send_window += change
                if stream.send_window > frames.MAX_WINDOW:
                    raise BrokenConnection(ErrorCode.FLOW_CONTROL_ERROR, "a stream's window is too large")
            self._peer_window = value
        elif name == frames.MAX_FRAME_SIZE:
            if not frames.MIN_FRAME_BYTES <= value <= frames.MAX_FRAME_BYTES:
                raise BrokenConnection(ErrorCode.PROTOCOL_ERROR, f"frames of {value} bytes")
            self._peer_max_frame = min(value, self.limits.max_frame_bytes)
        elif name == frames.ENABLE_PUSH and value > 1:
            raise BrokenConnection(ErrorCode.PROTOCOL_ERROR, f"ENABLE_PUSH={value}, expected 0 or 1")

    def _goaway(self, flags: int, stream_id: int, payload: bytes, events: list[Event]) -> None:
        if stream_id:
            raise BrokenConnection(ErrorCode.PROTOCOL_ERROR, "GOAWAY on a stream")
        if len(payload) < frames.LAST_STREAM_AND_CODE.size:
            raise BrokenConnection(ErrorCode.FRAME_SIZE_ERROR, f"GOAWAY of {len(payload)} bytes")
        self._tolerate()
        events.append(PeerLeaving())

    def _priority(self, flags: int, stream_id: int, payload: bytes, events: list[Event]) -> None:
        if not stream_id:
            raise BrokenConnection(ErrorCode.PROTOCOL_ERROR, "PRIORITY without a stream")
        self._tolerate()
        if len(payload) != 5:
            raise BrokenStream(stream_id, ErrorCode.FRAME_SIZE_ERROR)
        if frames.NUMBER.unpack_from(payload)[0] & 0x7FFFFFFF == stream_id:
            raise BrokenStream(stream_id, ErrorCode.PROTOCOL_ERROR)

    def _push_promise(self, flags: int, stream_id: int, payload: bytes, events: list[Event]) -> None:
        raise BrokenConnection(ErrorCode.PROTOCOL_ERROR, "a client cannot push")

    def _window_update(self, flags: int, stream_id: int, payload: bytes, events: list[Event]) -> None:
        if len(payload) != 4:
            raise BrokenConnection(ErrorCode.FRAME_SIZE_ERROR, f"WINDOW_UPDATE of {len(payload)} bytes")
        increment = frames.NUMBER.unpack(payload)[0] & 0x7FFFFFFF
        if increment < _TINY_INCREMENT:
            self._tolerate()
        if not stream_id:
            self._send_window += increment
            if not increment or self._send_window > frames.MAX_WINDOW:
                code = ErrorCode.FLOW_CONTROL_ERROR if increment else ErrorCode.PROTOCOL_ERROR
                raise BrokenConnection(code, f"the connection's window grows by {increment}")
        else:
            stream = self._streams.get(stream_id)
            if stream is None:
                self._check_known(stream_id, "WINDOW_UPDATE")
                return
            stream.send_window += increment
            if not increment:
                raise BrokenStream(stream_id, ErrorCode.PROTOCOL_ERROR)
            if stream.send_window > frames.MAX_WINDOW:
                raise BrokenStream(stream_id, ErrorCode.FLOW_CONTROL_ERROR)
        if self._blocked:
            self._pump(events)

    def _end(self, code: ErrorCode, reason: str, events: list[Event]) -> None:
        self.has_ended = True
        self._output.append(frames.goaway(self._last_stream_id, code, reason))
        self._streams.clear()
        self._blocked.clear()
        self.waiting_bytes = 0
        events.append(ConnectionEnded(code, reason))


_Handler = Callable[[Http2Connection, int, int, bytes, list[Event]], None]
_HANDLERS: dict[int, _Handler] = {
    frames.DATA: Http2Connection._data,
    frames.HEADERS: Http2Connection._headers,
    frames.PRIORITY: Http2Connection._priority,
    frames.RST_STREAM: Http2Connection._rst_stream,
    frames.SETTINGS: Http2Connection._settings,
    frames.PUSH_PROMISE: Http2Connection._push_promise,
    frames.PING: Http2Connection._ping,
    frames.GOAWAY: Http2Connection._goaway,
    frames.WINDOW_UPDATE: Http2Connection._window_update,
    frames.CONTINUATION: Http2Connection._continuation,
}


def _undecodable(problem: RemoteProtocolError) -> BrokenConnection:
    is_large = isinstance(problem, HeadersTooLarge)
    code = ErrorCode.ENHANCE_YOUR_CALM if is_large else ErrorCode.COMPRESSION_ERROR
    return BrokenConnection(code, str(problem))


def _unpadded(flags: int, payload: bytes) -> bytes:
    if not flags & frames.PADDED:
        return payload
    if not payload or payload[0] >= len(payload):
        raise BrokenConnection(ErrorCode.PROTOCOL_ERROR, "a frame has more padding than bytes")
    return payload[1 : len(payload) - payload[0]]
