"""The brokers of this broker's group, as name servers know them."""

from collections.abc import Mapping
from typing import Final

from pyromq.broker.settings import BrokerSettings
from pyromq.errors import PyroError, TransportError
from pyromq.protocol.requests.brokers import GetBrokerMemberGroup
from pyromq.remoting.dialer import Dialer

_TIMEOUT_S: Final = 3.0


async def group_members(dialer: Dialer, settings: BrokerSettings) -> Mapping[int, str]:
    """The addresses of the group's brokers by id; raises PyroError if no name server answers."""
    problem: PyroError = TransportError("there are no name servers")
    request = GetBrokerMemberGroup(
        cluster_name=settings.broker_cluster_name, broker_name=settings.broker_name
    )
    for address in settings.name_servers:
        try:
            group = (await dialer.call(address, request, _TIMEOUT_S)).body.broker_member_group
        except PyroError as failure:
            problem = failure
        else:
            return group.broker_addrs if group is not None else {}
    raise problem
