"""Clients by language and version: the producers of every broker, and the members of one group if one is
named.
"""

from collections import Counter

from pyromq.admin import connections
from pyromq.admin.failures import NotFound
from pyromq.console.page import Data
from pyromq.console.visit import Visit
from pyromq.protocol.codes import version_name


async def show(visit: Visit) -> Data:
    masters = [view for view in visit.snapshot.brokers if view.is_master]
    told = await visit.cluster.known(
        connections.all_producers(visit.cluster, view.address) for view in masters
    )
    rows: dict[tuple[str, str], Data] = {}
    for view, table in zip(masters, told, strict=True):
        for group, members in (table or {}).items():
            for each in members:
                row = rows.setdefault(
                    (group, each.client_id or ""),
                    {
                        "kind": "producer",
                        "group": group,
                        "client": each.client_id or "",
                        "address": each.remote_ip or "",
                        "language": str(each.language or ""),
                        "version": version_name(each.version),
                        "brokers": [],
                    },
                )
                row["brokers"].append(view.name)
    group, why = visit.text("group"), ""
    if group:
        try:
            for member in (await connections.consumers(visit.cluster, group)).connection_set:
                rows[group, member.client_id or ""] = {
                    "kind": "consumer",
                    "group": group,
                    "client": member.client_id or "",
                    "address": member.client_addr or "",
                    "language": str(member.language or ""),
                    "version": version_name(member.version),
                    "brokers": [],
                }
        except NotFound as nothing:
            why = str(nothing)
    q = visit.text("q").lower()
    found = [row for row in rows.values() if not q or any(q in str(value).lower() for value in row.values())]
    found.sort(key=lambda row: (row["group"], row["client"]))
    return {
        "clients": found,
        "by_kind": Counter(f"{row['language']} {row['version']}".strip() for row in found).most_common(),
        "q": visit.text("q"),
        "group": group,
        "why": why,
        "untold": [view.key for view, table in zip(masters, told, strict=True) if table is None],
        "known_groups": sorted(visit.snapshot.groups),
    }
