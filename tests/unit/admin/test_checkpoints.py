"""Checkpoints of streaming queries as plain files: the last batch, its positions, and files that are none."""

from pathlib import Path

import pytest

from pyromq.admin import checkpoints
from pyromq.protocol.body import MessageQueue

OFFSETS = 'v1\n{"batchWatermarkMs":0}\n{"v":1,"q":{"t":{"a:0":%d,"b:1":7},"u":{"a:0":1}}}'


def batch(root: Path, number: int, *, position: int = 5, is_done: bool = True) -> None:
    for name in ("offsets", "commits"):
        (root / name).mkdir(parents=True, exist_ok=True)
    (root / "offsets" / str(number)).write_text(OFFSETS % position)
    if is_done:
        (root / "commits" / str(number)).write_text("v1\n{}")


def test_the_positions_are_those_of_the_newest_batch_that_is_done(tmp_path: Path) -> None:
    batch(tmp_path, 9, position=5)
    batch(tmp_path, 10, position=6)
    batch(tmp_path, 11, position=7, is_done=False)
    found = checkpoints.read(tmp_path)
    assert (found.batch, found.committed_batch, found.is_running) == (11, 10, True)
    assert found.of_topic("t") == {MessageQueue("t", "a", 0): 6, MessageQueue("t", "b", 1): 7}
    assert found.committed_ms is not None
    assert found.problem == ""


def test_positions_in_lists_are_those_of_queues_0_1_and_so_on(tmp_path: Path) -> None:
    batch(tmp_path, 1)
    (tmp_path / "offsets" / "1").write_text('v1\n{}\n{"v":2,"q":{"t":{"a":[6,[null,2],[7,4]]}}}')
    found = checkpoints.read(tmp_path)
    assert found.positions == {
        MessageQueue("t", "a", number): 6 if number == 0 else 7 for number in (0, 3, 4, 5, 6)
    }


def test_a_table_has_its_checkpoint_beside_its_files(tmp_path: Path) -> None:
    batch(tmp_path / "_checkpoint", 0)
    assert checkpoints.read(tmp_path).committed_batch == 0


def test_files_that_are_no_batches_are_overlooked(tmp_path: Path) -> None:
    batch(tmp_path, 1)
    for name in (".1.crc", "2.tmp", "metadata"):
        (tmp_path / "offsets" / name).write_text("x")
    assert checkpoints.read(tmp_path).batch == 1


@pytest.mark.parametrize(
    "line", ["-", '{"logOffset":3}', "[1]", "{", '{"v":1,"q":{"t":4}}', '{"v":1,"q":{"t":{"a":4,"a:x":1}}}']
)
def test_other_sources_have_no_positions(tmp_path: Path, line: str) -> None:
    batch(tmp_path, 1)
    (tmp_path / "offsets" / "1").write_text(f"v1\n{{}}\n{line}")
    assert checkpoints.read(tmp_path).positions == {}


def test_what_cannot_be_read_is_said(tmp_path: Path) -> None:
    assert checkpoints.read(tmp_path / "none").problem
    batch(tmp_path, 1)
    (tmp_path / "offsets" / "1").write_text("hello")
    assert "not an offset file of Spark" in checkpoints.read(tmp_path).problem


def test_checkpoints_of_other_topics_are_left_out(tmp_path: Path) -> None:
    batch(tmp_path / "one", 1)
    found = checkpoints.reading([tmp_path / "one", tmp_path / "none"], "missing")
    assert [each.directory for each in found] == [str(tmp_path / "none")]


def test_a_gap_is_what_is_unread_and_what_is_lost() -> None:
    queue = MessageQueue("t", "a", 0)
    gap = checkpoints.Gap(queue, 5, 8, 20)
    assert (gap.unread, gap.lost) == (15, 3)
    assert (checkpoints.Gap(queue, 5).unread, checkpoints.Gap(queue, 5).lost) == (None, None)
