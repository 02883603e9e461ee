"""One round: a cluster is started, loaded, broken as planned, healed, stopped, and what it did is checked."""

import asyncio
import time
from collections.abc import Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.campaign.checker import Verdict, check
from tests.campaign.clusters import KINDS, QUEUES, Cluster, running_cluster
from tests.campaign.faults import Faults
from tests.campaign.history import Fault, History
from tests.campaign.load import Load
from tests.campaign.plans import Planned, plan
from tests.support.broker_cluster import BROKER_NAME

HEAL_TIMEOUT_S = 90.0
"""When nothing is broken any more, a cluster has so long to take messages again and to deliver all."""


@dataclass(frozen=True, slots=True)
class Round:
    seed: int
    kind: str
    planned: list[Planned]
    history: History
    verdict: Verdict
    seconds: float

    @property
    def is_clean(self) -> bool:
        return not self.verdict.violations


async def run_round(
    seed: int, kind: str, directory: Path, *, seconds: float, faults: tuple[str, ...] = ()
) -> Round:
    """`faults` limits the kinds of faults. The directory keeps the logs of all parties."""
    began = time.monotonic()
    async with running_cluster(directory, KINDS[kind]) as cluster:
        planned = plan(seed, cluster.shape, seconds, faults)
        async with Load(cluster.namesrv, BROKER_NAME, QUEUES) as load:
            await _until(load.wait_acknowledged(), "the new cluster takes messages")
            await _break(cluster, load, planned)
            await _until(load.wait_acknowledged(), "the healed cluster takes messages")
            await load.finish(HEAL_TIMEOUT_S)
            await _until(cluster.wait_ended(), "all transactions are over")
        history = load.history
        await _until(cluster.wait_equal(), "all replicas have the whole log")
        await cluster.stop()
        history.logs, history.copies, history.broken = await asyncio.to_thread(cluster.stored)
    return Round(seed, kind, planned, history, check(history), time.monotonic() - began)


async def _until(wait: Coroutine[Any, Any, None], what: str) -> None:
    try:
        async with asyncio.timeout(HEAL_TIMEOUT_S):
            await wait
    except TimeoutError:
        raise AssertionError(f"within {HEAL_TIMEOUT_S:.0f} s it never came about that {what}") from None


async def _break(cluster: Cluster, load: Load, planned: list[Planned]) -> None:
    faults = Faults(cluster.parties, cluster.disks, cluster.network, cluster.find_master)
    start = load.now

    async def one(each: Planned) -> None:
        began = load.now
        await faults.inflict(each)
        load.history.faults.append(Fault(str(each), began, load.now))

    for at_s in sorted({each.at_s for each in planned}):
        together = [each for each in planned if each.at_s == at_s]
        await asyncio.sleep(max(0.0, start + at_s - load.now))
        await asyncio.gather(*map(one, together))
        # A restart takes longer than planned: the calm after it must not be shorter for that.
        start += max(0.0, load.now - start - max(each.at_s + each.for_s for each in together))
    await faults.heal()
