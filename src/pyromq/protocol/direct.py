"""Decodes the headers of the most frequent requests straight into the declared request.

It takes JSON headers as Java's clients write them. The general path handles all other headers, with the same
result.
"""

from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from pyromq.protocol.body import Int32
from pyromq.protocol.catalogue import Declaration
from pyromq.protocol.frame import Frame, HeaderForm
from pyromq.protocol.json_header import language_code

_MAX_PREFIX_BYTES = 24

HeaderDecoder = Callable[[bytes | bytearray], Any]
"""Decodes a JSON header straight into declared fields; raises msgspec's errors."""


class DirectHeaders:
    """Decoders by the first bytes of the header, which contain its code."""

    def __init__(self, declarations: Iterable[Declaration]) -> None:
        self._decoders: dict[bytes, HeaderDecoder] = {
            # java: keys are written in alphabetical order, so that the code comes first
            b'{"code":%d,' % declaration.code: header_decoder(declaration)
            for declaration in declarations
        }

    def __repr__(self) -> str:
        return f"<DirectHeaders {b' '.join(self._decoders).decode()}>"

    def decode(self, header: bytes | bytearray) -> Frame | None:
        """The frame with its request; None if the general path must decode it."""
        decode = self._decoders.get(bytes(header[: header.find(b",", 0, _MAX_PREFIX_BYTES) + 1]))
        if decode is None:
            return None
        try:
            read = decode(header)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return None
        return Frame(
            read.code,
            read.opaque,
            read.flag,
            language_code(read.language),
            read.version,
            read.remark,
            {},
            b"",
            HeaderForm.JSON,
            read.request,
        )


def header_decoder(declaration: Declaration) -> HeaderDecoder:
    """Reads the request into `request`."""
    return decoder_into("request", declaration.request_type)


def decoder_into(field: str, extension_type: type) -> HeaderDecoder:
    """Reads a JSON header, its extension fields into `field`."""
    header_type = msgspec.defstruct(
        f"{extension_type.__name__}Header",
        [
            ("code", Int32),
            (field, extension_type, msgspec.field(name="extFields")),
            ("opaque", Int32, 0),
            ("flag", Int32, 0),
            ("version", Int32, 0),
            ("language", str | None, None),
            ("remark", str | None, None),
        ],
        gc=False,
    )
    return msgspec.json.Decoder(header_type, strict=False).decode
