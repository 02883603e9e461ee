"""One message of the remoting protocol, header decoded, body untouched.

A frame is a value: who may send it, and what its fields mean, is the catalogue's business.
"""

from enum import IntEnum
from typing import Any

import msgspec

from pyromq.protocol.codes import CURRENT_VERSION, Language

RESPONSE_FLAG = 1
ONEWAY_FLAG = 2

MAX_FIELDS = 1024
"""The limit of extension fields in one frame; the largest request has a few dozen."""


class HeaderForm(IntEnum):
    """How a header is encoded; each frame states its own form, and an answer uses the form of its request."""

    JSON = 0
    BINARY = 1


class Frame(msgspec.Struct):
    code: int
    opaque: int = 0
    flag: int = 0
    language: int = Language.PYTHON
    version: int = CURRENT_VERSION
    remark: str | None = None
    ext: dict[str, str] = {}
    body: bytes = b""
    form: int = HeaderForm.JSON
    request: Any = None
    """The request, if the header was decoded straight into it; then `ext` is empty."""
    reply: Any = None
    """The answer, in the same case."""

    @property
    def is_response(self) -> bool:
        return self.flag & RESPONSE_FLAG != 0

    @property
    def is_oneway(self) -> bool:
        return self.flag & ONEWAY_FLAG != 0

    def answer(self, code: int, remark: str | None = None) -> "Frame":
        """An answer to this request with only a code and a remark, in the same header form."""
        return Frame(code, opaque=self.opaque, flag=RESPONSE_FLAG, remark=remark, form=self.form)
