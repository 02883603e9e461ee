"""A name server for tests next to a real environment: it queries unknown routes from the real one.

java: 5.x answers every request in this mode as if it were a route query, so that not even brokers can
register; only route queries are different here, as in 4.9.
"""

import logging
from collections.abc import Sequence

from pyromq.errors import PyroError, Refused
from pyromq.nameserver.route_lookup import RouteLookup, no_route_remark
from pyromq.protocol import json_body
from pyromq.protocol.catalogue import RawAnswer
from pyromq.protocol.codes import ResponseCode
from pyromq.protocol.requests.routes import GetRoute
from pyromq.remoting.dialer import Dialer
from pyromq.remoting.routing import Caller, handles

_log = logging.getLogger(__name__)

_TIMEOUT_S = 3.0


class ClusterTestLookup:
    """Takes the place of `RouteLookup`; `addresses` are the other environment's name servers."""

    def __init__(
        self, lookup: RouteLookup, dialer: Dialer, addresses: Sequence[str], environment: str
    ) -> None:
        self._lookup = lookup
        self._dialer = dialer
        self._addresses = addresses
        self._environment = environment

    def __repr__(self) -> str:
        return f"<ClusterTestLookup {self._environment} {';'.join(self._addresses)}>"

    @handles(GetRoute)
    async def get_route(self, request: GetRoute, caller: Caller) -> RawAnswer:
        # java: in this mode the answer always contains the order configuration
        body = self._lookup.find(request, caller, with_order=True)
        ext = self._lookup.watch(request.topic, caller) if request.watch else {}
        if body is None:
            body = await self._ask_elsewhere(request.topic)
        if body is None:
            return RawAnswer(
                ext=ext, code=ResponseCode.TOPIC_NOT_EXIST, remark=no_route_remark(request.topic)
            )
        return RawAnswer(body=body, ext=ext)

    async def _ask_elsewhere(self, topic: str) -> bytes | None:
        """java: encoded in the plain dialect for every client"""
        for address in self._addresses:
            try:
                answer = await self._dialer.call(address, GetRoute(topic=topic), _TIMEOUT_S)
            except Refused as refusal:
                if refusal.code == ResponseCode.TOPIC_NOT_EXIST:
                    return None
                _log.info("no route from elsewhere address=%s topic=%s: %s", address, topic, refusal)
            except PyroError as problem:
                _log.info("no route from elsewhere address=%s topic=%s: %s", address, topic, problem)
            else:
                return json_body.encode(answer.body)
        return None
