"""The table of paths, and what holds for all of them: origins, credentials, and errors as JSON.

A page of another origin may ask only if the operator has named its origin. Credentials are never read from an
address, and answers are kept by no cache.
"""

import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final

import msgspec

from pyromq.errors import CallTimeout, LocalProtocolError, NoRoute, PyroError, Refused, TransportError
from pyromq.protocol.codes import ResponseCode
from pyromq.proxy.codes import Code, Rejected
from pyromq.proxy.http.exchange import Exchange, Head, Headers
from pyromq.proxy.http.problems import HttpError, PeerGone

_log = logging.getLogger(__name__)

_STATUS_OF: Final = {
    ResponseCode.LITE_FENCED: 409,
    ResponseCode.LITE_OFFSET_TAKEN: 412,
    ResponseCode.MESSAGE_ILLEGAL: 400,
    ResponseCode.INVALID_PARAMETER: 400,
    ResponseCode.SUBSCRIPTION_PARSE_FAILED: 400,
    ResponseCode.NO_PERMISSION: 403,
    ResponseCode.TOPIC_NOT_EXIST: 404,
    ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST: 404,
    ResponseCode.LMQ_QUOTA_EXCEEDED: 429,
    ResponseCode.SYSTEM_BUSY: 503,
    ResponseCode.FLOW_CONTROL: 503,
    ResponseCode.SERVICE_NOT_AVAILABLE: 503,
}
_METHODS: Final = "GET, POST, DELETE, OPTIONS"
_ASKED_HEADERS: Final = (
    "authorization, content-type, last-event-id, session-epoch, expected-offset, session-kind"
)
_PREFLIGHT_S: Final = b"600"


class Answered(msgspec.Struct, frozen=True):
    """A whole answer."""

    status: int
    content: Any = None


Handle = Callable[[Exchange, "Asked"], Awaitable[Answered | None]]
"""Returns the answer, or None if it has sent one itself."""


class Asked(msgspec.Struct, frozen=True):
    """The variable parts of a path."""

    parts: tuple[str, ...]

    def __getitem__(self, number: int) -> str:
        return self.parts[number]


class HttpApp:
    def __init__(self, allowed_origins: frozenset[str]) -> None:
        self._allowed_origins = allowed_origins
        self._routes: dict[tuple[str | None, ...], dict[str, Handle]] = {}

    def add(self, method: str, path: str, handle: Handle) -> None:
        """`path`: as in `v1/topics/*/messages`."""
        parts = tuple(None if part == "*" else part for part in path.split("/"))
        self._routes.setdefault(parts, {})[method] = handle

    async def handle(self, exchange: Exchange) -> None:
        head = exchange.head
        origin = self._headers_for(head)
        try:
            try:
                answered = await self._handle(exchange)
            except HttpError:
                raise
            except PyroError as problem:
                raise http_error(problem) from None
            except Exception as problem:
                _log.error("an HTTP request failed %s %s", head.method, head.path, exc_info=problem)
                raise HttpError(500, "the request failed; the log of the front says why") from None
            if answered is not None:
                await _send(exchange, answered, origin)
        except PeerGone:
            raise
        except HttpError as problem:
            await self.refuse(exchange, problem)

    async def refuse(self, exchange: Exchange, problem: HttpError) -> None:
        if exchange.answer_has_begun:
            raise PeerGone(str(problem))
        content = {"error": {"status": problem.status, "message": str(problem), **problem.more}}
        more: Headers = self._headers_for(exchange.head)
        if problem.status == 401:
            more = [*more, (b"www-authenticate", b'Basic realm="PyroMQ", charset="UTF-8"')]
        if problem.status == 503:
            more = [*more, (b"retry-after", b"1")]
        await _send(exchange, Answered(problem.status, content), more)

    async def _handle(self, exchange: Exchange) -> Answered | None:
        head = exchange.head
        found, parts = self._find(head.path)
        origin = head.headers.get("origin")
        changes = head.method not in ("GET", "HEAD") or "upgrade" in head.headers
        if changes and origin is not None and not self._is_allowed(origin, head):
            raise HttpError(403, f"the origin {origin} is not one of httpAllowedOrigins")
        if found is None:
            raise HttpError(404, "there is nothing at this path")
        if head.method == "OPTIONS":
            return Answered(204)
        handle = found.get("GET" if head.method == "HEAD" else head.method)
        if handle is None:
            raise HttpError(405, f"this path takes {', '.join(found)}")
        return await handle(exchange, Asked(parts))

    def _find(self, path: tuple[str, ...]) -> tuple[dict[str, Handle] | None, tuple[str, ...]]:
        for pattern, found in self._routes.items():
            if len(pattern) == len(path) and all(
                wanted in (None, part) for wanted, part in zip(pattern, path, strict=True)
            ):
                return found, tuple(
                    part for wanted, part in zip(pattern, path, strict=True) if wanted is None
                )
        return None, ()

    def _is_allowed(self, origin: str, head: Head) -> bool:
        own = f"{'https' if head.is_secure else 'http'}://{head.headers.get('host', '')}"
        return origin == own or origin in self._allowed_origins or "*" in self._allowed_origins

    def headers_for(self, head: Head) -> Headers:
        return self._headers_for(head)

    def _headers_for(self, head: Head) -> Headers:
        """Headers that let a page of an allowed origin read the answer, and keep it out of caches."""
        headers: Headers = [(b"cache-control", b"no-store"), (b"x-content-type-options", b"nosniff")]
        origin = head.headers.get("origin")
        if self._allowed_origins:
            headers.append((b"vary", b"origin"))
        if origin is None or not self._is_allowed(origin, head):
            return headers
        headers.append((b"access-control-allow-origin", origin.encode("latin-1")))
        if head.method == "OPTIONS":
            headers += [
                (b"access-control-allow-methods", _METHODS.encode()),
                (b"access-control-allow-headers", _ASKED_HEADERS.encode()),
                (b"access-control-max-age", _PREFLIGHT_S),
            ]
        return headers


async def _send(exchange: Exchange, answered: Answered, more: Headers) -> None:
    body = b"" if answered.content is None else msgspec.json.encode(answered.content) + b"\n"
    headers: Headers = [*more]
    if answered.content is not None:
        headers.append((b"content-type", b"application/json"))
    if answered.status != 204:
        headers.append((b"content-length", b"%d" % len(body)))
    await exchange.begin(answered.status, headers)
    if body:
        await exchange.write(body)
    exchange.end()


def http_error(problem: PyroError) -> HttpError:
    """The failure of a request as an HTTP answer."""
    text = str(problem)
    if isinstance(problem, HttpError):
        return problem
    if isinstance(problem, Refused):
        # A page need not know the address of a broker.
        return HttpError(
            _STATUS_OF.get(ResponseCode(problem.code), 502) if _is_known(problem.code) else 502,
            problem.remark or text,
        )
    if isinstance(problem, Rejected):
        return HttpError(_status_of_rejection(problem.code), text)
    if isinstance(problem, NoRoute):
        return HttpError(404, text)
    if isinstance(problem, CallTimeout):
        return HttpError(504, f"{text}; it is not known whether it was done")
    if isinstance(problem, TransportError):
        return HttpError(503, text)
    return HttpError(400 if isinstance(problem, LocalProtocolError) else 502, text)


def _is_known(code: int) -> bool:
    return code in ResponseCode._value2member_map_


def _status_of_rejection(code: Code) -> int:
    """The first digits of these codes are those of HTTP."""
    return code // 100 if 400 <= code // 100 < 600 else 500
