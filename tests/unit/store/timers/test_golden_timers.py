"""The files that Apache's broker 5.3.3 wrote for 101 timed messages and two recalls, byte by byte.

`tests/interop/test_timers_interop.py` recorded them with KEEP_TIMERS=<directory>.
"""

import lzma
import shutil
from pathlib import Path

import pytest
from tests.support.places import GOLDEN

from pyromq.filesystem import Files
from pyromq.protocol import json_body
from pyromq.protocol.requests.upkeep import TimerMetricsTable
from pyromq.store.filenames import StorePaths
from pyromq.store.timers.timer_checkpoint import UNKNOWN, read_timer_checkpoint
from pyromq.store.timers.timer_files import TimerFiles
from pyromq.store.timers.timer_log import RECALL, TimerLog, TimerUnit

APACHES = GOLDEN / "timers" / "5.3.3"
FILE_BYTES = 4096
SLOTS = 2 * 7 * 86_400
MESSAGES, RECALLS = 101, 2


def units_of(directory: Path) -> list[TimerUnit]:
    log = TimerLog(Files(), directory, FILE_BYTES)
    log.load()
    found, position = [], 0
    while (unit := log.unit(position := log.following(position))) is not None:
        found.append(unit)
        position += log.unit_bytes
    log.close()
    return found


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    shutil.copytree(APACHES / "timerlog", tmp_path / "timerlog")
    (tmp_path / "timerwheel").write_bytes(lzma.decompress((APACHES / "timerwheel.xz").read_bytes()))
    (tmp_path / "config").mkdir()
    shutil.copy(APACHES / "timercheck", tmp_path / "config" / "timercheck")
    return tmp_path


def test_the_same_messages_make_the_same_bytes(tmp_path: Path, copied: Path) -> None:
    units = units_of(copied / "timerlog")
    assert len(units) == MESSAGES + RECALLS
    ours = StorePaths(tmp_path / "ours")
    files = TimerFiles(Files(), ours, 1000, FILE_BYTES, SLOTS)
    files.make(units[0].write_ms, 0)
    for unit in units:
        files.schedule(unit)
    files.close()
    for name in ("timerlog/00000000000000000000", "timerlog/00000000000000004096", "timerwheel"):
        assert (ours.root / name).read_bytes() == (copied / name).read_bytes(), name


def test_apaches_files_are_opened_as_they_are(copied: Path) -> None:
    units = units_of(copied / "timerlog")
    numbers = {unit.log_offset: number for number, unit in enumerate(units)}
    files = TimerFiles(Files(), StorePaths(copied), 1000, FILE_BYTES, SLOTS)
    files.recover(0, lambda unit: numbers.get(unit.log_offset))
    assert files.replayed_units == 0
    assert files.queue_offset == MESSAGES + RECALLS
    assert files.read_number * 1000 == files.checkpoint.read_ms
    assert files.checkpoint.delivered_from == UNKNOWN
    waiting = [unit for unit in units if unit.slot_ms >= files.checkpoint.read_ms]
    assert files.counts.total == sum(-1 if unit.kind & RECALL else 1 for unit in waiting)
    chained = [unit for slot in files.wheel.all() for _, unit in files.units(slot.number) if unit in waiting]
    assert sorted(chained) == sorted(waiting)
    files.close()


def test_apaches_checkpoint_and_counts_are_read() -> None:
    checkpoint = read_timer_checkpoint(Files(), APACHES / "timercheck")
    assert (checkpoint.queue_offset, checkpoint.master_queue_offset) == (103, 103)
    assert checkpoint.log_position == 5396
    counts = json_body.decode((APACHES / "timermetrics").read_bytes(), TimerMetricsTable)
    assert counts.timing_count["Later"].count == 98
