"""Answers with long tables are encoded in a thread, so that they do not block the event loop."""

import asyncio
from typing import Any, Final

from pyromq.protocol import json_body
from pyromq.protocol.catalogue import RawAnswer

_FEW_ROWS: Final = 256


async def written(body: Any, rows: int) -> RawAnswer:
    """An answer with this body. A long table is encoded in a thread: do not change `body` afterwards."""
    if rows < _FEW_ROWS:
        return RawAnswer(json_body.encode(body))
    return RawAnswer(await asyncio.to_thread(json_body.encode, body))
