"""Encodes requests in which only a few fields change by filling in a form.

A form is made by encoding a declared request on the general path, and a filled form has exactly the bytes
that the general path writes. It supports JSON headers only.
"""

import re
from collections.abc import Sequence
from struct import Struct
from typing import Any, Generic, TypeVar

import msgspec

from pyromq.errors import LocalProtocolError
from pyromq.protocol.catalogue import Answer, Request, declaration_of, encode_request
from pyromq.protocol.direct import HeaderDecoder
from pyromq.protocol.direct_answers import answer_decoder
from pyromq.protocol.framing import MAX_HEADER_BYTES
from pyromq.protocol.json_header import encode_json_header

A = TypeVar("A", bound=Answer)

_PREFIX = Struct(">iI")
_GAP = re.compile(rb"%([%db])")
_encode = msgspec.json.Encoder().encode


def as_text(text: str) -> bytes:
    """A text, encoded for filling into a form."""
    try:
        return _encode(text)
    except UnicodeEncodeError as problem:
        raise LocalProtocolError(f"header cannot be written as JSON: {problem}") from None


class RequestForm(Generic[A]):
    """Made from a sample with the constant fields. The fields in `varying` are filled in, in the order of the
    declaration: numbers as they are, texts through `as_text`; the sample shows which of both.
    """

    __slots__ = ("_format", "read_answer", "request_type")

    def __init__(self, sample: Request[A], varying: Sequence[str]) -> None:
        self.request_type: type[Request[A]] = type(sample)
        declaration = declaration_of(self.request_type)
        self.read_answer: HeaderDecoder = answer_decoder(declaration)
        frame = encode_request(sample, 0)
        part = declaration.request_part
        gaps: dict[bytes, bytes] = {}
        for name, wire_name, _ in part.written:
            if name in varying:
                frame.ext[wire_name] = ""
                # Quotes inside texts are escaped, so this occurs nowhere else.
                member = _encode(wire_name) + b":"
                gaps[member + b'""'] = member + (b"%b" if isinstance(getattr(sample, name), str) else b'"%d"')
        written = encode_json_header(frame).replace(b"%", b"%%")
        for empty, gap in gaps.items():
            written = written.replace(empty, gap)
        before, _, after = written.rpartition(b'"opaque":0')
        self._format = before + b'"opaque":%d' + after

    def __repr__(self) -> str:
        return f"<RequestForm {self.request_type.__name__} {self._format.decode()}>"

    @property
    def pieces(self) -> tuple[bytes, ...]:
        """The bytes around the values, of which the opaque number is the last."""
        pieces, start = [], 0
        for gap in _GAP.finditer(self._format):
            if gap[1] != b"%":
                pieces.append(self._format[start : gap.start()])
                start = gap.end()
        return tuple(piece.replace(b"%%", b"%") for piece in (*pieces, self._format[start:]))

    def fill(self, values: tuple[Any, ...], body: bytes) -> "FilledForm[A]":
        return FilledForm(self, values, body)

    def head(self, values: tuple[Any, ...], opaque: int, body_bytes: int, max_frame_bytes: int) -> bytes:
        """The frame without its body."""
        header = self._format % (*values, opaque)
        header_bytes = len(header)
        length = 4 + header_bytes + body_bytes
        if header_bytes > MAX_HEADER_BYTES or length + 4 > max_frame_bytes:
            raise LocalProtocolError(f"frame of {length + 4} bytes; {max_frame_bytes} are allowed")
        return _PREFIX.pack(length, header_bytes) + header


class FilledForm(Generic[A]):
    """A request that is complete except for its opaque number."""

    __slots__ = ("body", "form", "values")

    def __init__(self, form: RequestForm[A], values: tuple[Any, ...], body: bytes) -> None:
        self.form = form
        self.values = values
        self.body = body

    def __repr__(self) -> str:
        return f"<FilledForm {self.form!r} {self.values}>"
