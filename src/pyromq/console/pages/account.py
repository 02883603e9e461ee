"""The person: their own rights and choices, and, for administrators, what everybody did."""

import asyncio

from pyromq.console.page import Data
from pyromq.console.visit import MAX_PAGE_SIZE, Visit


async def me(visit: Visit) -> Data:
    person = visit.person
    return {
        "name": person.name,
        "role": person.role.word,
        "reads_bodies": person.reads_bodies,
        "names": list(person.names),
    }


async def audit(visit: Visit) -> Data:
    entries = await asyncio.to_thread(visit.state.audit.newest_first, MAX_PAGE_SIZE * 4)
    q = visit.text("q").lower()
    wanted = [
        each
        for each in entries
        if not q or q in f"{each.who} {each.what} {each.cluster} {each.fields}".lower()
    ]
    return {
        "entries": wanted[: visit.page_size * visit.page_number],
        "q": visit.text("q"),
        "total": len(wanted),
    }
