"""The settings that producers and consumers of one process share: the cluster and their identity.

Equal settings share one client: its connections, its routes and its heartbeats.
"""
# ruff: noqa: E501, RUF009 (a table: one line per setting, however long)

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypedDict, TypeVar, Unpack, cast

from pyromq.cluster.connection_url import (
    ADDRESS_VARIABLE,
    URL_VARIABLE,
    ConnectionUrl,
    credentials_in,
    from_environment,
    keys_from_environment,
    tls_from_environment,
)
from pyromq.cluster.local_address import local_address
from pyromq.cluster.name_servers import name_server_addresses
from pyromq.config.kinds import above, between
from pyromq.config.nearest import NearestName
from pyromq.config.options import Options, setting
from pyromq.errors import ConfigError, ConnectFailed
from pyromq.protocol.frame import HeaderForm
from pyromq.remoting.addresses import parse_address
from pyromq.remoting.tls import TlsOptions
from pyromq.security.signature import Credentials

__all__ = ["ClientOptions", "ClientSettings", "Credentials", "TlsOptions"]

S = TypeVar("S", bound=Options)

_DEFAULT_INSTANCE = "DEFAULT"
_INSTANCE_ENDPOINT = re.compile(r"(?:\w+://|)(MQ_INST_\w+_\w+)\..*")


class ClientOptions(TypedDict, total=False):
    """Made from ClientSettings by `make docs`, for editors and type checkers."""

    namesrv_url: str | None
    client_ip: str | None
    instance_name: str
    unit_name: str | None
    unit_mode: bool
    namespace: str | None
    namespace_v2: str | None
    tls: TlsOptions | None
    credentials: Credentials | None
    key_file: Path | None
    vip_channel: bool
    form: HeaderForm
    call_timeout_s: float
    connect_timeout_s: float
    start_timeout_s: float
    route_interval_s: float
    heartbeat_interval_s: float


# fmt: off
@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSettings(Options):
    namesrv: tuple[str, ...] = setting((), "Addresses of the name servers, as a list or separated by `;`, or a URL like `rocketmq://user:secret@host:9876,host2:9876/namespace?tls=true`. None uses the variable `PYROMQ_URL`, or `NAMESRV_ADDR`.")
    namesrv_url: str | None = setting(None, "URL that returns the addresses of the name servers. It is queried every two minutes if `namesrv` is empty.")
    client_ip: str | None = setting(None, "First part of the client's id. None uses the address of this machine.")
    instance_name: str = setting(_DEFAULT_INSTANCE, "Second part of the client's id. The default is replaced by a name unique to this process.")
    unit_name: str | None = setting(None, "Third part of the client's id, if any.")
    unit_mode: bool = setting(False, "Topics created by sending belong to a unit.")
    namespace: str | None = setting(None, "Prefix of every topic and group.")
    namespace_v2: str | None = setting(None, "Namespace sent with every request, for brokers that separate namespaces themselves.")
    tls: TlsOptions | None = setting(None, "TLS options for all connections, for example `TlsOptions(trust_path=…)`. None uses the certificates in the file that `PYROMQ_TLS_TRUST` names, or plain TCP.")
    credentials: Credentials | None = setting(None, "Credentials that sign every request: `Credentials(access_key, secret_key)`.", secret=True)
    key_file: Path | None = setting(None, "File with the credentials: `AccessKey=` and `SecretKey=`, one on a line. Without both options, `PYROMQ_ACCESS_KEY` with `PYROMQ_SECRET_KEY`, or `PYROMQ_KEY_FILE`.")
    vip_channel: bool = setting(False, "Send requests to the second port of brokers, two below the first.")
    form: HeaderForm = setting(HeaderForm.JSON, "Encoding of request headers.")
    call_timeout_s: float = setting(3.0, "Default timeout of a request.", check=above(0))
    connect_timeout_s: float = setting(3.0, "Timeout for opening a connection.", check=above(0))
    start_timeout_s: float = setting(60.0, "How long a starting consumer waits for a name server that cannot be reached.", check=between(0, 10**9))
    route_interval_s: float = setting(30.0, "How often the client asks for routes, unless the name server announces changes.", check=above(0))
    heartbeat_interval_s: float = setting(30.0, "How often the client sends heartbeats to brokers.", check=above(0))

    # fmt: on
    def verify_together(self) -> None:
        if not self.namesrv and not self.namesrv_url:
            raise ConfigError(
                "namesrv",
                "",
                f'the address of a name server, say "127.0.0.1:9876", here or in {URL_VARIABLE} or {ADDRESS_VARIABLE}',
            )
        for address in self.namesrv:
            try:
                parse_address(address)
            except ConnectFailed as problem:
                raise ConfigError("namesrv", address, "host:port") from problem

    @classmethod
    def of(
        cls, namesrv: str | Iterable[str] | None = None, **options: Unpack[ClientOptions]
    ) -> "ClientSettings":
        """`namesrv`: addresses in a list or separated by semicolons, or a URL; see `connection_url`."""
        if namesrv is None and options.get("namesrv_url"):
            namesrv = ()
        if namesrv is None or isinstance(namesrv, str):
            url = from_environment(os.environ) if namesrv is None else ConnectionUrl.parse(namesrv)
            namesrv = url.namesrv
            options["namespace"] = options.get("namespace") or url.namespace
            options["credentials"] = options.get("credentials") or url.credentials
            options["tls"] = options.get("tls") or url.tls
        options["tls"] = options.get("tls") or tls_from_environment(os.environ)
        if options.get("credentials") is None:
            path = options.get("key_file")
            keys = credentials_in(Path(path)) if path is not None else keys_from_environment(os.environ)
            options["credentials"] = keys
        given = [namesrv] if isinstance(namesrv, str) else list(namesrv)
        if options.get("namespace") is None:
            endpoint = next(filter(None, map(_INSTANCE_ENDPOINT.fullmatch, given)), None)
            if endpoint is not None:
                options["namespace"] = endpoint[1]
        _check_names(options, ClientOptions.__optional_keys__)
        _check_no_page(given)
        return cls(namesrv=name_server_addresses(";".join(given)), **options)

    @property
    def is_default_instance(self) -> bool:
        return self.instance_name == _DEFAULT_INSTANCE

    def client_id(self, own_instance: str | None = None) -> str:
        """`own_instance` stands in for the default instance name."""
        instance = own_instance if own_instance and self.is_default_instance else self.instance_name
        parts = [self.client_ip or local_address(), instance, *([self.unit_name] if self.unit_name else [])]
        return "@".join(parts)


def _check_names(options: Iterable[str], known: Iterable[str]) -> None:
    known = frozenset(known)
    for name in options:
        if name not in known:
            hint = NearestName(known).hint(name, f"there are {', '.join(sorted(known))}")
            raise TypeError(f"unknown option {name!r}: {hint}")


def _check_no_page(given: Iterable[str]) -> None:
    """java: `http://` before an address is ignored; but a page that lists the addresses is another option."""
    for address in given:
        if "/" in address.partition("://")[2]:
            raise ConfigError("namesrv", address, "host:port; the URL of a list of them is `namesrv_url`")


def split_options(options: Mapping[str, object], own: type[S]) -> tuple[S, ClientOptions]:
    """The settings of a producer or consumer, and the options for the client around it."""
    names = {each.name for each in own.all_settings()}
    chosen = {name: value for name, value in options.items() if name in names}
    rest = {name: value for name, value in options.items() if name not in names}
    _check_names(rest, names | ClientOptions.__optional_keys__)
    return own(**cast(dict[str, Any], chosen)), cast(ClientOptions, rest)
