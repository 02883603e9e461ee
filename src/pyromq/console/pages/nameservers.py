"""Name servers: what each of them knows, and where they disagree."""

from pyromq.admin import name_servers
from pyromq.admin.cluster import members_of
from pyromq.console.page import Data
from pyromq.console.secrets import masked
from pyromq.console.visit import Visit
from pyromq.protocol.requests.routes import GetClusterInfo


async def show(visit: Visit) -> Data:
    (found,) = await visit.cluster.known([name_servers.config(visit.cluster)])
    settings = {
        address: {name: masked(name, value) for name, value in sorted(table.items())}
        for address, table in (found or {}).items()
    }
    return {"servers": visit.snapshot.name_servers, "settings": settings}


async def differences(visit: Visit) -> Data:
    """One column a server: brokers and topics that only some know, and addresses that differ."""
    cluster, servers = visit.cluster, visit.cluster.name_servers
    infos = await cluster.known(cluster.ask(each, GetClusterInfo()) for each in servers)
    topics = await cluster.known(name_servers.topics_at(cluster, each) for each in servers)
    brokers = {
        address: {
            f"{member.broker_name}/{member.broker_id}": member.address for member in members_of(info.body)
        }
        for address, info in zip(servers, infos, strict=True)
        if info is not None
    }
    known = {address: set(names) for address, names in zip(servers, topics, strict=True) if names is not None}
    names = sorted({name for table in brokers.values() for name in table})
    rows = [
        {
            "name": name,
            "kind": "broker",
            "values": {address: table.get(name) for address, table in brokers.items()},
        }
        for name in names
        if len({table.get(name) for table in brokers.values()}) > 1
    ]
    everywhere = set.intersection(*known.values()) if known else set()
    somewhere = set.union(*known.values()) if known else set()
    rows += [
        {
            "name": name,
            "kind": "topic",
            "values": {address: name in table for address, table in known.items()},
        }
        for name in sorted(somewhere - everywhere)
    ]
    untold = [address for address, info in zip(servers, infos, strict=True) if info is None]
    return {
        "rows": rows,
        "servers": list(servers),
        "compared": list(brokers),
        "untold": untold,
        "topics": len(somewhere),
    }
