"""The addresses under which others know a broker."""

from dataclasses import dataclass
from typing import Self

from pyromq.broker.settings import BrokerSettings
from pyromq.errors import ConfigError
from pyromq.protocol.record import Host
from pyromq.remoting.addresses import format_address
from pyromq.remoting.ports import Ports


@dataclass(frozen=True, slots=True)
class BrokerAddresses:
    advertised: str
    """For clients."""
    ha: str
    """For replicas."""
    store_host: Host
    """In messages, which contain an IP address even if clients use a name."""

    @classmethod
    def of(cls, settings: BrokerSettings, ports: Ports, port: int, ha_port: int) -> Self:
        """Raises ConfigError if the host name does not resolve."""
        return cls(
            format_address(settings.broker_ip1, port),
            format_address(settings.broker_ip2, ha_port),
            Host.of(_looked_up(ports, settings.broker_ip1), port),
        )


def _looked_up(ports: Ports, host: str) -> str:
    if ":" in host:  # an IPv6 address
        return host
    try:
        return ports.address_of(host)
    except OSError as problem:
        raise ConfigError(
            "brokerIP1", host, f"an IP address or a host name that resolves ({problem.strerror})"
        ) from None
