"""A page for probes: 200 if all clients are well, else 503; the body says in JSON what is wrong.

The blocking form is a WSGI application, the asyncio form an ASGI application: mount it where the probe asks.
"""

from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any, Protocol

import msgspec

from pyromq.client.health import Health

_HEADERS = [("content-type", "application/json"), ("cache-control", "no-store")]


class AsyncClient(Protocol):
    def health(self) -> Awaitable[Health]: ...


class PlainClient(Protocol):
    def health(self) -> Health: ...


def aio_readiness(
    *clients: AsyncClient,
) -> Callable[
    [
        MutableMapping[str, Any],
        Callable[[], Awaitable[MutableMapping[str, Any]]],
        Callable[[MutableMapping[str, Any]], Awaitable[None]],
    ],
    Awaitable[None],
]:
    """An ASGI application that answers with the health of these clients: `app.mount("/ready", …)`."""

    async def answer(
        scope: MutableMapping[str, Any],
        receive: Callable[[], Awaitable[MutableMapping[str, Any]]],
        send: Callable[[MutableMapping[str, Any]], Awaitable[None]],
    ) -> None:
        if scope["type"] != "http":
            return
        is_ok, body = _answer([await client.health() for client in clients])
        headers = [(name.encode(), value.encode()) for name, value in _HEADERS]
        await send({"type": "http.response.start", "status": 200 if is_ok else 503, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    return answer


def readiness(
    *clients: PlainClient,
) -> Callable[[dict[str, Any], Callable[..., object]], Iterable[bytes]]:
    """A WSGI application that answers with the health of these clients."""

    def answer(environ: dict[str, Any], start_response: Callable[..., object]) -> Iterable[bytes]:
        is_ok, body = _answer([client.health() for client in clients])
        start_response("200 OK" if is_ok else "503 Service Unavailable", list(_HEADERS))
        return [body]

    return answer


def _answer(found: list[Health]) -> tuple[bool, bytes]:
    is_ok = all(health.is_ok for health in found)
    return is_ok, msgspec.json.encode({"ok": is_ok, "clients": [health.as_dict() for health in found]})
