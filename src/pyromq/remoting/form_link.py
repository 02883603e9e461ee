"""A blocking connection that sends filled forms: one write, one answer, and in most cases one read.

A thread uses it alone, for one call at a time. Requests of the server are ignored.
"""

import time
from typing import TypeVar

from pyromq.errors import CallTimeout, ConnectionLost, RemoteProtocolError
from pyromq.protocol.catalogue import Answer, decode_answer
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

    def call_filled(self, filled: FilledForm[A], timeout_s: float, max_frame_bytes: int) -> A:
        """After any error except Refused, the link must be closed: an answer may still come.

        Raises Refused, CallTimeout, ConnectionLost, RemoteProtocolError, or LocalProtocolError if the request
        is larger than `max_frame_bytes`.
        """
        form = filled.form
        number = next(self._numbers)
        head = form.head(filled.values, number, len(filled.body), max_frame_bytes)
        deadline = time.monotonic() + timeout_s
        if timeout_s != self._timeout_s:
            self._socket.settimeout(timeout_s)
            self._timeout_s = timeout_s
        self._answers.expected = {number: form.read_answer}
        self._write(head + filled.body)
        while (frame := self._answer_to(number, deadline, timeout_s)) is None:
            pass
        return decode_answer(form.request_type, frame)

    def _answer_to(self, number: int, deadline: float, timeout_s: float) -> Frame | None:
        """The answer, if it is in what the next read returns."""
        try:
            data = self._socket.recv(_READ_BYTES)
        except TimeoutError:
            raise CallTimeout(f"{self.address}: no answer in {timeout_s:.3g} s") from None
        except OSError as problem:
            raise ConnectionLost(f"{self.address}: {problem}") from problem
        if not data:
            raise ConnectionLost(f"{self.address} closed the connection")
        found = None
        for frame in self._reader.feed(data):
            if frame.is_response:
                if frame.opaque != number:
                    raise RemoteProtocolError(f"{self.address} answered request {frame.opaque}, not {number}")
                found = frame
        if found is None:
            if self._reader.damage is not None:
                raise self._reader.damage
            if time.monotonic() > deadline:
                raise CallTimeout(f"{self.address}: no answer in {timeout_s:.3g} s")
        return found
