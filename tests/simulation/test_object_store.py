"""The simulated object store: what it promises, and how requests to it go wrong. A tier in it keeps all."""

import asyncio
from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from tests.simulation.blocking import BlockingCode
from tests.simulation.loop import SimulatedLoop
from tests.simulation.network import Network
from tests.simulation.object_store import PATIENCE_S, ObjectData, SimulatedObjects
from tests.simulation.plans import Fault, Load, Plan, draw_plan
from tests.simulation.processes import Host
from tests.simulation.runs import run_forked

from pyromq.errors import TransportError
from pyromq.tier.objects import ObjectExists, ObjectMissing, create_settled

_worlds: list["World"] = []
"""Kept until the end: coroutines of killed processes never go on, and must not be collected either."""


class World:
    """A store, and a process that asks it."""

    def __init__(self) -> None:
        _worlds.append(self)
        self.loop = SimulatedLoop(Random(1), max_steps=100_000)
        self.network = Network(self.loop, Random(2))
        self.near, self.far = (Host(self.loop, name, name, seed=1) for name in ("near", "far"))
        for host in (self.near, self.far):
            self.network.add_host(host)
        self.data = ObjectData(self.loop, Random(3))
        self.process = self.near.start("asker")
        self.objects = SimulatedObjects(self.data, self.far, self.network, self.process)

    async def ask(self, work: Callable[[], Any]) -> Any:
        return await self.process.run(BlockingCode().run(work))


def run(work: Callable[[World], Any]) -> None:
    world = World()
    try:
        world.loop.run_until_complete(work(world))
    finally:
        world.loop.close()


def test_a_name_is_created_once_and_read_in_ranges() -> None:
    async def work(world: World) -> None:
        objects = world.objects
        await world.ask(lambda: objects.create("a/1", b"first"))
        with pytest.raises(ObjectExists):
            await world.ask(lambda: objects.create("a/1", b"second"))
        assert await world.ask(lambda: objects.read("a/1", 1, 3)) == b"irs"
        assert [each.name for each in await world.ask(lambda: objects.list("a/"))] == ["a/1"]
        await world.ask(lambda: objects.remove("a/1"))
        await world.ask(lambda: objects.remove("a/1"))
        assert await world.ask(lambda: objects.info("a/1")) is None
        with pytest.raises(ObjectMissing):
            await world.ask(lambda: objects.read("a/1"))

    run(work)


@pytest.mark.parametrize(("trouble", "is_carried_out"), [("refused", False), ("unanswered", True)])
def test_a_failed_request_was_carried_out_or_not(trouble: str, is_carried_out: bool) -> None:
    async def work(world: World) -> None:
        setattr(world.data.trouble, trouble, 1.0)
        with pytest.raises(TransportError):
            await world.ask(lambda: world.objects.replace("a", b"x"))
        assert ("a" in world.data.objects) == is_carried_out

    run(work)


def test_a_late_request_is_carried_out_when_whoever_asked_is_gone() -> None:
    async def work(world: World) -> None:
        world.data.trouble.late = 1.0
        asking = world.process.run(BlockingCode().run(lambda: world.objects.replace("a", b"x")))
        await asyncio.sleep(0.5)
        world.process.kill()
        assert not world.data.objects
        await asyncio.sleep(2 * PATIENCE_S)
        assert "a" in world.data.objects
        assert not asking.done()

    run(work)


def test_a_cut_takes_the_question_or_the_answer() -> None:
    async def work(world: World) -> None:
        for source, target, is_carried_out in (("near", "far", False), ("far", "near", True)):
            world.network.block(source, target)
            with pytest.raises(TransportError):
                await world.ask(lambda: world.objects.create("a", b"x"))
            assert ("a" in world.data.objects) == is_carried_out
            world.network.unblock(source, target)
        # An answer that was lost is found out.
        await world.ask(lambda: create_settled(world.objects, "a", b"x"))

    run(work)


PLAN = Plan(
    seed=2,
    loads=(Load("tiered", 0.1),),
    faults=(
        Fault("store", 2.0, 4.0, detail="unanswered", strength=0.5),
        Fault("kill", 1.0, 2.0),
        Fault("store", 1.0, 3.0, detail="late", strength=0.5),
    ),
)


def test_a_tier_keeps_everything_although_its_store_fails_and_a_run_is_repeated() -> None:
    first = run_forked(PLAN)
    assert first.violations == []
    (tier,) = (each.text for each in first.events if each.kind == "tier")
    assert "begin at [0, 0, 0]" not in tier
    assert run_forked(PLAN).trace == first.trace


def test_a_fault_of_the_store_comes_only_with_a_tier() -> None:
    for seed in range(60):
        plan = draw_plan(seed)
        assert plan.has_tier or not any(fault.kind == "store" for fault in plan.faults)
    assert draw_plan(1, only=("store",)).has_tier
