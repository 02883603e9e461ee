"""Hosts and the processes on them.

A kill needs no cooperation: from one step to the next nothing of the process runs any more. Its callbacks are
kept in a graveyard, because a coroutine that is collected would run its `finally` blocks. A power loss also
takes what its disk did not have yet, and no peer hears of it.
"""

import asyncio
import contextvars
import random
import weakref
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

from tests.simulation.loop import NumberedTask, SimulatedLoop, Step, current_process

from pyromq import chance
from pyromq.filesystem import Files

if TYPE_CHECKING:
    from tests.simulation.disk import SimulatedDisk

T = TypeVar("T")

EPOCH_MS = 1_700_000_000_000
"""The wall clock at the virtual second 0."""


class HostClock:
    """The clocks of one machine; the wall clock may be wrong."""

    def __init__(self, loop: SimulatedLoop) -> None:
        self.monotonic = self.since_boot = loop.time
        self.ahead_ms = 0
        self._suspended_s = 0.0

    def now_ms(self) -> int:
        return EPOCH_MS + self.ahead_ms + int(self.since_boot() * 1000)

    def suspended(self, seconds: float) -> None:
        """The machine slept for so long: one of its clocks stood still."""
        self._suspended_s += seconds
        since_boot, suspended_s = self.since_boot, self._suspended_s
        self.monotonic = lambda: since_boot() - suspended_s


class Host:
    def __init__(self, loop: SimulatedLoop, name: str, address: str, seed: object) -> None:
        self.loop = loop
        self.name = name
        self.address = address
        self.clock = HostClock(loop)
        self.disk: SimulatedDisk | None = None
        self.is_up = True
        self.processes: list[Process] = []
        self._seed = seed
        self._started = 0

    def __repr__(self) -> str:
        return f"<Host {self.name} {self.address}{'' if self.is_up else ' without power'}>"

    @property
    def files(self) -> Files:
        """For a server on this host."""
        assert self.disk is not None
        return self.disk.files

    def start(self, name: str) -> "Process":
        """A new process without anything in it yet; a host without power gets it back."""
        if not self.is_up:
            self.is_up = True
            self.loop.network.host_is_back(self)
        if self.disk is not None:
            self.disk.restarted()
        self._started += 1
        own = random.Random(f"{self._seed}/{self.name}/{self._started}")
        process = Process(self, name, own)
        self.processes.append(process)
        return process

    def lose_power(self) -> None:
        self.is_up = False
        for process in list(self.processes):
            process.end()
        self.loop.network.host_is_gone(self)
        if self.disk is not None:
            self.disk.lose_power()


class Process:
    """Runs tasks; `kill`, `pause` and `go_on` are what the system can do to it."""

    def __init__(self, host: Host, name: str, chance: random.Random) -> None:
        self.host = host
        self.name = name
        self.id = host.loop.next_process_id()
        """No other process of the simulation has it."""
        self.chance = chance
        self.is_running = True
        self.is_dead = False
        self.pauses = 0
        """How often it was paused."""
        self._pauses = 0
        self._held: list[Step] = []
        self._graveyard: list[object] = []
        self._tasks: list[weakref.ref[NumberedTask]] = []
        self._room_for_tasks = 64
        self._context = contextvars.copy_context()
        self._context.run(current_process.set, self)

    def __repr__(self) -> str:
        state = "dead" if self.is_dead else "running" if self.is_running else "paused"
        return f"<Process {self.name} on {self.host.name} {state}>"

    @property
    def context(self) -> contextvars.Context:
        """For callbacks that belong to it."""
        return self._context.copy()

    def run(self, work: Coroutine[Any, Any, T], name: str = "main") -> "asyncio.Task[T]":
        return self.host.loop.create_task(work, name=name, context=self.context)

    def began(self, task: NumberedTask) -> None:
        """A task of its own; those that are gone are dropped when there are many."""
        self._tasks.append(weakref.ref(task))
        if len(self._tasks) > self._room_for_tasks:
            self._tasks = [each for each in self._tasks if each() is not None]
            self._room_for_tasks = 2 * len(self._tasks) + 64

    def keep(self, step: Step) -> None:
        """A callback came while it was paused, or dead."""
        (self._graveyard if self.is_dead else self._held).append(step)

    # What the system does

    def kill(self) -> None:
        """As SIGKILL: the system closes its connections."""
        if not self.is_dead:
            self.end()
            self.host.loop.network.process_is_gone(self)

    def end(self) -> None:
        """Nothing of it runs from now on."""
        self.is_dead = True
        self.is_running = False
        self.host.processes.remove(self)
        self._graveyard += self._held
        self._graveyard += [task for each in self._tasks if (task := each()) is not None]
        self._held, self._tasks = [], []

    def pause(self) -> None:
        """As SIGSTOP, or a machine that is suspended."""
        self.pauses += 1
        self._pauses += 1
        self.is_running = False

    def go_on(self) -> None:
        self._pauses -= 1
        if not self._pauses and not self.is_dead:
            self.is_running = True
            held, self._held = self._held, []
            self.host.loop.give_back(held)

    def stand_still(self, seconds: float) -> None:
        """It waits for something, such as its disk, and does nothing else meanwhile."""
        self.pause()
        self.host.loop.call_later(seconds, self.go_on, context=contextvars.Context())


class ChanceOfProcesses(random.Random):
    """Every process draws from its own numbers, so that one more draw in one of them changes no other."""

    def __init__(self, loop: SimulatedLoop, seed: object) -> None:
        super().__init__(f"{seed}/outside")
        self._loop = loop

    def random(self) -> float:
        process = self._loop.process
        return process.chance.random() if process is not None else super().random()

    def getrandbits(self, k: int, /) -> int:
        process = self._loop.process
        return process.chance.getrandbits(k) if process is not None else super().getrandbits(k)


def install_chance(loop: SimulatedLoop, seed: object) -> None:
    def process_id() -> int:
        return loop.process.id if loop.process is not None else 1

    chance.set_chance(ChanceOfProcesses(loop, seed), process_id)
