"""The outer wall of the app: the base path, the Host header, the size of requests and the headers of answers.

Whatever a page does, these hold, for errors and static files too.
"""

from starlette.datastructures import MutableHeaders
from starlette.requests import HTTPConnection
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pyromq.console.security.headers import ALWAYS, OVER_TLS, UNCACHED
from pyromq.console.security.origin import Origins
from pyromq.console.settings import ConsoleSettings

_PROBES = ("/health", "/ready")
"""A probe may know only an address, and these pages show nothing that a foreign page could use."""


class TooLarge(Exception):
    """A request has more bytes than it may have."""


class Gate:
    def __init__(self, app: ASGIApp, settings: ConsoleSettings, origins: Origins) -> None:
        self._app = app
        self._settings = settings
        self._origins = origins

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        scope = self._below_base_path(scope)
        connection = HTTPConnection(scope)
        origin = self._origins.of(connection)

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                wanted = ALWAYS | (OVER_TLS if origin.is_secure else {})
                for name, value in wanted.items():
                    headers[name] = value
                for name, value in UNCACHED.items():
                    headers.setdefault(name, value)
            await send(message)

        if not self._origins.is_ours(origin) and scope["path"] not in _PROBES:
            refusal = PlainTextResponse(
                f"the host {origin.host!r} is not one of this console's; set allowedHosts", 421
            )
            await refusal(scope, receive, send_with_headers)
            return
        limit = self._settings.max_request_bytes
        told = connection.headers.get("content-length", "0")
        if not told.isdecimal() or int(told) > limit:
            refusal = PlainTextResponse(f"the request is larger than {limit} bytes", 413)
            await refusal(scope, receive, send_with_headers)
            return
        received = 0

        async def receive_limited() -> Message:
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            if received > limit:
                raise TooLarge
            return message

        try:
            await self._app(scope, receive_limited, send_with_headers)
        except TooLarge:
            refusal = PlainTextResponse(f"the request is larger than {limit} bytes", 413)
            await refusal(scope, receive, send_with_headers)

    def _below_base_path(self, scope: Scope) -> Scope:
        """The same request without the base path: some proxies pass it on, and some cut it off."""
        base, path = self._settings.base_path, scope["path"]
        if base and (path == base or path.startswith(base + "/")):
            return {**scope, "path": path[len(base) :] or "/", "raw_path": None}
        return scope
