"""The list of groups, from the snapshot, and the list of those that have dead letters."""

from pyromq.console.listing import Key, listed
from pyromq.console.page import Data
from pyromq.console.visit import Visit
from pyromq.console.watch.values import GroupView


def keys_at(now_ms: int) -> dict[str, Key[GroupView]]:
    return {
        "name": lambda group: group.name,
        "state": lambda group: group.state,
        "lag": lambda group: group.lag,
        "age": lambda group: group.age_ms(now_ms),
        "members": lambda group: group.members,
        "out": lambda group: group.out_per_s,
        "dead": lambda group: group.dead_letters,
        "loss": lambda group: None if group.loss is None else group.loss.at_ms,
    }


async def show(visit: Visit) -> Data:
    with_system, state = visit.flag("system"), visit.text("state")
    every = [group for group in visit.snapshot.groups.values() if with_system or not group.is_system]
    wanted = [group for group in every if not state or group.state == state]
    page = listed(visit, wanted, keys_at(visit.now_ms), name=lambda group: group.name, sort="-lag")
    states = sorted({str(group.state) for group in every})
    return {"groups": page.rows, "list": page, "states": states, "state": state, "system": with_system}


async def dead_letters(visit: Visit) -> Data:
    having = [group for group in visit.snapshot.groups.values() if group.dead_letters]
    untold = sum(group.dead_letters is None for group in visit.snapshot.groups.values())
    page = listed(visit, having, keys_at(visit.now_ms), name=lambda group: group.name, sort="-dead")
    return {"groups": page.rows, "list": page, "untold": untold}
