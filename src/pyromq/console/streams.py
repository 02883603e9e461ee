"""Streams of events to browsers: one a tab, with a sign of life every 15 seconds."""

import asyncio
from collections.abc import AsyncIterator

from starlette.responses import StreamingResponse

from pyromq.console.visit import Visit

HEADERS = {"X-Accel-Buffering": "no", "Cache-Control": "no-store"}
SIGN_OF_LIFE_S = 15.0
_CLOSING = b"event: end\ndata: the console stops\n\n"


def event(name: str, data: str, id: str = "") -> bytes:
    """One event; every line of its data has its own field."""
    lines = [f"event: {name}", *(f"data: {line}" for line in data.splitlines() or [""])]
    if id:
        lines.insert(0, f"id: {id}")
    return ("\n".join(lines) + "\n\n").encode()


def streamed(events: AsyncIterator[bytes]) -> StreamingResponse:
    return StreamingResponse(events, headers=HEADERS, media_type="text/event-stream")


async def ticks(visit: Visit) -> StreamingResponse:
    """An event for each new snapshot: the page fetches itself again, and the server renders it once for
    all. A page says which one it shows (`seen`), and gets no event for that one."""
    shown = visit.shown
    assert shown is not None
    seen = visit.request.headers.get("last-event-id", visit.text("seen"))

    async def events() -> AsyncIterator[bytes]:
        yield b"retry: 2000\n\n"
        version = int(seen) if seen.isdecimal() and len(seen) < 16 else -1
        silent_s = 0.0
        while not visit.state.is_stopping:
            if shown.snapshot.version != version:
                version, silent_s = shown.snapshot.version, 0.0
                # Streams that wake up together must not hold the loop together; each needs little of a turn.
                while visit.state.stream_turns.is_over():  # noqa: ASYNC110
                    await asyncio.sleep(0)
                yield event("tick", str(shown.snapshot.at_ms), id=str(version))
            elif silent_s >= SIGN_OF_LIFE_S:
                silent_s = 0.0
                yield b": still here\n\n"
            await asyncio.sleep(1.0)
            silent_s += 1.0
        yield _CLOSING

    return streamed(events())
