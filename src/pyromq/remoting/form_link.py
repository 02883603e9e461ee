"""A blocking connection that sends filled forms: one write, one answer, and in most cases one read.

A thread uses it alone, for one call at a time. Requests of the server are ignored.
"""

from collections.abc import Callable
from typing import Any, TypeVar

from pyromq.errors import CallTimeout, ConnectionLost, RemoteProtocolError
from pyromq.protocol.catalogue import Answer, Request, decode_answer
from pyromq.protocol.direct_answers import DirectAnswers
from pyromq.protocol.frame import Frame
from pyromq.protocol.framing import FrameReader
from pyromq.protocol.request_forms import FilledForm
from pyromq.remoting.blocking_link import MAX_FRAME_BYTES, Link, LinkOptions

A = TypeVar("A", bound=Answer)

_READ_BYTES = 16 * 1024


class FormLink(Link):
    def __init__(self, address: str, options: LinkOptions) -> None:
        super().__init__(address, options)
        self._answers = DirectAnswers()
        self._reader = FrameReader(MAX_FRAME_BYTES, self._answers)
        self._timeout_s = options.timeout_ms / 1000
        self._monotonic = options.monotonic
        self.quick: dict[int, Any] = {}
        """Arguments for `read` of `call_frame`, by the numbers of the calls."""

    def take_opaque(self) -> int:
        return next(self._numbers)

    def call_frame(
        self,
        frame: bytes,
        number: int,
        timeout_s: float,
        request_type: type[Request[A]],
        read: Callable[[bytes, Any], tuple[int, int]],
    ) -> A | None:
        """Send a whole request. None: `read`, a fast path, has taken the answer by `quick`. Raises like
        `call_filled`.
        """
        deadline = self._begin(frame, timeout_s)
        data = self._receive(timeout_s)
        if read(data, self) == (1, len(data)):
            return None
        found = self._found(data, number, deadline, timeout_s)
        while found is None:
            found = self._found(self._receive(timeout_s), number, deadline, timeout_s)
        return decode_answer(request_type, found)

    def call_filled(self, filled: FilledForm[A], timeout_s: float, max_frame_bytes: int) -> A:
        """After any error except Refused, the link must be closed: an answer may still come.

        Raises Refused, CallTimeout, ConnectionLost, RemoteProtocolError, or LocalProtocolError if the request
        is larger than `max_frame_bytes`.
        """
        form = filled.form
        number = next(self._numbers)
        head = form.head(filled.values, number, len(filled.body), max_frame_bytes)
        self._answers.expected = {number: form.read_answer}
        deadline = self._begin(head + filled.body, timeout_s)
        frame = None
        while frame is None:
            frame = self._found(self._receive(timeout_s), number, deadline, timeout_s)
        return decode_answer(form.request_type, frame)

    def _begin(self, request: bytes, timeout_s: float) -> float:
        """Send a request; returns the deadline of its answer."""
        if timeout_s != self._timeout_s:
            self._socket.settimeout(timeout_s)
            self._timeout_s = timeout_s
        deadline = self._monotonic() + timeout_s
        self._write(request)
        return deadline

    def _receive(self, timeout_s: float) -> bytes:
        try:
            data = self._socket.recv(_READ_BYTES)
        except TimeoutError:
            raise CallTimeout(f"{self.address}: no answer in {timeout_s:.3g} s") from None
        except OSError as problem:
            raise ConnectionLost(f"{self.address}: {problem}") from problem
        if not data:
            raise ConnectionLost(f"{self.address} closed the connection")
        return data

    def _found(self, data: bytes, number: int, deadline: float, timeout_s: float) -> Frame | None:
        """The answer, if it is in these bytes or ends with them."""
        found = None
        for frame in self._reader.feed(data):
            if frame.is_response:
                if frame.opaque != number:
                    raise RemoteProtocolError(f"{self.address} answered request {frame.opaque}, not {number}")
                found = frame
        if found is None:
            if self._reader.damage is not None:
                raise self._reader.damage
            if self._monotonic() > deadline:
                raise CallTimeout(f"{self.address}: no answer in {timeout_s:.3g} s")
        return found
