"""The simulated disk: what was synced is always there, and nothing is there that was not written."""

import errno
from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.simulation.disk import LoopWorker, PowerLost, SimulatedDisk
from tests.support.chance import examples
from tests.support.faulty_files import PAGE_BYTES

from pyromq.config.durable_file import DurableFile
from pyromq.disk_steps import Steps
from pyromq.errors import StoreError

PAGES = 4


class NoTrace:
    def add(self, *_: object) -> None: ...


class Loop:
    """As much of a loop as a disk needs; `steps` are what it was asked to run."""

    clock = None
    process = object()
    trace = NoTrace()

    def __init__(self) -> None:
        self.spent_s = 0.0
        self.steps: list[Callable[[], object]] = []

    def time(self) -> float:
        return self.spent_s

    def spend(self, seconds: float) -> None:
        self.spent_s += seconds

    def run_as_thread(self, work: Callable[[], object], name: object) -> None:
        self.steps.append(work)


def disk_at(root: Path, seed: int = 0) -> tuple[SimulatedDisk, Loop]:
    loop = Loop()
    return SimulatedDisk(root, Random(seed), loop), loop


CHANGES = st.lists(
    st.one_of(
        st.tuples(st.just("page"), st.integers(0, 2), st.integers(0, PAGES - 1), st.integers(1, 255)),
        st.tuples(st.just("sync"), st.integers(0, 2)),
        st.tuples(st.just("save"), st.integers(0, 1), st.integers(1, 255)),
        st.tuples(st.just("kill")),
        st.tuples(st.just("power"), st.integers(0, 1 << 30)),
    ),
    max_size=30,
)


@settings(max_examples=examples(60))
@given(changes=CHANGES)
def test_what_was_synced_is_always_there(
    tmp_path_factory: pytest.TempPathFactory, changes: list[tuple[Any, ...]]
) -> None:
    root = tmp_path_factory.mktemp("disk") / "host"
    disk, _ = disk_at(root)
    paths = [root / f"log/{number}" for number in range(3)]
    for path in paths:
        disk.files.create(path, PAGES * PAGE_BYTES)
        disk.files.sync(path)
    disk.files.sync_all_directories()
    safe = {(path, page): {0} for path in paths for page in range(PAGES)}
    """What may be found in a page: what was safe, and what was written since."""
    now: dict[tuple[Path, int], set[int]] = {place: {0} for place in safe}
    saved: dict[int, int] = {}
    for kind, *values in changes:
        if kind == "page":
            place = paths[values[0]], values[1]
            with disk.files.map(place[0]).buffer as buffer:
                start = values[1] * PAGE_BYTES
                buffer[start : start + PAGE_BYTES] = bytes([values[2]]) * PAGE_BYTES
            now[place] = {values[2]}
            safe[place] |= now[place]
        elif kind == "sync":
            disk.files.sync(paths[values[0]])
            for page in range(PAGES):
                safe[paths[values[0]], page] = now[paths[values[0]], page]
        elif kind == "save":
            DurableFile(root / f"config/{values[0]}", disk.files).save(bytes([values[1]]) * 5000)
            saved[values[0]] = values[1]
        else:
            if kind == "power":
                disk.chance = Random(values[0])
                disk.lose_power()
            disk.restarted()
            for path in paths:
                content = disk.files.read(path)
                assert len(content) == PAGES * PAGE_BYTES
                for page in range(PAGES):
                    found = content[page * PAGE_BYTES : (page + 1) * PAGE_BYTES]
                    assert set(found) <= safe[path, page]
                    if kind == "power":  # the disk has what was found
                        now[path, page] = safe[path, page] = set(found)
            for number, value in saved.items():
                assert disk.files.read(root / f"config/{number}") == bytes([value]) * 5000


def test_a_power_loss_shows_the_old_the_new_and_mixtures(tmp_path: Path) -> None:
    seen = set()
    for seed in range(40):
        disk, _ = disk_at(tmp_path / str(seed), seed)
        path = disk.root / "file"
        disk.files.create(path, 4 * PAGE_BYTES)
        disk.files.sync(path)
        disk.files.sync_all_directories()
        mapped = disk.files.map(path)
        mapped.buffer[:] = b"n" * (4 * PAGE_BYTES)
        disk.lose_power()
        found = path.read_bytes()
        seen.add("new" if 0 not in found else "old" if not any(found) else "both")
        assert mapped.buffer[0] == ord("n"), "a dead process keeps its mapping"
    assert seen == {"old", "new", "both"}


def test_names_are_safe_with_their_directory_and_not_before(tmp_path: Path) -> None:
    outcomes = set()
    for seed in range(20):
        disk, _ = disk_at(tmp_path / str(seed), seed)
        disk.files.write(disk.root / "kept", b"k")
        disk.files.sync_all_directories()
        disk.files.write(disk.root / "new", b"n")
        disk.files.rename(disk.root / "kept", disk.root / "renamed")
        disk.lose_power()
        outcomes.add(tuple(sorted(path.name for path in disk.root.iterdir())))
    assert outcomes == {("kept",), ("kept", "new"), ("new", "renamed")}


def test_a_lost_directory_sync_is_noticed_only_after_a_power_loss(tmp_path: Path) -> None:
    disk, _ = disk_at(tmp_path)
    disk.loses_directory_syncs = True
    disk.chance = Random(2)
    disk.files.write(tmp_path / "file", b"x")
    disk.files.sync_all_directories()
    assert disk.files.read(tmp_path / "file") == b"x"
    disk.lose_power()
    assert not (tmp_path / "file").exists()


def test_a_new_process_has_neither_locks_nor_unsynced_names_of_the_old_one(tmp_path: Path) -> None:
    disk, _ = disk_at(tmp_path)
    old = disk.files
    old.lock(tmp_path / "lock")
    with pytest.raises(StoreError, match="in use"):
        old.lock(tmp_path / "lock")
    old.write(tmp_path / "file", b"x")
    disk.restarted()
    disk.files.lock(tmp_path / "lock")
    assert not disk.files._unsynced_directories
    with pytest.raises(PowerLost):
        old.write(tmp_path / "file", b"a dead process writes nothing")
    assert disk.files.read(tmp_path / "file") == b"x"


def test_power_may_go_between_a_write_and_its_sync(tmp_path: Path) -> None:
    found = set()
    for seed in range(30):
        disk, _ = disk_at(tmp_path / str(seed), seed)
        path = disk.root / "table"
        disk.files.write(path, b"old" * 3000)
        disk.files.sync_all_directories()
        disk.die_inside(2, disk.lose_power)
        with pytest.raises(PowerLost):
            disk.files.write(path, b"new" * 3000)
        content = path.read_bytes()
        found.add(content if content in (b"old" * 3000, b"new" * 3000) else b"torn")
    assert found == {b"old" * 3000, b"new" * 3000, b"torn"}


def test_syncs_take_time_and_more_on_a_slow_disk(tmp_path: Path) -> None:
    disk, loop = disk_at(tmp_path)
    disk.files.write(tmp_path / "file", b"x")
    quick = loop.spent_s
    disk.slow(1000)
    disk.files.sync(tmp_path / "file")
    assert 0 < quick < 0.005
    assert loop.spent_s > 0.2


def test_a_full_a_read_only_and_a_broken_disk_say_so_until_they_are_healed(tmp_path: Path) -> None:
    disk, _ = disk_at(tmp_path)
    disk.files.write(tmp_path / "file", b"x")
    for fault, expected in (("full", errno.ENOSPC), ("read-only", errno.EROFS), ("sync", errno.EIO)):
        disk.fail(fault)
        with pytest.raises(OSError) as refused:
            disk.files.write(tmp_path / "file", b"y")
        assert refused.value.errno == expected
        disk.heal()
        disk.files.write(tmp_path / "file", b"z")
    assert disk.space().free_bytes > 0


def test_a_flipped_bit_is_in_the_log_and_stays_after_a_power_loss(tmp_path: Path) -> None:
    disk, _ = disk_at(tmp_path)
    assert disk.flip_bit() == ""
    path = tmp_path / "commitlog/0"
    disk.files.create(path, 100)
    with disk.files.map(path).buffer as buffer:
        buffer[:50] = b"x" * 50
    disk.files.sync(path)
    disk.files.sync_all_directories()
    assert disk.flip_bit().startswith("commitlog/0 at ")
    disk.lose_power()
    content = path.read_bytes()
    assert sum((each ^ ord("x")).bit_count() for each in content[:50]) == 1
    assert content[50:] == bytes(50)


def working(disk: SimulatedDisk, done: list[str]) -> LoopWorker:
    def work() -> Steps[None]:
        for name in ("first", "second"):
            yield partial(done.append, name)
            done.append(f"after {name}")

    worker = LoopWorker(disk)
    worker.start(work)
    return worker


def test_a_worker_does_one_step_at_a_time_and_once_more_if_it_was_woken_meanwhile(tmp_path: Path) -> None:
    disk, loop = disk_at(tmp_path)
    done: list[str] = []
    worker = working(disk, done)
    assert not loop.steps
    worker.wake()
    assert done == []
    turns = 0
    while loop.steps:
        loop.steps.pop()()
        turns += 1
        if turns == 2:
            worker.wake()
    assert done == ["first", "after first", "second", "after second"] * 2
    assert turns > 5


def test_a_caller_that_wants_to_be_alone_has_the_rest_done_at_once(tmp_path: Path) -> None:
    disk, loop = disk_at(tmp_path)
    done: list[str] = []
    worker = working(disk, done)
    worker.wake()
    loop.steps.pop()()
    with worker.alone():
        assert done == ["first", "after first", "second", "after second"]
    while loop.steps:
        loop.steps.pop()()
    assert len(done) == 4
