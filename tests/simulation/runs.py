"""One run of a plan: build the cluster, break it, let it heal, and judge.

A run needs a fresh process: it seeds chance, replaces the event loop and leaves threads of nothing behind. So
`run_forked` runs it in a fork of this process, which has imported everything already.
"""

import asyncio
import gc
import logging
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import msgspec
from tests.simulation.cluster import SimulatedCluster
from tests.simulation.contents import Contents
from tests.simulation.disk import PowerLost
from tests.simulation.faults import Faults
from tests.simulation.invariants import Always, UnexplainedErrors, at_the_end
from tests.simulation.loads.batched import BatchedLoad
from tests.simulation.loads.compacted import CompactedLoad
from tests.simulation.loads.drivers import DriversLoad
from tests.simulation.loads.dropped import DroppedLoad
from tests.simulation.loads.failing import FailingLoad
from tests.simulation.loads.fronted import FrontedLoad
from tests.simulation.loads.held import DelayedLoad, TimedLoad
from tests.simulation.loads.leaving import LeavingLoad
from tests.simulation.loads.light import LightLoad
from tests.simulation.loads.lingering import LingeringLoad
from tests.simulation.loads.load import SEND_TIMEOUT_S, RunningLoad
from tests.simulation.loads.locked import LockedLoad
from tests.simulation.loads.ordered import OrderedLoad
from tests.simulation.loads.plain import PlainLoad
from tests.simulation.loads.popped import PoppedLoad
from tests.simulation.loads.pulled import PulledLoad
from tests.simulation.loads.purged import PurgedLoad
from tests.simulation.loads.queried import QueriedLoad
from tests.simulation.loads.received import ReceivedLoad
from tests.simulation.loads.repeated import RepeatedLoad
from tests.simulation.loads.replies import RepliesLoad
from tests.simulation.loads.resets import ResetsLoad
from tests.simulation.loads.sourced import SourcedLoad
from tests.simulation.loads.streamed import StreamedLoad
from tests.simulation.loads.tables import TablesLoad
from tests.simulation.loads.tiered import TieredLoad
from tests.simulation.loads.transactional import TransactionalLoad
from tests.simulation.loop import Livelock, NothingLeft, SimulatedLoop
from tests.simulation.network import Network
from tests.simulation.plans import LoadKind, Plan
from tests.simulation.processes import install_chance
from tests.simulation.real_clock import forbid_real_clock
from tests.simulation.recording import Outcome, Recorder, Totals, Violation
from tests.simulation.tier_rules import TierRules

from pyromq import Message, PyroError, aio
from pyromq.compiled import twin
from pyromq.version import version

_LOADS: dict[LoadKind, type[RunningLoad]] = {
    "plain": PlainLoad,
    "batched": BatchedLoad,
    "ordered": OrderedLoad,
    "delayed": DelayedLoad,
    "timed": TimedLoad,
    "transactional": TransactionalLoad,
    "popped": PoppedLoad,
    "replies": RepliesLoad,
    "tables": TablesLoad,
    "streamed": StreamedLoad,
    "failing": FailingLoad,
    "lingering": LingeringLoad,
    "received": ReceivedLoad,
    "drivers": DriversLoad,
    "locked": LockedLoad,
    "pulled": PulledLoad,
    "resets": ResetsLoad,
    "leaving": LeavingLoad,
    "fronted": FrontedLoad,
    "dropped": DroppedLoad,
    "sourced": SourcedLoad,
    "repeated": RepeatedLoad,
    "queried": QueriedLoad,
    "light": LightLoad,
    "purged": PurgedLoad,
    "tiered": TieredLoad,
    "compacted": CompactedLoad,
}

_native_time = twin("protocol.unique_keys")
"""Compiled code that nobody gives a clock takes the time from there."""

version()
"""Every broker asks for it. It is read from files, and kept: here, so that not every run reads them again."""

NO_OUTCOME = "no outcome"
_START_S = 60.0
_HEAL_S = 120.0
"""After the last fault, all brokers must be in sync within this time."""
_DELIVERY_S = 90.0
_QUIET_S = 10.0
"""Within this time there is a moment at which all logs end at the same place."""
_NEW_CLIENT_S = 10.0
_AFTER_NAMES_S = 45.0
"""The same if the name server was away: brokers register with it every 30 seconds."""
_MAX_STEPS = 1_500_000
_MAX_CPU_S = 120


class Run:
    def __init__(self, plan: Plan, root: Path) -> None:
        self.plan = plan
        self.loop = SimulatedLoop(Random(f"{plan.seed}/loop"), _MAX_STEPS)
        install_chance(self.loop, plan.seed)
        if _native_time is not None:
            _native_time.set_monotonic(self.loop.time)
        self._network = Network(self.loop, Random(f"{plan.seed}/network"))
        self.recorder = Recorder(self.loop.time)
        forbid_real_clock(self.recorder.violation)
        self.loop.set_exception_handler(self._task_failed)
        logging.getLogger().addHandler(UnexplainedErrors(plan, self.recorder))
        self._root = root

    def outcome(self) -> Outcome:
        began_s = time.process_time()
        asyncio.set_event_loop(self.loop)
        try:
            self.loop.run_until_complete(self.loop.create_task(self._main()))
        except (Livelock, NothingLeft) as problem:
            self.recorder.violation(type(problem).__name__.lower(), str(problem))
        recorder, totals = self.recorder, self.recorder.totals
        totals.virtual_s, totals.steps = recorder.now_s, self.loop.steps
        totals.cpu_s = time.process_time() - began_s
        return Outcome(
            recorder.violations, self.loop.trace.crc, totals, recorder.events, recorder.acknowledgements
        )

    def _task_failed(self, _: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        if isinstance(context.get("exception"), PowerLost):
            return
        process = self.loop.process
        text = f"{context['message']}: {context.get('exception')!r}"
        self.recorder.violation("a task failed", f"{process.name if process else 'the simulation'}: {text}")

    async def _main(self) -> None:
        self.cluster = cluster = SimulatedCluster(self.plan, self.loop, self._network, self._root)
        cluster.start_all()
        if not await cluster.whole(_START_S):
            self.recorder.violation("not whole", f"{cluster.state()} at the beginning")
            return
        loads = [_LOADS[load.kind](cluster, self.recorder, load) for load in self.plan.loads]
        for load in loads:
            load.start()
        always = Always(cluster, self.recorder, loads)
        watching = asyncio.create_task(always.run())
        # What else is wrong with a group that never gets whole again follows from that: it is not judged.
        if not await Faults(cluster, self.recorder).run() or not await self._heal():
            return
        healed_s = self.recorder.now_s
        await asyncio.sleep(self.plan.calm_s)

        def silent() -> list[str]:
            return [f"{each.load.kind} {name}" for each in loads for name in each.silent_since(healed_s)]

        if not await cluster.until(lambda: not silent(), _AFTER_NAMES_S):
            self.recorder.violation("a client cannot send", f"since {healed_s:.1f} s: {silent()}")
        for load in loads:
            await load.finish_sending()
        await cluster.until(lambda: all(load.is_delivered for load in loads), _DELIVERY_S)
        await self._scrub_all()
        if self.plan.restarts_at_end and not await self._restart_all():
            return
        await asyncio.sleep(1.0)
        await cluster.until(lambda: len({each.store.log.end for each in cluster.running()}) == 1, _QUIET_S)
        if always.tier is not None:
            await always.tier.settle()
        if watching.done():
            watching.result()
        watching.cancel()
        self._judge(loads, always.tier)

    async def _heal(self) -> bool:
        """Whether all brokers are in sync in time."""
        self.recorder.event("healed", "everything")
        if not await self.cluster.whole(_HEAL_S):
            self.recorder.violation("not whole", f"{self.cluster.state()} after {_HEAL_S} s")
            return False
        names_were_away = any(fault.kind in ("names", "all power") for fault in self.plan.faults)
        process = self.cluster.client("new client")
        sending = process.run(self._send_one(process.host.address))
        within_s = _AFTER_NAMES_S if names_were_away else _NEW_CLIENT_S
        if not await self.cluster.until(sending.done, within_s):
            self.recorder.violation("a new client cannot send", self.cluster.state())
        return True

    async def _send_one(self, address: str) -> None:
        """Return when a message of a client that knows nothing yet is acknowledged."""
        async with aio.Producer(
            "new", self.cluster.name_server_address, client_ip=address, instance_name="new"
        ) as producer:
            while True:
                with suppress(PyroError):
                    result = await producer.send(Message("NewTopic", b"new"), timeout_s=SEND_TIMEOUT_S)
                    if result.is_ok:
                        return
                await asyncio.sleep(0.5)

    async def _scrub_all(self) -> None:
        """What was flipped at rest is found and repaired when the whole log is read."""
        if not any(fault.kind == "damage" for fault in self.plan.faults):
            return
        repairs = [each.replication.repair for each in self.cluster.running()]
        for server in self.cluster.brokers:
            broker = self.cluster.broker(server)
            if broker is not None and server.process is not None:
                server.process.run(broker.replication.repair.scrub(), "scrub")
        if not await self.cluster.until(
            lambda: all(each.scrubs and not each.damage for each in repairs), _HEAL_S
        ):
            self.recorder.violation("damage was not repaired", "; ".join(each.summary for each in repairs))

    async def _restart_all(self) -> bool:
        for server in self.cluster.brokers:
            server.kill()
            await asyncio.sleep(1.0)
            server.start()
            if not await self.cluster.whole(_HEAL_S):
                self.recorder.violation("not whole", f"{self.cluster.state()} after the last restart")
                return False
        return True

    def _judge(self, loads: list[RunningLoad], tier: TierRules | None) -> None:
        cluster = self.cluster
        found = list(tier.judge()) if tier is not None else []
        older = tier.logs if tier is not None else []
        contents = [
            Contents(server.host.name, broker, older)
            for server in cluster.brokers
            if (broker := cluster.broker(server)) is not None
        ]
        found += at_the_end(cluster, contents)
        for load in loads:
            found += (
                load.judge_what_is_left(contents) if self.plan.acknowledges_alone else load.judge(contents)
            )
        for invariant, text in found:
            self.recorder.violation(invariant, text)


def run_plan(plan: Plan) -> Outcome:
    """In a fresh process only: it changes the directory, the event loop and chance."""
    logging.disable(logging.WARNING)
    gc.disable()
    directory = tempfile.mkdtemp(prefix="simulation-", dir="/dev/shm" if Path("/dev/shm").is_dir() else None)
    os.chdir(directory)
    try:
        # The same path in every run: names are part of what is stored.
        return Run(plan, Path("run")).outcome()
    finally:
        os.chdir("/")
        shutil.rmtree(directory, ignore_errors=True)


def run_forked(plan: Plan, first: Callable[[], None] | None = None) -> Outcome:
    """The same in a fork, which ends without a clean-up. `first` is called there before the run."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        _run_in_child(plan, first, reading, writing)
    os.close(writing)
    with os.fdopen(reading, "rb") as stream:
        answer = stream.read()
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGPROF:
        text = f"after {_MAX_CPU_S} CPU seconds: perhaps one of its steps never ends"
        return Outcome([Violation("no end", text, 0.0)], 0, Totals(cpu_s=_MAX_CPU_S))
    if not answer:
        text = f"it ended with status {status}, and has printed why"
        return Outcome([Violation(NO_OUTCOME, text, 0.0)], 0, Totals())
    return msgspec.msgpack.decode(answer, type=Outcome)


def _run_in_child(plan: Plan, first: Callable[[], None] | None, reading: int, writing: int) -> None:
    try:
        os.close(reading)
        if first is not None:
            first()
        signal.setitimer(signal.ITIMER_PROF, _MAX_CPU_S)
        answer = msgspec.msgpack.encode(run_plan(plan))
        with os.fdopen(writing, "wb") as stream:
            stream.write(answer)
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        os._exit(0)
