"""The protocol between the filter server and the process of one filter, over two pipes.

  uint32 length    of what follows
  uint32 number    of the question; its answer has the same
  1 byte  kind
  …       content

A filter may write to the pipe, too: an answer that is not exactly what was asked for ends its process.
"""

import struct
from typing import Final

import msgspec

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


class FilterSource(msgspec.Struct, frozen=True):
    """A filter as it was uploaded, and what its context says."""

    group: str
    topic: str
    name: str
    source: str
    broker_name: str = ""


def packed(number: int, kind: bytes, content: bytes) -> bytes:
    return HEAD.pack(len(content) + HEAD.size - LENGTH.size, number, kind) + content
