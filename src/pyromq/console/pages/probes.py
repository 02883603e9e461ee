"""For machines: `/health` (it runs), `/ready` (every cluster has been seen), `/metrics` (how it does)."""

from collections.abc import Awaitable, Callable

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from pyromq.console.state import State
from pyromq.metrics import Metrics, content_type, text_of
from pyromq.remoting.http_status import in_turns

Probe = Callable[[Request], Awaitable[Response]]


def health(state: State) -> Probe:
    async def probe(request: Request) -> Response:
        return JSONResponse({"status": "UP"})

    return probe


def ready(state: State) -> Probe:
    async def probe(request: Request) -> Response:
        waiting = [name for name, shown in state.clusters.items() if shown.snapshot.is_first]
        return JSONResponse(
            {"status": "DOWN" if waiting else "UP", "waiting": len(waiting)}, 503 if waiting else 200
        )

    return probe


def metrics(shown: Metrics) -> Probe:
    async def probe(request: Request) -> Response:
        return Response(await in_turns(text_of(shown.families())), media_type=content_type())

    return probe
