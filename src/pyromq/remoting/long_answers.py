"""Answers with long tables are encoded in a thread, piece by piece.

No piece takes long, because the loop waits for the interpreter while the encoder in C runs.
"""

import asyncio
from typing import Final

import msgspec

from pyromq.protocol import json_body
from pyromq.protocol.catalogue import RawAnswer

_FEW_ROWS: Final = 256


async def written(body: msgspec.Struct, rows: int) -> RawAnswer:
    """An answer with this body. A long table is encoded in a thread: do not change `body` afterwards."""
    if rows < _FEW_ROWS:
        return RawAnswer(json_body.encode(body))
    return RawAnswer(await asyncio.to_thread(_encode, body))


def _encode(body: msgspec.Struct) -> bytes:
    return b"".join(json_body.encode_in_pieces(body))
