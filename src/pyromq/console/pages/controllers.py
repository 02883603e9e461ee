"""Controllers: which one leads, and what it knows of the broker groups."""

from pyromq.console.page import Data
from pyromq.console.visit import Visit


async def show(visit: Visit) -> Data:
    return {"controllers": visit.snapshot.controllers}
