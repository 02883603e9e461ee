"""The sending half of a connection: answers go out as far as the peer's windows allow, and the rest waits.

Streams whose data waits take turns. A peer earns patience with every answer that it takes.
"""

from collections import deque

from pyromq.compiled import twin
from pyromq.http2 import frames
from pyromq.http2.budget import Budget
from pyromq.http2.events import Event, StreamDrained
from pyromq.http2.frames import ErrorCode
from pyromq.http2.limits import Http2Limits
from pyromq.http2.streams import Stream

_native = twin("http2.twin_hpack")
_answer_frames = frames.answer if _native is None else _native.answer_frames

FIRST_WINDOW = 65_535
_IDLE_FRAMES_PER_ANSWER = 4


class SendingSide:
    """The server's output on a connection, within the windows that the peer grants."""

    def __init__(self, limits: Http2Limits) -> None:
        self.limits = limits
        self._streams: dict[int, Stream] = {}
        self._output: list[bytes] = []
        self._last_stream_id = 0
        self._send_window = FIRST_WINDOW
        self._peer_max_frame = frames.MIN_FRAME_BYTES
        self._resets = Budget(limits.max_resets, limits.resets_per_s)
        self._idle_frames = Budget(limits.max_idle_frames, limits.idle_frames_per_s)
        self._blocked: dict[int, None] = {}
        """Streams whose data waits, in the order in which they get a turn."""
        self.waiting_bytes = 0
        self.is_leaving = self.has_ended = False

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
        """Take no more streams; those that are open continue."""
        if not self.is_leaving and not self.has_ended:
            self.is_leaving = True
            self._output.append(frames.goaway(self._last_stream_id, ErrorCode.NO_ERROR))

    def _finish(self, stream: Stream, stream_id: int, block: bytes) -> None:
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

    def _put_data(self, stream: Stream, stream_id: int, data: bytes) -> bytes:
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

    def _forget(self, stream_id: int) -> bool:
        stream = self._streams.pop(stream_id, None)
        if stream is None:
            return False
        self._blocked.pop(stream_id, None)
        self.waiting_bytes -= sum(map(len, stream.waiting or ()))
        return True
