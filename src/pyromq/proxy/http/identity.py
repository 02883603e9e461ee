"""Access control of HTTP requests: the users of the front, by their own rules.

    Authorization: Basic   a user and its secret; only where others cannot read them
    Authorization: Bearer  a token that a user asked for: one session, to read or to append, for a while

A token holds what it allows and a signature that is made with the secret of its user. It needs no memory, any
front with the same users takes it, and it ends with the user's secret or rights.
"""

import binascii
from base64 import b64decode, urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterable
from hmac import compare_digest, digest
from typing import Final

import msgspec

from pyromq.clock import Clock
from pyromq.protocol.needs import Need
from pyromq.proxy.http.exchange import Head
from pyromq.proxy.http.problems import HttpError
from pyromq.remoting.access.control import AccessControl
from pyromq.security.address_patterns import host_of
from pyromq.security.decision import described

_NOBODY_KEY: Final = "a key that no user has"
_LOOPBACK: Final = ("127.", "::1")
IN_PROTOCOL: Final = "bearer."
"""Before a token in the subprotocols of a WebSocket: browsers cannot set other headers there."""


class Grant(msgspec.Struct, frozen=True):
    """The rights of a token."""

    user: str
    topic: str
    session: str
    may_append: bool
    until_ms: int


class HttpCaller(msgspec.Struct, frozen=True):
    user: str = ""
    host: str = ""
    grant: Grant | None = None
    """The rights of the request's token; None if it brought none."""


class HttpAccess:
    """`control` is None without access control: everybody may do everything."""

    def __init__(self, control: AccessControl | None, clock: Clock, *, allows_plain_passwords: bool) -> None:
        self._control = control
        self._clock = clock
        self._allows_plain_passwords = allows_plain_passwords

    def __repr__(self) -> str:
        return f"<HttpAccess {self._control!r}>"

    def identify(self, head: Head, offered: Iterable[str] = ()) -> HttpCaller:
        """Raises HttpError if it is unknown who sent a request. `offered`: subprotocols of a WebSocket."""
        host = host_of(head.peer_address)
        if self._control is None:
            return HttpCaller(host=host)
        kind, _, value = head.headers.get("authorization", "").partition(" ")
        token = next((each for each in offered if each.startswith(IN_PROTOCOL)), None)
        if kind.lower() == "bearer" or token is not None:
            return self._by_token(value.strip() if token is None else token.removeprefix(IN_PROTOCOL), host)
        if kind.lower() == "basic":
            return self._by_password(value.strip(), head, host)
        if kind or not self._control.rules.free_pass("", host):
            raise HttpError(401, "give the credentials of a user, or a token")
        return HttpCaller(host=host)

    def _by_password(self, value: str, head: Head, host: str) -> HttpCaller:
        if not (head.is_secure or self._allows_plain_passwords or host.startswith(_LOOPBACK)):
            raise HttpError(403, "a password came over a connection without TLS: consider it known to others")
        try:
            user, _, password = b64decode(value, validate=True).decode().partition(":")
        except (binascii.Error, UnicodeDecodeError):
            raise HttpError(400, "the header Authorization cannot be read") from None
        secrets = self._secrets(user)
        is_right = any(compare_digest(each.encode(), password.encode()) for each in secrets or (_NOBODY_KEY,))
        if not is_right or not secrets:
            raise self._refused(401, "the user or the password is wrong")
        return HttpCaller(user, host)

    def _by_token(self, token: str, host: str) -> HttpCaller:
        content, _, signature = token.partition(".")
        try:
            grant = msgspec.json.decode(_opened(content), type=Grant)
            proof = _opened(signature)
        except (ValueError, msgspec.MsgspecError):
            raise HttpError(401, "the token cannot be read") from None
        secrets = self._secrets(grant.user)
        is_right = any(compare_digest(_proof(content, each), proof) for each in secrets or (_NOBODY_KEY,))
        if not is_right or not secrets:
            raise self._refused(401, "the token is not of a user of this front, or its secret has changed")
        if grant.until_ms < self._clock.now_ms():
            raise HttpError(401, "the token has expired")
        return HttpCaller(grant.user, host, grant)

    def issue(self, grant: Grant) -> str:
        """A token, signed with the secret of its user."""
        secrets = self._secrets(grant.user)
        if not secrets:
            raise HttpError(400, "there are no tokens without access control: requests need no credentials")
        content = _closed(msgspec.json.encode(grant))
        return f"{content}.{_closed(_proof(content, secrets[0]))}"

    def authorize(
        self,
        caller: HttpCaller,
        needs: Iterable[Need],
        session: tuple[str, str] | None = None,
        *,
        appends: bool = False,
    ) -> None:
        """Raises HttpError unless the caller has these rights. `session`: the parent topic and the name of
        the only session that the request is about."""
        grant = caller.grant
        if grant is not None:
            if session != (grant.topic, grant.session):
                raise self._refused(403, f"the token is for the session {grant.session} of {grant.topic}")
            if appends and not grant.may_append:
                raise self._refused(403, "the token is for reading")
        if self._control is None or self._control.rules.free_pass(caller.user, caller.host):
            return
        for need in needs:
            if not self._control.rules.decide(caller.user, need, caller.host).is_allowed:
                raise self._refused(403, f"{caller.user} may not {described(need)}")

    def _secrets(self, user: str) -> tuple[str, ...]:
        return self._control.rules.secrets_of(user) if self._control is not None and user else ()

    def _refused(self, status: int, text: str) -> HttpError:
        if self._control is not None:
            self._control.refused += 1
        return HttpError(status, text)


def _proof(content: str, secret: str) -> bytes:
    return digest(digest(secret.encode(), b"PyroMQ session token", "sha256"), content.encode(), "sha256")


def _closed(content: bytes) -> str:
    return urlsafe_b64encode(content).rstrip(b"=").decode()


def _opened(text: str) -> bytes:
    return urlsafe_b64decode(text.encode("ascii") + b"=" * (-len(text) % 4))
