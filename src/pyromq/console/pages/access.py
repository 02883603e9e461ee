"""Users and policies of the cluster's own access control, over all brokers; and which rule decides."""

import msgspec

from pyromq.admin import access, access_overview
from pyromq.console.page import Data
from pyromq.console.visit import Visit
from pyromq.protocol.needs import Action


async def show(visit: Visit) -> Data:
    found = await access_overview.of_cluster(visit.cluster)
    q = visit.text("q").lower()

    def rows(
        table: dict[access_overview.UserRow, list[str]] | dict[access_overview.PolicyRow, list[str]],
    ) -> list[Data]:
        shown = [
            msgspec.structs.asdict(row)
            | {"brokers": brokers, "is_everywhere": len(brokers) == len(found.told)}
            for row, brokers in sorted(table.items())
        ]
        return [row for row in shown if not q or any(q in str(value).lower() for value in row.values())]

    return {
        "users": rows(found.users),
        "policies": rows(found.policies),
        "told": found.told,
        "untold": found.untold,
        "q": visit.text("q"),
    }


async def check(visit: Visit) -> Data:
    """`pyromq acl check` for every broker; nothing is asked until the form is filled in."""
    form = {name: visit.text(name) for name in ("user", "action", "resource")}
    form["from"] = visit.text("from", "127.0.0.1")
    decisions = []
    if all(form.values()):
        need = access.need_in(form["action"], form["resource"])
        decisions = await access_overview.check(visit.cluster, form["user"], need, form["from"])
    return {"form": form, "decisions": decisions, "actions": list(Action)}
