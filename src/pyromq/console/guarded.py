"""A cluster that dials no link-local address because a name server says so: there are the secrets of
clouds.
"""

from typing import TypeVar

from pyromq.admin.cluster import Cluster
from pyromq.errors import ConnectFailed
from pyromq.protocol.catalogue import Answer, Request
from pyromq.remoting.addresses import parse_address
from pyromq.remoting.networks import Networks, plain_address

A = TypeVar("A", bound=Answer)


class GuardedCluster(Cluster):
    """The name servers are the settings' own, and may be anywhere."""

    dialled = Networks()
    """Link-local addresses that may be dialled all the same."""

    def copy(self) -> "GuardedCluster":
        other = GuardedCluster(
            self.name_servers,
            timeout_s=self.timeout_s,
            credentials=self._credentials,
            tls=self._tls,
            clock=self.clock,
        )
        other.dialled = self.dialled
        return other

    async def ask(self, address: str, request: Request[A], timeout_s: float | None = None) -> A:
        if address not in self.name_servers:
            self._check(address, parse_address(address)[0])
            assert self._dialer is not None, "the cluster is used outside of its `async with`"
            # A name may lead there, and so may a number: 2852039166 is 169.254.169.254.
            connection = await self._dialer.connection(address)
            try:
                self._check(address, connection.socket_host)
            except ConnectFailed:
                connection.close()
                raise
        return await super().ask(address, request, timeout_s)

    def _check(self, address: str, host: str) -> None:
        found = plain_address(host)
        if found is not None and found.is_link_local and found not in self.dialled:
            raise ConnectFailed(
                f"{address}: link-local addresses are not dialled; dialledNetworks lists exceptions"
            )
