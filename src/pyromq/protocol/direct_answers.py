"""Decodes answers to the most frequent requests straight into the declared answer.

It takes JSON headers in which the opaque number comes after the extension fields, and only successful
answers. The general path handles all others, with the same result.
"""

import msgspec

from pyromq.protocol.catalogue import Declaration
from pyromq.protocol.codes import ResponseCode
from pyromq.protocol.direct import HeaderDecoder, decoder_into
from pyromq.protocol.frame import RESPONSE_FLAG, Frame, HeaderForm
from pyromq.protocol.json_header import language_code

_OPAQUE = b'"opaque":'


class DirectAnswers:
    """Decodes the answers to some calls of one connection; `expected` has their decoders by opaque number."""

    __slots__ = ("expected",)

    def __init__(self) -> None:
        self.expected: dict[int, HeaderDecoder] = {}

    def __repr__(self) -> str:
        return f"<DirectAnswers expected={len(self.expected)}>"

    def decode(self, header: bytes | bytearray) -> Frame | None:
        """The frame with its answer; None if the general path must decode it."""
        number_at = header.rfind(_OPAQUE) + len(_OPAQUE)
        try:
            opaque = int(header[number_at : header.find(b",", number_at)])
            decode = self.expected[opaque]
            read = decode(header)
        except (KeyError, ValueError, msgspec.MsgspecError, RecursionError):
            return None
        if read.opaque != opaque or read.code != ResponseCode.SUCCESS or not read.flag & RESPONSE_FLAG:
            return None
        return Frame(
            read.code,
            opaque,
            read.flag,
            language_code(read.language),
            read.version,
            read.remark,
            {},
            b"",
            HeaderForm.JSON,
            None,
            read.reply,
        )


def answer_decoder(declaration: Declaration) -> HeaderDecoder:
    """Decodes the answer into `reply`, for answers that have only extension fields."""
    return decoder_into("reply", declaration.answer_type)
