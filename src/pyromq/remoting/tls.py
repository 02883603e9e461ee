"""Certificates from files, reloaded when the files change.

If the new files are broken, the old certificate stays in use and a warning is logged. Without a certificate
there is no TLS; PyroMQ never generates one.
"""

import logging
import os
import ssl
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Self, TypeAlias

from pyromq.clock import Clock, SystemClock
from pyromq.errors import ConfigError

_log = logging.getLogger(__name__)

TlsMode: TypeAlias = Literal["disabled", "permissive", "enforcing"]
ClientAuth: TypeAlias = Literal["none", "optional", "require"]

HTTP2_IN_TLS = "h2"
"""The name of HTTP/2 where the two sides of a TLS connection agree on a protocol."""

HTTP1_IN_TLS = "http/1.1"
"""The same for HTTP/1.1."""

OLDEST_VERSION = ssl.TLSVersion.TLSv1_2
"""Older versions are refused, even if the system's OpenSSL accepts them."""

_CHECK_INTERVAL_S = 0.5

_VERIFICATION = {"none": ssl.CERT_NONE, "optional": ssl.CERT_OPTIONAL, "require": ssl.CERT_REQUIRED}

_FileStates: TypeAlias = tuple[tuple[int, int, int] | None, ...]


class _WatchedContext:
    """A context built from files; the first use after a change builds it again."""

    def __init__(self, build: Callable[[], ssl.SSLContext], paths: list[Path], clock: Clock | None) -> None:
        self._build = build
        self._paths = paths
        self._clock: Clock = clock if clock is not None else SystemClock()
        self._file_states = self._read_file_states()
        self._context = build()
        self._next_check = self._clock.monotonic() + _CHECK_INTERVAL_S
        self.reloads = 0
        self.failed_reloads = 0

    def current(self) -> ssl.SSLContext:
        now = self._clock.monotonic()
        if now >= self._next_check:
            self._next_check = now + _CHECK_INTERVAL_S
            states = self._read_file_states()
            if states != self._file_states:
                self._file_states = states
                self._reload()
        return self._context

    def _reload(self) -> None:
        names = ", ".join(map(str, self._paths))
        try:
            self._context = self._build()
        except ConfigError as problem:
            self.failed_reloads += 1
            _log.warning("cannot load changed TLS files, keeping the old ones files=%s: %s", names, problem)
        else:
            self.reloads += 1
            _log.info("loaded changed TLS files files=%s", names)

    def _read_file_states(self) -> _FileStates:
        states: list[tuple[int, int, int] | None] = []
        for path in self._paths:
            try:
                status = os.stat(path)
            except OSError:
                states.append(None)
            else:
                states.append((status.st_mtime_ns, status.st_ino, status.st_size))
        return tuple(states)


@dataclass(slots=True, kw_only=True, eq=False)
class TlsServer:
    """TLS on the server's side.

    `disabled` closes TLS connections, `enforcing` closes plain ones, `permissive` accepts both on the same
    port. A client certificate, requested by `client_auth`, is always checked against the trusted ones.
    """

    mode: TlsMode = "permissive"
    certificate_path: Path | None = None
    key_path: Path | None = None
    key_password: str | None = field(default=None, repr=False)
    trust_path: Path | None = None
    client_auth: ClientAuth = "none"
    offers_http2: bool = False
    offers_http1: bool = False
    clock: Clock | None = None
    _watched: _WatchedContext | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        if self.mode == "disabled":
            return
        if self.certificate_path is None or self.key_path is None:
            if self.mode == "enforcing":
                raise ConfigError("tls.server.certPath", self.certificate_path, "a certificate and its key")
            return
        if self.client_auth != "none" and self.trust_path is None:
            why = f"a file, because client_auth is {self.client_auth}"
            raise ConfigError("tls.server.trustCertPath", self.trust_path, why)
        paths = [self.certificate_path, self.key_path]
        self._watched = _WatchedContext(
            self._build, paths + ([self.trust_path] if self.trust_path is not None else []), self.clock
        )

    def _build(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = OLDEST_VERSION
        context.options |= ssl.OP_NO_RENEGOTIATION
        if self.offers_http2:
            context.set_alpn_protocols([HTTP2_IN_TLS, *([HTTP1_IN_TLS] if self.offers_http1 else [])])
        assert self.certificate_path is not None
        assert self.key_path is not None
        _load_certificate(context, "tls.server", self.certificate_path, self.key_path, self.key_password)
        if self.client_auth != "none" and self.trust_path is not None:
            context.verify_mode = _VERIFICATION[self.client_auth]
            _load_trust(context, "tls.server", self.trust_path)
        return context

    def __repr__(self) -> str:
        certificate = "with a certificate" if self._watched is not None else "without a certificate"
        return f"<TlsServer {self.mode} {certificate} client_auth={self.client_auth}>"

    @property
    def is_enforced(self) -> bool:
        return self.mode == "enforcing"

    @property
    def reloads(self) -> int:
        return self._watched.reloads if self._watched is not None else 0

    @property
    def failed_reloads(self) -> int:
        return self._watched.failed_reloads if self._watched is not None else 0

    def context(self) -> ssl.SSLContext | None:
        """The context for a new connection; None if TLS is not enabled."""
        return self._watched.current() if self._watched is not None else None


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsOptions:
    """How a client uses TLS.

    `verify=True` or a `trust_path` lets it verify the certificates of servers; otherwise it accepts any.
    """

    certificate_path: Path | None = None
    key_path: Path | None = None
    key_password: str | None = None
    trust_path: Path | None = None
    verify: bool | None = None

    def __post_init__(self) -> None:
        for name in ("certificate_path", "key_path", "trust_path"):
            if isinstance(path := getattr(self, name), str):
                object.__setattr__(self, name, Path(path))
        if self.verify is None:
            object.__setattr__(self, "verify", self.trust_path is not None)

    @classmethod
    def chosen(cls, is_wanted: bool, trust_path: Path | str | None) -> Self | None:
        """The options of a program with only these two settings; None means no TLS."""
        if trust_path is not None:
            return cls(trust_path=Path(trust_path), verify=True)
        # java: clients do not check servers without certificates to trust
        return cls() if is_wanted else None


class TlsClient:
    """TLS on the client's side.

    The server's certificate is verified only with `verify`, and its name never: brokers are known by address.
    The trusted certificates come from `trust_path`, or from the system.
    """

    def __init__(self, options: TlsOptions, clock: Clock | None = None) -> None:
        self.options = options
        certificate, key, trust = options.certificate_path, options.key_path, options.trust_path

        def build() -> ssl.SSLContext:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.minimum_version = OLDEST_VERSION
            # java: addresses come from routes; certificates do not name them
            context.check_hostname = False
            if not options.verify:
                context.verify_mode = ssl.CERT_NONE
            elif trust is not None:
                _load_trust(context, "tls.client", trust)
            else:
                context.load_default_certs()
            if certificate is not None:
                _load_certificate(
                    context, "tls.client", certificate, key or certificate, options.key_password
                )
            return context

        paths = [path for path in (certificate, key, trust) if path is not None]
        self._watched = _WatchedContext(build, paths, clock)

    def __repr__(self) -> str:
        return f"<TlsClient {'verifies' if self.options.verify else 'trusts everyone'}>"

    def context(self) -> ssl.SSLContext:
        return self._watched.current()


def certificate_names(connection: ssl.SSLObject | ssl.SSLSocket) -> tuple[str, ...]:
    """The common name and the DNS names of the peer's certificate; none if it showed none that is trusted."""
    certificate: dict[str, Any] = connection.getpeercert() or {}
    subject = (pair for part in certificate.get("subject", ()) for pair in part)
    common = [value for name, value in subject if name == "commonName"]
    return (*common, *(value for kind, value in certificate.get("subjectAltName", ()) if kind == "DNS"))


def _load_certificate(
    context: ssl.SSLContext, prefix: str, certificate: Path, key: Path, password: str | None
) -> None:
    try:
        # Always pass a password, even an empty one: otherwise OpenSSL asks for it on the terminal and waits.
        context.load_cert_chain(certificate, key, password=password or "")
    except (OSError, ssl.SSLError) as problem:
        raise ConfigError(
            f"{prefix}.certPath", certificate, f"a PEM certificate that matches the key {key}: {problem}"
        ) from problem


def _load_trust(context: ssl.SSLContext, prefix: str, trust: Path) -> None:
    try:
        context.load_verify_locations(trust)
    except (OSError, ssl.SSLError) as problem:
        raise ConfigError(f"{prefix}.trustCertPath", trust, f"PEM certificates: {problem}") from problem
