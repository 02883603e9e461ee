"""Where a request comes from: the host it names, the address that sent it, and whether our own page sent
it.

A write is refused unless three things agree: the session's cookie is SameSite=Strict, the browser says
that the request comes from our own page (`Sec-Fetch-Site`, or `BrowserOrigin` where a browser does not send
that), and the form carries the token of the session.
"""

import hmac
from dataclasses import dataclass

from starlette.requests import HTTPConnection

from pyromq.console.settings import ConsoleSettings
from pyromq.remoting.networks import is_loopback

_LOOPBACK_NAMES = frozenset(("localhost", "127.0.0.1", "::1"))
TOKEN_FIELD = "csrf"
TOKEN_HEADER = "x-csrf-token"


@dataclass(frozen=True, slots=True)
class BrowserOrigin:
    """The server as the browser believes to reach it: `https`, `console.example:8443`; and who asks."""

    scheme: str
    host: str
    client: str
    user: str = ""
    """Whom a trusted proxy says it has logged in."""

    @property
    def name(self) -> str:
        """The host without its port."""
        if self.host.startswith("["):
            return self.host[1:].partition("]")[0].lower()
        return self.host.partition(":")[0].lower()

    @property
    def is_secure(self) -> bool:
        return self.scheme == "https"

    def __str__(self) -> str:
        return f"{self.scheme}://{self.host}"


class Origins:
    def __init__(self, settings: ConsoleSettings) -> None:
        self._proxies = settings.proxies()
        self._user_header = settings.user_header
        self._names = settings.host_names() | ({settings.bind_address} - {"0.0.0.0", "::"})
        self._any_loopback = settings.is_on_loopback or settings.bind_address in ("0.0.0.0", "::")

    def __repr__(self) -> str:
        return f"<Origins {sorted(self._names)}>"

    def of(self, connection: HTTPConnection) -> BrowserOrigin:
        """Forwarded headers count only from trusted peers, and of several values the last, which that peer
        added."""
        peer = connection.client.host if connection.client is not None else ""
        scheme, host, client, user = connection.url.scheme, connection.headers.get("host", ""), peer, ""
        if peer in self._proxies:
            headers = connection.headers
            scheme = _last(headers.get("x-forwarded-proto")) or scheme
            host = _last(headers.get("x-forwarded-host")) or host
            client = _last(headers.get("x-forwarded-for")) or client
            named = headers.getlist(self._user_header) if self._user_header else []
            # Of two names, the browser itself sent one: neither is trusted.
            user = named[0].strip() if len(named) == 1 else ""
        return BrowserOrigin(scheme, host, client, user)

    def is_ours(self, origin: BrowserOrigin) -> bool:
        """Whether the host is one of ours: a foreign name that resolves to us is an attack (DNS
        rebinding)."""
        if origin.name in self._names:
            return True
        return self._any_loopback and origin.name in _LOOPBACK_NAMES and _is_local(origin.client)


def _is_local(client: str) -> bool:
    # A client that is not a network address is the test client, or a Unix socket.
    return not client or is_loopback(client) or not client[:1].isdigit()


def _last(header: str | None) -> str:
    return "" if header is None else header.rpartition(",")[2].strip()


def why_forged(connection: HTTPConnection, origin: BrowserOrigin) -> str | None:
    """The reason to distrust a write whose form says nothing about itself; None if our own page sent it."""
    site = connection.headers.get("sec-fetch-site")
    if site is not None:
        return None if site == "same-origin" else f"Sec-Fetch-Site is {site}, expected same-origin"
    sent = connection.headers.get("origin")
    if sent is None:
        return "neither Sec-Fetch-Site nor Origin was sent"
    return None if sent.lower() == str(origin).lower() else f"Origin is {sent}, expected {origin}"


def has_token(sent: str | None, expected: str) -> bool:
    return hmac.compare_digest((sent or "").encode(), expected.encode())
