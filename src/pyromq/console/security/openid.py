"""Log-in by OpenID Connect: the authorization code flow, with PKCE, a state and a nonce.

What a log-in needs to be finished is in a cookie of the browser that began it: a code that anybody else
brings is refused. A token counts only if its signature, issuer, audience, time and nonce are right.
"""

import asyncio
import json
import ssl
import urllib.request
from base64 import b64encode, urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping
from hmac import compare_digest
from http.client import HTTPException
from secrets import token_urlsafe
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote_plus, urlencode

import msgspec

from pyromq.clock import Clock
from pyromq.console.security.roles import Person, UserRole, role_of
from pyromq.console.settings import ConsoleSettings
from pyromq.errors import ConfigError, PyroError

if TYPE_CHECKING:
    from joserfc.jwk import KeySet

_ALGORITHMS: Final = [
    "RS256",
    "RS384",
    "RS512",
    "PS256",
    "PS384",
    "PS512",
    "ES256",
    "ES384",
    "ES512",
    "EdDSA",
]
"""Those of public keys: a client's secret would let every client of the provider sign."""
_MAX_ANSWER_BYTES = 1024 * 1024
_FRESH_S = 3600.0
_LEEWAY_S = 60
_SECRET_BYTES = 32
_MAX_NAME = 64


class OpenIdFailed(PyroError):
    """A log-in by the provider did not work."""


class Begun(msgspec.Struct, frozen=True):
    """A log-in that waits for the provider; the browser keeps it."""

    state: str
    nonce: str
    verifier: str
    next: str

    def cookie(self) -> str:
        return urlsafe_b64encode(msgspec.json.encode(self)).decode()

    @staticmethod
    def read(cookie: str | None) -> "Begun":
        try:
            return msgspec.json.decode(urlsafe_b64decode((cookie or "").encode()), type=Begun)
        except (ValueError, msgspec.MsgspecError):
            raise OpenIdFailed("this browser has not begun to log in, or has done so twice") from None


class OpenId:
    """`OpenId(settings, clock)`; all methods raise OpenIdFailed."""

    def __init__(self, settings: ConsoleSettings, clock: Clock) -> None:
        try:
            import authlib.oidc.core  # noqa: F401
            import joserfc  # noqa: F401
        except ImportError as problem:
            raise ConfigError(
                "oidcIssuer", settings.oidc_issuer, f"pip install 'pyromq[oidc]' ({problem})"
            ) from None
        roles_in(settings.oidc_roles)  # reading them checks them
        self._settings = settings
        self._clock = clock
        self._trust: ssl.SSLContext | None = None
        if settings.oidc_trust_path is not None:
            try:
                self._trust = ssl.create_default_context(cafile=settings.oidc_trust_path)
            except OSError as problem:
                raise ConfigError(
                    "oidcTrustPath", settings.oidc_trust_path, f"a PEM file ({problem})"
                ) from None
        self._provider: dict[str, Any] = {}
        self._keys: KeySet | None = None
        self._known_at = -_FRESH_S

    def __repr__(self) -> str:
        return f"<OpenId {self._settings.oidc_issuer}>"

    async def begin(self, redirect_uri: str, next_path: str) -> tuple[str, Begun]:
        """Where to send the browser, and what it has to keep."""
        from authlib.oauth2.rfc7636 import create_s256_code_challenge

        provider = await self._discovered()
        state, nonce, verifier = (token_urlsafe(_SECRET_BYTES) for _ in range(3))
        begun = Begun(state, nonce, verifier, next_path)
        query = {
            "response_type": "code",
            "client_id": self._settings.oidc_client_id,
            "redirect_uri": redirect_uri,
            "scope": self._settings.oidc_scopes,
            "state": begun.state,
            "nonce": begun.nonce,
            "code_challenge": create_s256_code_challenge(begun.verifier),
            "code_challenge_method": "S256",
        }
        address = provider["authorization_endpoint"]
        return f"{address}{'&' if '?' in address else '?'}{urlencode(query)}", begun

    async def finish(self, begun: Begun, answer: Mapping[str, str], redirect_uri: str) -> Mapping[str, Any]:
        """The provider's word about who has logged in. `answer`: what the browser brings back."""
        if not compare_digest(answer.get("state", "").encode(), begun.state.encode()):
            raise OpenIdFailed("the answer belongs to another log-in")
        if "error" in answer:
            raise OpenIdFailed(f"{answer['error']}: {answer.get('error_description', '')}"[:200])
        provider = await self._discovered()
        form = {
            "grant_type": "authorization_code",
            "code": answer.get("code", ""),
            "redirect_uri": redirect_uri,
            "client_id": self._settings.oidc_client_id,
            "code_verifier": begun.verifier,
        }
        headers = {}
        if secret := self._settings.oidc_client_secret:
            pair = f"{quote_plus(self._settings.oidc_client_id)}:{quote_plus(secret)}"
            headers["Authorization"] = f"Basic {b64encode(pair.encode()).decode()}"
        tokens = await self._ask(provider["token_endpoint"], headers, urlencode(form).encode())
        claims = await self._checked(str(tokens.get("id_token", "")), begun.nonce, tokens.get("access_token"))
        if provider.get("userinfo_endpoint") and tokens.get("access_token"):
            more = await self._ask(
                provider["userinfo_endpoint"], {"Authorization": f"Bearer {tokens['access_token']}"}
            )
            if more.get("sub") == claims["sub"]:
                claims = {**more, **claims}
        return claims

    async def _checked(self, token: str, nonce: str, access_token: object) -> dict[str, Any]:
        from authlib.oidc.core import CodeIDToken
        from joserfc import jwt
        from joserfc.errors import JoseError

        settings = self._settings
        try:
            try:
                read = jwt.decode(token, await self._key_set(), algorithms=_ALGORITHMS)
            except (JoseError, ValueError):  # perhaps by a key that is newer than those we know
                read = jwt.decode(token, await self._key_set(again=True), algorithms=_ALGORITHMS)
            claims = CodeIDToken(
                read.claims,
                read.header,
                options={
                    "iss": {"essential": True, "value": self._provider["issuer"]},
                    "aud": {"essential": True, "value": settings.oidc_client_id},
                },
                params={"nonce": nonce, "client_id": settings.oidc_client_id, "access_token": access_token},
            )
            claims.validate(now=self._clock.now_ms() // 1000, leeway=_LEEWAY_S)
        except (JoseError, ValueError, KeyError, TypeError) as problem:
            raise OpenIdFailed(f"the token of the provider is not valid: {problem}") from None
        return dict(claims)

    async def _discovered(self) -> dict[str, Any]:
        if self._clock.monotonic() - self._known_at >= _FRESH_S:
            issuer = self._settings.oidc_issuer.rstrip("/")
            found = await self._ask(f"{issuer}/.well-known/openid-configuration")
            if str(found.get("issuer", "")).rstrip("/") != issuer:
                raise OpenIdFailed(f"{issuer} says that it is {found.get('issuer')}")
            for name in ("authorization_endpoint", "token_endpoint", "jwks_uri"):
                address = str(found.get(name, ""))
                if not address.startswith("https://") and not (
                    issuer.startswith("http://") and address.startswith("http://")
                ):
                    raise OpenIdFailed(f"the provider has no {name} that can be used: {address!r}")
            self._provider, self._keys = found, None
            self._known_at = self._clock.monotonic()
        return self._provider

    async def _key_set(self, *, again: bool = False) -> "KeySet":
        from joserfc.jwk import KeySet

        if self._keys is None or again:
            self._keys = KeySet.import_key_set(await self._ask(self._provider["jwks_uri"]))  # type: ignore[arg-type]
        return self._keys

    async def _ask(
        self, address: str, headers: Mapping[str, str] | None = None, content: bytes | None = None
    ) -> dict[str, Any]:
        sent = {"Accept": "application/json", "User-Agent": "PyroMQ console", **(headers or {})}
        request = urllib.request.Request(address, content, sent)
        try:
            answer = await asyncio.to_thread(self._read, request)
            found = json.loads(answer)
            if not isinstance(found, dict):
                raise ValueError("not a JSON object")
        except (OSError, HTTPException, ValueError) as problem:
            raise OpenIdFailed(f"the provider did not answer as expected: {address}: {problem}") from None
        return found

    def _read(self, request: urllib.request.Request) -> bytes:
        handlers: list[urllib.request.BaseHandler] = [_NoRedirects()]
        if self._trust is not None:
            handlers.append(urllib.request.HTTPSHandler(context=self._trust))
        opener = urllib.request.build_opener(*handlers)
        with opener.open(request, timeout=self._settings.timeout_seconds) as answer:
            content: bytes = answer.read(_MAX_ANSWER_BYTES + 1)
        if len(content) > _MAX_ANSWER_BYTES:
            raise ValueError(f"more than {_MAX_ANSWER_BYTES} bytes")
        return content


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: object) -> None:
        return None


def roles_in(text: str) -> Mapping[str, tuple[UserRole, bool]]:
    """The role, and whether bodies may be read, by a value of the claim; raises ConfigError."""
    found: dict[str, tuple[UserRole, bool]] = {}
    for entry in filter(None, map(str.strip, text.split(","))):
        value, _, word = entry.rpartition("=")
        role, plus, bodies = word.partition("+")
        try:
            if not value or (plus and bodies != "bodies"):
                raise ValueError
            found[value] = role_of(role), bool(plus)
        except ValueError:
            expected = (
                "value=viewer, value=operator or value=admin, with +bodies for the right to read bodies"
            )
            raise ConfigError("oidcRoles", entry, expected) from None
    return found


def name_in(claims: Mapping[str, Any], settings: ConsoleSettings) -> str:
    name = claims.get(settings.oidc_name_claim)
    if not isinstance(name, str) or not 1 <= len(name) <= _MAX_NAME or not name.isprintable():
        raise OpenIdFailed(f"the provider gave no {settings.oidc_name_claim}")
    return name


def person_by_claims(claims: Mapping[str, Any], settings: ConsoleSettings) -> Person | None:
    """The person who has logged in, with the highest role that `oidcRoles` gives; None without any."""
    value: Any = claims
    for part in settings.oidc_roles_claim.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    values = [value] if isinstance(value, str) else value if isinstance(value, list) else []
    held = {each for each in values if isinstance(each, str)}
    granted = [given for each, given in roles_in(settings.oidc_roles).items() if each in held]
    if not granted:
        return None
    return Person(
        name_in(claims, settings), max(role for role, _ in granted), any(reads for _, reads in granted)
    )
