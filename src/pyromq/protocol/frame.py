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
"""Extension fields of one frame; the busiest request has a few dozen."""


class HeaderForm(IntEnum):
    """How a header is written; each frame says it of itself, and an answer uses its request's form."""

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
    """The request itself, where the header was read straight into it; `ext` is empty then."""
    reply: Any = None
    """The same of an answer."""

    @property
    def is_response(self) -> bool:
        return self.flag & RESPONSE_FLAG != 0

    @property
    def is_oneway(self) -> bool:
        return self.flag & ONEWAY_FLAG != 0

    def answer(self, code: int, remark: str | None = None) -> "Frame":
        """A bare answer to this request, in its own header form."""
        return Frame(code, opaque=self.opaque, flag=RESPONSE_FLAG, remark=remark, form=self.form)
