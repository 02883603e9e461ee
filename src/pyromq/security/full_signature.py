"""The full signature: it covers everything that decides what a request does, and each one is used only once.

RocketMQ's signature (`signature`) covers the values of the fields and the body, without the code, the names
and the borders between values: who overhears it can make another request of it. Our clients and servers add
the field `FullSignature`, which Apache's servers pass over:

    12  the time of signing in ms      16  the session: a random number of the connection
    12  the number of the request      44  HMAC-SHA256, in base64

The first three are hexadecimal; numbers increase within a session. The sum is made over a label, these 40
characters, code, flag and version (4 bytes each), the remark, the number of fields, names and values in the
order of names, and the body. Texts have their length in front (4 bytes). Both signature fields are omitted.
"""

import base64
import hmac
import re
from struct import Struct
from typing import Final, NamedTuple

from pyromq.protocol.frame import Frame, HeaderForm
from pyromq.security.signature import SIGNATURE

FULL_SIGNATURE: Final = "FullSignature"

_SIGNATURES: Final = frozenset({SIGNATURE, FULL_SIGNATURE})
_LABEL: Final = b"PyroMQ full signature 1\n"
_STAMP_CHARS: Final = 40
_FIELD: Final = re.compile(r"[0-9a-f]{40}[A-Za-z0-9+/]{43}=", re.ASCII)
_FIXED: Final = Struct(">iii")
_LENGTH: Final = Struct(">I")


class Stamp(NamedTuple):
    """When a request was signed, and its place among the others of its connection."""

    time_ms: int
    session: bytes
    """16 hexadecimal digits."""
    number: int

    def __str__(self) -> str:
        return f"{self.time_ms:012x}{self.session.decode()}{self.number:012x}"


def full_signature(frame: Frame, stamp: Stamp, secret_key: str) -> str:
    """The text of the field; none of the others may change later."""
    text = str(stamp)
    return text + _sum(frame, text, secret_key)


def read_stamp(field: str) -> Stamp:
    """The stamp of a right signature."""
    return Stamp(int(field[:12], 16), field[12:28].encode(), int(field[28:_STAMP_CHARS], 16))


def is_fully_signed(frame: Frame, secret_key: str) -> bool:
    """Whether the frame has a full signature made with `secret_key`; every wrong one takes the same time."""
    field = frame.ext.get(FULL_SIGNATURE, "")
    made = _sum(frame, field[:_STAMP_CHARS], secret_key).encode()
    claimed = field[_STAMP_CHARS:].encode("utf-8", "replace")
    return hmac.compare_digest(made, claimed) and _FIELD.fullmatch(field) is not None


def _sum(frame: Frame, stamp: str, secret_key: str) -> str:
    content = fully_signed_content(frame, stamp)
    return base64.b64encode(hmac.digest(secret_key.encode("utf-8", "replace"), content, "sha256")).decode()


def fully_signed_content(frame: Frame, stamp: str) -> bytes:
    code = frame.code
    if frame.form == HeaderForm.BINARY:
        code = ((code & 0xFFFF) ^ 0x8000) - 0x8000  # such a header has two bytes for it
    ext, pack = frame.ext, _LENGTH.pack
    names = sorted(ext.keys() - _SIGNATURES)  # characters have the same order as their bytes in UTF-8
    remark = (frame.remark or "").encode("utf-8", "surrogatepass")
    parts = [_LABEL, stamp.encode("utf-8", "surrogatepass"), _FIXED.pack(code, frame.flag, frame.version)]
    parts += (pack(len(remark)), remark, pack(len(names)))
    for name in names:
        encoded = name.encode("utf-8", "surrogatepass")
        value = ext[name].encode("utf-8", "surrogatepass")
        parts += (pack(len(encoded)), encoded, pack(len(value)), value)
    parts.append(frame.body)
    return b"".join(parts)
