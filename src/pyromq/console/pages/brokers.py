"""Brokers: rates, disk and store of each, what one of them reports, and where their settings differ."""

from pyromq.admin import brokers
from pyromq.admin.failures import NotFound
from pyromq.admin.tier import status_of
from pyromq.console.charts import chart, span_of
from pyromq.console.page import Data
from pyromq.console.secrets import masked
from pyromq.console.visit import Visit


async def show(visit: Visit) -> Data:
    return {"brokers": visit.snapshot.brokers}


async def one(visit: Visit) -> Data:
    """One broker: its part of the snapshot, and what it reports about itself now."""
    key = f"{visit.path['name']}/{visit.path['id']}"
    view = visit.snapshot.broker(key)
    if view is None:
        raise NotFound(f"there is no broker {key}; `mqadmin clusterList` shows the brokers")
    cluster = visit.cluster
    (figures,) = await cluster.known([brokers.runtime_info(cluster, view.address)])
    (settings,) = await cluster.known([brokers.config(cluster, view.address)])
    (replication,) = await cluster.known([brokers.ha_status(cluster, view.address)])
    span_s = span_of(visit)
    return {
        "broker": view,
        "key": key,
        "figures": None if figures is None else dict(sorted(figures.items())),
        "settings": None
        if settings is None
        else {name: masked(name, value) for name, value in sorted(settings.items())},
        "replication": replication,
        "tier": None if figures is None else status_of(figures),
        "chart": chart(visit, span_s, ("broker", key, "in"), ("broker", key, "out")),
        "disk_chart": chart(visit, span_s, ("broker", key, "disk")),
        "span": visit.text("span", "1h"),
    }


async def differences(visit: Visit) -> Data:
    """Settings that are not the same on all brokers."""
    members = [view for view in visit.snapshot.brokers if view.is_master or visit.flag("replicas")]
    told = await visit.cluster.known(brokers.config(visit.cluster, view.address) for view in members)
    tables = {view.key: table for view, table in zip(members, told, strict=True) if table is not None}
    keys = sorted({name for table in tables.values() for name in table})
    rows = [
        {
            "setting": name,
            "values": {broker: masked(name, table.get(name, "")) for broker, table in tables.items()},
        }
        for name in keys
        if len({table.get(name) for table in tables.values()}) > 1
    ]
    return {"rows": rows, "compared": list(tables), "untold": [v.key for v in members if v.key not in tables]}
