"""The figures of a broker in bulk, and the digests of a name server's routes: answered by servers of PyroMQ.

Apache's servers do not know these requests; for them the functions return None.
"""

from pyromq.admin.cluster import Cluster
from pyromq.errors import CallTimeout, Refused
from pyromq.protocol.codes import ResponseCode
from pyromq.protocol.requests.inspection import Figures, GetFigures
from pyromq.protocol.requests.routes import GetRouteDigests

_DIGESTS_TIMEOUT_S = 2.0


async def since(cluster: Cluster, address: str, version: str | None) -> tuple[str, Figures] | None:
    """The changes on a broker since a version, or everything, and the version to ask with next time."""
    answer = await cluster.ask_unless(
        ResponseCode.REQUEST_CODE_NOT_SUPPORTED, address, GetFigures(since=version)
    )
    return None if answer is None else (answer.version, answer.body)


async def route_digests(cluster: Cluster, name_server: str) -> dict[str, str] | None:
    """Topic → hash of its route on one name server."""
    try:
        return (await cluster.ask(name_server, GetRouteDigests(), _DIGESTS_TIMEOUT_S)).body.digests
    except Refused as refusal:
        if refusal.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
            raise
    except CallTimeout:
        pass  # java: name servers before 5.0 do not answer at all to codes that they do not know
    return None
