"""A store on this machine as files: what it holds, whether it is sound, and what damage is told."""

import sys
from pathlib import Path
from subprocess import run

import msgspec
import pytest
from tests.support.small_stores import TOPIC, append, dispatch_all, small_settings

from pyromq.admin.local_stores import Line, ReadProgress, Summary, UnreadableStore, Verdict, summary, verify
from pyromq.clock import ManualClock
from pyromq.errors import StoreError
from pyromq.store.message_store import MessageStore


@pytest.fixture
def root(tmp_path: Path) -> Path:
    with MessageStore.open(small_settings(tmp_path), clock=ManualClock(), start_flusher=False) as store:
        for number in range(20):
            append(store, b"%d" % number, queue_id=number % 2)
        dispatch_all(store)
    return tmp_path


def test_a_summary_counts_what_is_there(root: Path) -> None:
    found = summary(root)
    assert (found.was_clean, found.topics, found.queues, found.messages) == (True, 1, 2, 20)
    assert found.log_end > found.log_start == 0
    assert found.segments >= 1


def test_a_sound_store_is_told_so_with_its_progress(root: Path) -> None:
    told: list[ReadProgress] = []
    found = verify(root, told.append)
    assert (found.is_sound, found.records, found.units, found.damage) == (True, 20, 20, [])
    assert told[0].of_bytes == summary(root).log_end


def test_damage_is_named(root: Path) -> None:
    file = min((root / "commitlog").iterdir())
    content = bytearray(file.read_bytes())
    at = content.index(TOPIC.encode())
    content[at - 3] ^= 0xFF  # the body before the topic, or its length
    file.write_bytes(content)
    found = verify(root)
    assert not found.is_sound
    assert found.damage


def test_what_is_no_store_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="is not a store"):
        summary(tmp_path)


@pytest.mark.parametrize(("what", "kind"), [("summary", Summary), ("verify", Verdict)])
def test_as_a_process_it_writes_lines_and_its_result_last(root: Path, what: str, kind: type) -> None:
    command = [sys.executable, "-P", "-m", "pyromq.admin.local_stores", what]
    lines = run([*command, str(root)], capture_output=True, check=True).stdout.splitlines()
    assert isinstance(msgspec.json.decode(lines[-1], type=Line), kind)
    (failed,) = run([*command, str(root / "nowhere")], capture_output=True, check=True).stdout.splitlines()
    assert isinstance(msgspec.json.decode(failed, type=Line), UnreadableStore)
