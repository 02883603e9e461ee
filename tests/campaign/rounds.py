"""One round: a cluster is started, loaded, broken as planned, healed, stopped, and what it did is checked."""

import asyncio
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.campaign.checker import Verdict, check
from tests.campaign.clusters import APACHES, KINDS, QUEUES, Cluster, Kind, calm, running_cluster
from tests.campaign.failovers import fail_over
from tests.campaign.faults import Faults
from tests.campaign.history import Fault, History
from tests.campaign.load import Load
from tests.campaign.plans import Planned, plan
from tests.support.broker_cluster import BROKER_NAME

HEAL_TIMEOUT_S = 90.0
"""When nothing is broken any more, a cluster has so long to take messages again and to deliver all."""
FAIL_OVER_TIMEOUT_S = 60.0
"""So long a fail-over may take on average, with the return of the broker that was killed."""


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
    planned: list[Planned] = []

    async def breaking(cluster: Cluster, load: Load) -> None:
        planned.extend(plan(seed, cluster.shape, seconds, faults))
        await _break(cluster, load, planned)

    return await run_breaking(seed, kind, KINDS[kind], directory, planned, breaking, retries=0)


async def run_failovers(
    seed: int, kind: str, directory: Path, times: int, faults: tuple[str, ...] = ()
) -> Round:
    """The master is killed, or hangs, so many times. The producer has the settings that users have."""

    async def breaking(cluster: Cluster, load: Load) -> None:
        async with asyncio.timeout(times * FAIL_OVER_TIMEOUT_S):
            await fail_over(cluster, load, times, seed, faults or ("kill",))

    return await run_breaking(seed, kind, calm(KINDS[kind]), directory, [], breaking)


async def run_breaking(
    seed: int,
    name: str,
    kind: Kind,
    directory: Path,
    planned: list[Planned],
    breaking: Callable[[Cluster, Load], Coroutine[Any, Any, None]],
    **producer: Any,
) -> Round:
    began = time.monotonic()
    async with running_cluster(directory, kind) as cluster:
        async with Load(cluster.namesrv, BROKER_NAME, QUEUES, has_side=kind.has_side, **producer) as load:
            load.history.stores_once = APACHES not in kind.brokers
            await _until(load.wait_acknowledged(), "the new cluster takes messages")
            await breaking(cluster, load)
            await _until(load.wait_acknowledged(), "the healed cluster takes messages")
            await load.finish(HEAL_TIMEOUT_S)
            if kind.has_side:
                await _until(cluster.wait_ended(), "all transactions are over")
        history = load.history
        await _until(cluster.wait_equal(), "all replicas have the same log")
        await cluster.stop()
        history.logs, history.copies, history.broken = await asyncio.to_thread(cluster.stored)
    return Round(seed, name, planned, history, check(history), time.monotonic() - began)


async def _until(wait: Coroutine[Any, Any, None], what: str) -> None:
    try:
        async with asyncio.timeout(HEAL_TIMEOUT_S):
            await wait
    except TimeoutError:
        raise AssertionError(f"within {HEAL_TIMEOUT_S:.0f} s it never came about that {what}") from None


async def _break(cluster: Cluster, load: Load, planned: list[Planned]) -> None:
    faults = Faults(
        *(cluster.parties, cluster.disks, cluster.network),
        *(cluster.find_master, cluster.find_leader),
        lambda: _until(cluster.wait_whole(), "every broker is whole"),
    )
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
