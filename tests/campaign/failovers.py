"""Fail-overs, as many as there is time for: the master is killed as soon as every broker is in sync.

The killed broker comes back at once or a little later; the seed says when. Or the master hangs until
another one has taken its place, or is restarted as by an operator.
"""

import asyncio
import random
from collections.abc import Sequence

from tests.campaign.clusters import Cluster
from tests.campaign.history import Fault
from tests.campaign.load import Load
from tests.campaign.plans import MASTER

KINDS_OF_FAILOVERS = ("kill", "hang", "restart")
_MOST_S = 0.5


async def fail_over(
    cluster: Cluster, load: Load, times: int, seed: int, kinds: Sequence[str] = ("kill",)
) -> None:
    chance = random.Random(seed)
    for _ in range(times):
        await cluster.wait_in_sync()
        await asyncio.sleep(chance.uniform(0.0, _MOST_S))
        master = cluster.parties[await cluster.wait_in_sync()]
        kind, began = chance.choice(kinds), load.now
        if kind == "kill":
            await master.kill()
        elif kind == "hang":
            master.hang()
        stopping = asyncio.create_task(master.stop()) if kind == "restart" else None
        await load.wait_acknowledged(2)  # One may have been on its way.
        load.history.faults.append(Fault(f"{kind} {MASTER}", began, load.now))
        if stopping is not None:
            await stopping
        await asyncio.sleep(chance.choice((0.0, chance.uniform(0.0, _MOST_S))))
        if kind == "hang":
            master.resume()
        else:
            await master.start()
    await cluster.wait_in_sync()
