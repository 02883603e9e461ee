"""Answers to the busiest requests, read straight into the declared answer.

This is a shortcut, not another protocol: it takes JSON headers in which the opaque number comes behind the
extension fields, and only answers that say success. Whatever looks different goes the general way, with the
same result.
"""

import msgspec

from pyromq.protocol.catalogue import Declaration
from pyromq.protocol.codes import ResponseCode
from pyromq.protocol.direct import HeaderDecoder, decoder_into
from pyromq.protocol.frame import RESPONSE_FLAG, Frame, HeaderForm
from pyromq.protocol.json_header import language_code

_OPAQUE = b'"opaque":'


class DirectAnswers:
    """Reads the answers to some of the calls of one connection: `expected` has how, by opaque number."""

    __slots__ = ("expected",)

    def __init__(self) -> None:
        self.expected: dict[int, HeaderDecoder] = {}

    def __repr__(self) -> str:
        return f"<DirectAnswers expected={len(self.expected)}>"

    def decode(self, header: bytes | bytearray) -> Frame | None:
        """The frame with its answer in it; None if this must be read the general way."""
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
    """Reads the answer into `reply`: for answers that are whole with their extension fields."""
    return decoder_into("reply", declaration.answer_type)
