"""The protocol between the filter server and the process of one filter, over two pipes.

  uint32 length    of what follows
  uint32 number    of the question; its answer has the same
  1 byte  kind
  …       content

A filter may write to the pipe, too: an answer that is not exactly what was asked for ends its process.
"""

import struct
from collections.abc import Callable
from typing import Final

import msgspec

from pyromq.client.values import ReceivedMessage

HEAD: Final = struct.Struct(">IIc")
LENGTH: Final = struct.Struct(">I")
QUEUE_ID: Final = struct.Struct(">I")

# Questions
LOAD: Final = b"L"
"""The content is a FilterSource, as JSON."""
MATCH: Final = b"M"
"""The content is the id of the queue, and stored records, one after the other."""

# Answers
VERDICTS: Final = b"V"
"""A byte for each record, 1 if it matches."""
ERROR: Final = b"E"
"""A text; the filter may be asked again."""
EXHAUSTED: Final = b"X"
"""A text; the process has used up its memory, and ends."""

MAX_TEXT_BYTES: Final = 2000

MODULE_BEGIN: Final = b"\0asm"
"""How modules in WebAssembly begin, and no source in Python."""


class FilterSource(msgspec.Struct, frozen=True):
    """A filter as it was uploaded, and what its context says."""

    group: str
    topic: str
    name: str
    source: bytes
    """Python, in UTF-8, or a module in WebAssembly."""
    broker_name: str = ""

    @property
    def is_module(self) -> bool:
        return self.source.startswith(MODULE_BEGIN)


Match = Callable[[ReceivedMessage], object]
"""A filter that is loaded; only True and False are verdicts."""


class BadFilter(Exception):
    """The fault of a filter, in words."""


def packed(number: int, kind: bytes, content: bytes) -> bytes:
    return HEAD.pack(len(content) + HEAD.size - LENGTH.size, number, kind) + content
