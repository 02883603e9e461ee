"""The disk of a simulated machine: what was synced stays, the rest is a matter of chance once the power goes.

All processes of the machine, one after the other, see the same disk; each has its own `Files`. Syncs take
virtual time. The disk can be slow, full, read-only or broken, and the power may go in the middle of what a
process does.
"""

import errno
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from random import Random
from typing import Final, Protocol

from tests.support.faulty_files import Disk, FaultyFiles

from pyromq.clock import Clock
from pyromq.disk_steps import Steps, Wait
from pyromq.filesystem import Space

_SYNC_S: Final = (0.0002, 0.004)
_TAKES_SPACE: Final = ("create", "allocate", "write", "mkdir")
_ROOM: Final = Space(1_000_000_000, 900_000_000, False)
_NO_ROOM: Final = Space(1_000_000_000, 0, False)
_READ_ONLY: Final = Space(1_000_000_000, 900_000_000, True)


def every_place(content: bytes) -> list[int]:
    return list(range(len(content.rstrip(b"\0"))))


class PowerLost(BaseException):
    """Not an Exception: no program catches it."""


class Trace(Protocol):
    def add(self, at_s: float, what: int, size: int, data: bytes) -> None: ...


class Loop(Protocol):
    """What a disk needs of the simulation's loop."""

    @property
    def trace(self) -> Trace: ...

    @property
    def clock(self) -> Clock | None: ...

    @property
    def process(self) -> object | None: ...

    def time(self) -> float: ...

    def spend(self, seconds: float) -> None: ...

    def run_as_thread(self, work: Callable[[], object], name: object) -> None: ...


class SimulatedDisk:
    def __init__(self, root: Path, chance: Random, loop: Loop) -> None:
        root.mkdir(parents=True, exist_ok=True)
        self.root = root
        self.chance = chance
        self.loop = loop
        self.content = Disk(root)
        self.loses_directory_syncs = False
        """It says that names are safe when they are not."""
        self.faults: dict[str, int] = {}
        self.modified_ms: dict[Path, int] = {}
        self._factor = 1.0
        self._countdown = 0
        self._die: Callable[[], None] | None = None
        self.files = SimulatedFiles(self)

    def __repr__(self) -> str:
        return f"<SimulatedDisk {self.root.name} {' '.join(self.faults)}>"

    def restarted(self) -> None:
        """There is a new process, without the locks of the old one and its list of unsynced directories."""
        self.files.is_cut_off = True
        self.content.locked.clear()
        for path, file in self.content.live.items():
            if path.parent.name != "commitlog":
                file.lost.clear()  # whatever is behind the last checkpoint is written again
        self.files = SimulatedFiles(self)

    # What goes wrong

    def lose_power(self) -> None:
        self.files.is_cut_off = True
        self._die = None
        self.content.crash(self.chance)

    def die_inside(self, operations: int, die: Callable[[], None]) -> None:
        """After some more operations call `die`, by which the machine loses power. The process ends in the
        last one."""
        self._countdown, self._die = operations, die

    def wipe(self) -> None:
        """It is replaced by an empty one, while no process uses it."""
        shutil.rmtree(self.root)
        self.root.mkdir()
        self.content = Disk(self.root)

    def slow(self, factor: float) -> None:
        self._factor = factor

    def fail(self, operation: str, error: int = errno.EIO) -> None:
        """`sync` is all syncs; other operations have their own names; `full` and `read-only` are states."""
        self.faults[operation] = error

    def heal(self) -> None:
        self.faults.clear()
        self._factor = 1.0
        self.loses_directory_syncs = False
        self._die = None

    def flip_bit(self, places: Callable[[bytes], list[int]] = every_place) -> str:
        """Change one bit of what is safe of the log, at one of the places in a file; where, or nothing if
        there are none yet."""
        found = {
            path: where
            for path, file in sorted(self.content.live.items())
            if path.parent.name == "commitlog" and (where := places(bytes(file.content)))
        }
        if not found:
            return ""
        path = self.chance.choice(list(found))
        content = self.content.live[path].content
        position, bit = self.chance.choice(found[path]), 1 << self.chance.randrange(8)
        content[position] ^= bit
        descriptor = os.open(path, os.O_RDWR)
        try:
            (live,) = os.pread(descriptor, 1, position)
            os.pwrite(descriptor, bytes([live ^ bit]), position)
        finally:
            os.close(descriptor)
        return f"{path.relative_to(self.root)} at {position}"

    def flip_last_bit(self, name: str) -> Callable[[], None]:
        """Change a bit of the last byte of the file of this name; what is returned changes it back."""
        path = next(each for each in self.content.live if each.name == name)

        def flip() -> None:
            content = self.content.live[path].content
            content[-1] ^= 1
            path.write_bytes(content)

        flip()
        return flip

    # Asked by `SimulatedFiles`

    def space(self) -> Space:
        return _READ_ONLY if "read-only" in self.faults else _NO_ROOM if "full" in self.faults else _ROOM

    def before(self, operation: str, path: Path) -> None:
        """Raises OSError, or PowerLost."""
        if self.loop.process is None:
            return  # an invariant looks
        if self._die is not None:
            self._countdown -= 1
            if self._countdown <= 0:
                self._die()
                raise PowerLost
        is_sync = operation.endswith("sync")
        if is_sync:
            self.loop.spend(self._factor * self.chance.uniform(*_SYNC_S))
            name = os.fsencode(path)
            self.loop.trace.add(self.loop.time(), len(operation), len(name), name)
        if self.faults:
            error = self.faults.get("sync" if is_sync else operation)
            if "read-only" in self.faults:
                error = errno.EROFS
            elif "full" in self.faults and operation in _TAKES_SPACE:
                error = errno.ENOSPC
            if error is not None:
                if is_sync and error != errno.EROFS and path in self.content.live:
                    self.content.live[path].sync_failed(path)
                raise OSError(error, os.strerror(error))


class SimulatedFiles(FaultyFiles):
    """What one process sees of its machine's disk."""

    def __init__(self, own: SimulatedDisk) -> None:
        super().__init__(own.root, own.content)
        self._own = own
        self.is_cut_off = False
        """Whether its process is gone."""

    def worker(self, name: str) -> "LoopWorker":
        return LoopWorker(self._own)

    def give_way(self) -> None:
        """No other thread waits."""

    def space(self, path: Path) -> Space:
        return self._own.space()

    def modified_ms(self, path: Path) -> int:
        path.stat()
        return self._own.modified_ms.get(path, 0)

    def place(self, directory: Path) -> str:
        return str(directory)

    def copy_times(self, source: Path, target: Path) -> None:
        self._own.modified_ms[target] = self.modified_ms(source)

    def make_directories(self, path: Path) -> None:
        if not path.is_dir():
            self._before("mkdir", path)
            super().make_directories(path)

    def _before(self, operation: str, path: Path) -> None:
        if self.is_cut_off:
            raise PowerLost
        self._own.before(operation, path)
        if (clock := self._own.loop.clock) is not None:
            self._own.modified_ms[path] = clock.now_ms()

    def _sync_directory_now(self, directory: Path) -> None:
        self._before("sync", directory)
        if not self._own.loses_directory_syncs:
            self.disk.sync_directory(directory)


class LoopWorker:
    """Does work as a thread would, but step by step on the simulation's loop: anything may happen between two
    steps, and during one."""

    def __init__(self, disk: SimulatedDisk) -> None:
        self._disk = disk
        self._work: Callable[[], Steps[None]] | None = None
        self._steps: Steps[None] | None = None
        self._wait: Wait | None = None
        """What is to be done before the steps go on."""
        self._problem: Exception | None = None
        self._is_woken = self._is_planned = False

    def __repr__(self) -> str:
        return f"<LoopWorker {'idle' if self._steps is None else 'busy'}>"

    def start(self, work: Callable[[], Steps[None]]) -> None:
        self._work = work
        self._plan()

    def wake(self) -> None:
        self._is_woken = True
        self._plan()

    def stop(self) -> None:
        self._finish()
        self._work = None

    def alone(self) -> AbstractContextManager[object]:
        return self._alone()

    @contextmanager
    def _alone(self) -> Iterator[None]:
        self._finish()
        yield

    def _plan(self) -> None:
        if not self._is_planned and self._work is not None and (self._is_woken or self._steps is not None):
            self._is_planned = True
            self._disk.loop.run_as_thread(self._step, self)

    def _step(self) -> None:
        self._is_planned = False
        try:
            if self._wait is not None:
                self._do_wait()
            elif self._go_on():
                # The disk takes the data at the beginning of the time that it needs, or at its end.
                if self._disk.chance.random() < 0.5:
                    self._do_wait()
                else:
                    self._disk.loop.spend(self._disk.chance.uniform(0, _SYNC_S[1]))
        except PowerLost:
            return
        self._plan()

    def _go_on(self) -> bool:
        """Go on until there is something to wait for; False if there is nothing left to do."""
        if self._steps is None:
            if self._work is None or not self._is_woken:
                return False
            self._is_woken = False
            self._steps = self._work()
        problem, self._problem = self._problem, None
        try:
            self._wait = next(self._steps) if problem is None else self._steps.throw(problem)
        except StopIteration:
            self._steps = None
            return False
        except BaseException:
            self._steps = self._work = None
            raise
        return True

    def _do_wait(self) -> None:
        wait, self._wait = self._wait, None
        assert wait is not None
        try:
            wait()
        except Exception as problem:
            self._problem = problem

    def _finish(self) -> None:
        while self._steps is not None:
            if self._wait is not None:
                self._do_wait()
            self._go_on()
