"""What producers and consumers of one process have in common: where the cluster is, and who they are.

Equal settings share one client: its connections, its routes and its heartbeats.
"""

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypedDict, Unpack

from pyromq.cluster.local_address import local_address
from pyromq.cluster.name_servers import name_server_addresses
from pyromq.errors import ConfigError, ConnectFailed
from pyromq.protocol.frame import HeaderForm
from pyromq.remoting.addresses import parse_address
from pyromq.remoting.tls import TlsOptions
from pyromq.security.signature import Credentials

__all__ = ["ClientOptions", "ClientSettings", "Credentials", "TlsOptions"]

_ENVIRONMENT = "NAMESRV_ADDR"
_DEFAULT_INSTANCE = "DEFAULT"
_INSTANCE_ENDPOINT = re.compile(r"(?:\w+://|)(MQ_INST_\w+_\w+)\..*")


class ClientOptions(TypedDict, total=False):
    """The fields of ClientSettings, as producers and consumers take them; their meaning is told there."""

    namesrv_url: str | None
    client_ip: str | None
    instance_name: str
    unit_name: str | None
    unit_mode: bool
    namespace: str | None
    namespace_v2: str | None
    tls: TlsOptions | None
    credentials: Credentials | None
    vip_channel: bool
    form: HeaderForm
    call_timeout_s: float
    connect_timeout_s: float
    route_interval_s: float
    heartbeat_interval_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSettings:
    namesrv: tuple[str, ...] = ()
    """Addresses of the name servers."""

    namesrv_url: str | None = None
    """Where to ask for the addresses of the name servers, every two minutes, if none are given."""

    client_ip: str | None = None
    """The first part of the client's id; None takes the address of this machine."""

    instance_name: str = _DEFAULT_INSTANCE
    """The second part of the client's id; the default is replaced by something that only this process has."""

    unit_name: str | None = None
    """The third part of the client's id, if any."""

    unit_mode: bool = False
    """Whether topics created by sending belong to a unit."""

    namespace: str | None = None
    """Put in front of every topic and group."""

    namespace_v2: str | None = None
    """Told with every request instead, for brokers that keep namespaces apart themselves."""

    tls: TlsOptions | None = None
    """Speak TLS, and how."""

    credentials: Credentials | None = None
    """Sign every request."""

    vip_channel: bool = False
    """Send to the brokers' second port, two below the first."""

    form: HeaderForm = HeaderForm.JSON
    """How headers are written."""

    call_timeout_s: float = 3.0
    """For requests that nobody gave a time."""

    connect_timeout_s: float = 3.0
    """For opening a connection."""

    route_interval_s: float = 30.0
    """How often routes are asked for that no name server tells about by itself."""

    heartbeat_interval_s: float = 30.0
    """How often brokers are told that this client is alive."""

    def __post_init__(self) -> None:
        if not self.namesrv and not self.namesrv_url:
            raise ConfigError(
                "namesrv",
                "",
                f'the address of a name server, say "127.0.0.1:9876", here or in {_ENVIRONMENT}',
            )
        for address in self.namesrv:
            try:
                parse_address(address)
            except ConnectFailed as problem:
                raise ConfigError("namesrv", address, "host:port") from problem
        for name in ("call_timeout_s", "connect_timeout_s", "route_interval_s", "heartbeat_interval_s"):
            if getattr(self, name) <= 0:
                raise ConfigError(name, getattr(self, name), "a number above 0")

    @classmethod
    def of(
        cls, namesrv: str | Iterable[str] | None = None, **options: Unpack[ClientOptions]
    ) -> "ClientSettings":
        """`namesrv`: addresses in a list or separated by semicolons; None looks into the environment."""
        if namesrv is None:
            namesrv = () if options.get("namesrv_url") else os.environ.get(_ENVIRONMENT, "")
        given = [namesrv] if isinstance(namesrv, str) else list(namesrv)
        if options.get("namespace") is None:
            found = next(filter(None, map(_INSTANCE_ENDPOINT.fullmatch, given)), None)
            if found is not None:
                options["namespace"] = found[1]
        unknown = sorted(options.keys() - ClientOptions.__optional_keys__)
        if unknown:
            raise TypeError(
                f"unknown option {unknown[0]!r}: options are the fields of ClientSettings and of the settings"
                " of the producer or consumer"
            )
        return cls(namesrv=name_server_addresses(";".join(given)), **options)

    @property
    def is_default_instance(self) -> bool:
        return self.instance_name == _DEFAULT_INSTANCE

    def client_id(self, own_instance: str | None = None) -> str:
        """`own_instance` stands in for the default instance name."""
        instance = own_instance if own_instance and self.is_default_instance else self.instance_name
        parts = [self.client_ip or local_address(), instance, *([self.unit_name] if self.unit_name else [])]
        return "@".join(parts)
