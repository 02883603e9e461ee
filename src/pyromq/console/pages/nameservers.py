"""Name servers: what each of them knows, and where they disagree."""

from pyromq.admin import name_servers, route_differences
from pyromq.console.page import Data
from pyromq.console.secrets import masked
from pyromq.console.visit import Visit


async def show(visit: Visit) -> Data:
    (found,) = await visit.cluster.known([name_servers.config(visit.cluster)])
    settings = {
        address: {name: masked(name, value) for name, value in sorted(table.items())}
        for address, table in (found or {}).items()
    }
    return {"servers": visit.snapshot.name_servers, "settings": settings}


async def differences(visit: Visit) -> Data:
    """One column a server: brokers, addresses, topics and queues that they know differently."""
    found = await route_differences.of_name_servers(visit.cluster)
    return {
        "rows": found.differences,
        "compared": found.servers,
        "untold": found.silent,
        "topics": found.topics,
        "not_asked": found.not_asked,
        "names_only": not found.has_compared_routes,
    }
