"""Flushing: what is safe, when it is said, and what happens when the disk says no."""

import errno
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import pytest
from tests.support.faulty_files import FaultyFiles
from tests.support.places import ROOT
from tests.support.small_stores import append, bodies_of, dispatch_all, interpreted, small_settings

from pyromq.clock import ManualClock
from pyromq.disk_steps import Steps
from pyromq.errors import StoreError
from pyromq.filesystem import Files, Space
from pyromq.store import dispatch, upkeep
from pyromq.store.faults import Fault
from pyromq.store.message_store import MessageStore
from pyromq.store.results import AppendStatus


class Fixture:
    def __init__(self, root: Path, **changes: Any) -> None:
        self.files = FaultyFiles(root)
        self.clock = ManualClock()
        self.store = MessageStore.open(
            small_settings(root, **changes), files=self.files, clock=self.clock, start_flusher=False
        )


class ByHand:
    """A worker whose steps a test does one by one."""

    def start(self, work: Callable[[], Steps[None]]) -> None:
        self.work = work

    def wake(self) -> None: ...

    def stop(self) -> None: ...

    def alone(self) -> AbstractContextManager[object]:
        return nullcontext()


def test_what_arrives_during_a_sync_is_not_declared_safe_by_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = ByHand()
    monkeypatch.setattr(FaultyFiles, "worker", lambda *_: worker)
    store = MessageStore.open(small_settings(tmp_path), files=FaultyFiles(tmp_path), clock=ManualClock())
    safe = append(store, b"safe").end_offset
    store.flushes.request()
    steps = worker.work()
    sync = next(steps)
    append(store, b"later")
    sync()
    assert store.flushes.offset == 0
    next(steps, None)
    assert store.flushes.offset == safe
    store.close()


def test_many_waiting_appends_share_one_sync(tmp_path: Path) -> None:
    fixture = Fixture(tmp_path, flush_disk_type="SYNC_FLUSH")
    store = fixture.store
    answers: list[AppendStatus] = []
    for number in range(20):
        store.flushes.when_flushed(append(store, b"%d" % number), answers.append)
    assert store.flushes.settle() == 0
    assert store.dispatch() == []  # nothing is readable before it is safe
    before = store.statistics().sync_count
    store.flushes.flush_log()
    assert store.flushes.settle() == 20
    assert answers == [AppendStatus.PUT_OK] * 20
    assert store.statistics().sync_count == before + 1
    assert len(store.dispatch()) == 1
    store.close()


def test_nothing_new_is_not_synced_again(tmp_path: Path) -> None:
    fixture = Fixture(tmp_path)
    store = fixture.store
    append(store, b"x")
    dispatch_all(store)
    store.flushes.flush()
    before = store.statistics().sync_count
    store.flushes.flush_log()
    store.flushes.flush()
    assert store.statistics().sync_count == before
    store.close()


def test_a_wait_ends_with_its_deadline(tmp_path: Path) -> None:
    fixture = Fixture(tmp_path)
    answers: list[AppendStatus] = []
    fixture.store.flushes.when_flushed(append(fixture.store, b"x"), answers.append)
    fixture.clock.advance(4.9)
    assert fixture.store.flushes.settle() == 0
    fixture.clock.advance(0.2)
    assert fixture.store.flushes.settle() == 1
    assert answers == [AppendStatus.FLUSH_DISK_TIMEOUT]
    fixture.store.close()


def test_a_failed_sync_is_final(tmp_path: Path) -> None:
    fixture = Fixture(tmp_path)
    store = fixture.store
    append(store, b"safe")
    safe = store.flushes.flush_log()
    answers: list[AppendStatus] = []
    result = append(store, b"not safe")
    store.flushes.when_flushed(result, answers.append)
    fixture.files.failures["sync"] = errno.EIO
    assert store.flushes.flush_log() == safe
    store.flushes.settle()
    assert answers == [AppendStatus.FLUSH_DISK_TIMEOUT]
    assert append(store, b"refused").status is AppendStatus.SERVICE_NOT_AVAILABLE
    # The disk works again, but what became of the pages is unknown.
    fixture.files.failures.clear()
    assert store.flushes.flush_log() == safe
    assert store.flushes.wait(result, 0) is AppendStatus.FLUSH_DISK_TIMEOUT
    dispatch_all(store)
    assert bodies_of(store) == [b"safe", b"not safe"]
    store.close()
    assert (tmp_path / "abort").exists()


@pytest.mark.parametrize("error_number", [errno.EMFILE, errno.ENFILE, errno.ENOMEM])
def test_a_sync_that_found_no_descriptor_is_tried_again(tmp_path: Path, error_number: int) -> None:
    fixture = Fixture(tmp_path)
    store = fixture.store
    fixture.clock.advance(60)
    append(store, b"x")
    dispatch_all(store)
    fixture.files.failures["sync"] = error_number
    assert store.flushes.flush() == 0
    assert not store.faults
    assert append(store, b"y").is_ok
    dispatch_all(store)
    fixture.clock.advance(1.1)
    store.upkeep()
    store._flusher.work()
    assert store.flushes.offset == 0
    fixture.files.failures.clear()
    fixture.clock.advance(1.1)
    store.upkeep()
    store._flusher.work()
    assert store.flushes.offset == store.statistics().log_end_offset
    fixture.clock.advance(60)
    store.upkeep()
    store._flusher.work()
    assert store.flushes.checkpoint.safe_offset == store.flushes.offset
    store.close()
    assert not (tmp_path / "abort").exists()


def test_asynchronous_flush_keeps_apaches_intervals(tmp_path: Path) -> None:
    fixture = Fixture(tmp_path, log_segment_bytes=1 << 20, flush_least_pages=4)
    store = fixture.store

    def upkeep_after(seconds: float) -> int:
        fixture.clock.advance(seconds)
        store.upkeep()
        store._flusher.work()
        return store.flushes.offset

    upkeep_after(20)
    append(store, b"x" * 100)
    first = upkeep_after(0.6)  # the thorough interval has long passed
    assert first == store.statistics().log_end_offset
    append(store, b"x" * 100)
    assert upkeep_after(0.6) == first  # too few pages
    append(store, b"x" * 20_000)
    assert upkeep_after(0.1) == first  # too early
    second = upkeep_after(0.5)
    assert second > first
    append(store, b"x")
    assert upkeep_after(5) == second
    assert upkeep_after(6) == store.statistics().log_end_offset
    store.close()


def test_what_was_written_half_a_second_ago_is_flushed_however_little_it_is(tmp_path: Path) -> None:
    fixture = Fixture(tmp_path, log_segment_bytes=1 << 20)
    for _ in range(4):
        append(fixture.store, b"x")
        fixture.clock.advance(0.51)
        fixture.store.upkeep()
        fixture.store._flusher.work()
        assert fixture.store.flushes.offset == fixture.store.log.end
    fixture.store.close()


def test_the_more_queue_files_were_flushed_the_longer_the_next_flush_waits_but_a_minute_at_most(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upkeep, "_FILES_PER_FLUSH", 2)
    fixture = Fixture(tmp_path, queue_flush_least_pages=0, index_enabled=False)
    store = fixture.store

    def flush_after(seconds: float, queues: int) -> bool:
        """Whether a message in each of so many queues is safe after this time."""
        for queue_id in range(queues):
            append(store, b"x", queue_id=queue_id)
        dispatch_all(store)
        fixture.clock.advance(seconds)
        store.upkeep()
        store._flusher.work()
        return store.flushes.checkpoint.safe_offset == store.statistics().log_end_offset

    assert flush_after(60, queues=6)
    assert not flush_after(2.9, queues=6)  # six files were flushed, and two may be each second
    assert flush_after(0.2, queues=0)
    assert flush_after(3.1, queues=1)
    assert flush_after(1.1, queues=200)
    assert not flush_after(59.8, queues=1)
    assert flush_after(0.3, queues=0)
    store.close()


def test_the_checkpoint_follows_what_was_dispatched_and_flushed(tmp_path: Path) -> None:
    fixture = Fixture(tmp_path)
    store = fixture.store
    store.flushes.flush()
    first = append(store, b"x")
    dispatch_all(store)
    append(store, b"y")
    store.flushes.flush()
    assert store.flushes.checkpoint.safe_offset == first.end_offset
    assert store.flushes.checkpoint.queue_count == 1
    dispatch_all(store)
    fixture.files.failures["overwrite"] = errno.ENOSPC
    store.flushes.flush()
    assert store.flushes.checkpoint.safe_offset == first.end_offset  # an older one is still true
    assert not store.faults
    fixture.files.failures.clear()
    store.flushes.flush()
    assert store.flushes.checkpoint.safe_offset == store.flushes.offset
    store.close()


@pytest.mark.parametrize("error_number", [errno.ENOSPC, errno.EROFS, errno.EDQUOT])
def test_a_full_disk_refuses_appends_and_heals_by_itself(tmp_path: Path, error_number: int) -> None:
    fixture = Fixture(tmp_path, delete_when="23")
    store = fixture.store
    fixture.files.failures["create"] = error_number
    results = [append(store, b"x" * 500) for _ in range(40)]
    stored = sum(1 for each in results if each.is_ok)
    assert stored == 0  # not even the first file could be made
    fixture.files.failures.clear()
    fixture.clock.advance(1.1)
    store.upkeep()
    assert append(store, b"x" * 500).is_ok
    fixture.files.failures["create"] = error_number
    results = [append(store, b"x" * 500) for _ in range(40)]
    stored = sum(1 for each in results if each.is_ok)
    assert 0 < stored < 40
    assert results[stored].status is AppendStatus.CREATE_MAPPED_FILE_FAILED
    assert results[-1].status is AppendStatus.SERVICE_NOT_AVAILABLE
    assert store.faults & Fault.DISK_FULL
    fixture.files.failures.clear()
    fixture.clock.advance(1.1)
    store.upkeep()
    assert not store.faults
    assert append(store, b"again").queue_offset == stored + 1
    dispatch_all(store)
    assert len(bodies_of(store)) == stored + 2
    store.close()


@pytest.mark.parametrize("operation", ["create", "allocate"])
def test_a_full_disk_stops_dispatch_where_it_is_and_nothing_is_lost(tmp_path: Path, operation: str) -> None:
    fixture = Fixture(tmp_path)
    store = fixture.store
    bodies = [b"%d" % number for number in range(30)]
    for body in bodies[:15]:
        append(store, body, properties=b"UNIQ_KEY\x01u" + body + b"\x02")
    if operation == "create":
        dispatch_all(store)
    for body in bodies[15:]:
        append(store, body, properties=b"UNIQ_KEY\x01u" + body + b"\x02")
    fixture.files.failures[operation] = errno.ENOSPC
    dispatch_all(store)
    assert store.faults & Fault.QUEUE_DISK_FULL
    assert append(store, b"refused").status is AppendStatus.SERVICE_NOT_AVAILABLE
    readable = bodies_of(store)
    assert readable == bodies[: len(readable)]
    if operation == "create":
        assert len(readable) == 20
    else:
        assert readable  # how far the index is behind the queue depends on how many are carried at a time
    fixture.files.failures.clear()
    fixture.clock.advance(1.1)
    store.upkeep()
    dispatch_all(store)
    assert bodies_of(store) == bodies
    for body in bodies:
        assert len(store.log.query("Orders", f"u{body.decode()}", 10)) == 1
    store.close()


def test_a_nearly_full_or_read_only_disk_is_noticed_before_it_hurts(tmp_path: Path) -> None:
    fixture = Fixture(tmp_path, disk_warning_percent=90)
    store = fixture.store
    append(store, b"before")
    for space in (Space(1000, 50, False), Space(1000, 900, True)):
        fixture.files.space_now = space
        fixture.clock.advance(1.1)
        store.upkeep()
        assert append(store, b"no").status is AppendStatus.SERVICE_NOT_AVAILABLE
        dispatch_all(store)
        assert bodies_of(store) == [b"before"]
        fixture.files.space_now = None
        fixture.clock.advance(1.1)
        store.upkeep()
        assert not store.faults
    assert append(store, b"yes").is_ok
    store.close()


def test_the_flusher_thread_makes_files_ahead_and_tells_of_progress(tmp_path: Path) -> None:
    progress = threading.Event()
    with MessageStore.open(small_settings(tmp_path, warm_up=True)) as store:
        store.flushes.on_progress(progress.set)
        result = append(store, b"x" * 500)
        assert store.flushes.wait(result, 60) is AppendStatus.PUT_OK
        assert progress.wait(60)
        store._flusher.wake()
        store.flushes.flush()  # waits for the thread to have done its part
        assert (tmp_path / "commitlog" / "00000000000000008192").stat().st_size == 8192
        for _ in range(40):
            assert append(store, b"x" * 500).is_ok
        assert store.flushes.wait(append(store, b"last"), 60) is AppendStatus.PUT_OK


class SlowFiles(Files):
    """A directory is synced when `may_end` is set, and not before."""

    def __init__(self) -> None:
        super().__init__()
        self.began = threading.Event()
        self.may_end = threading.Event()
        self.steps: list[str] = []

    def _sync_directory_now(self, directory: Path) -> None:
        self.began.set()
        assert self.may_end.wait(60)
        super()._sync_directory_now(directory)
        self.steps.append("safe")


def test_nobody_calls_a_name_safe_while_another_thread_still_makes_it_so(tmp_path: Path) -> None:
    files = SlowFiles()
    files.write(tmp_path / "table", b"x")
    flusher = threading.Thread(target=files.sync_all_directories)
    flusher.start()
    assert files.began.wait(60)
    threading.Timer(0.05, files.may_end.set).start()
    files.sync_directory(tmp_path)
    files.steps.append("called safe")
    flusher.join()
    assert files.steps == ["safe", "called safe"]


@pytest.mark.parametrize("end", [MessageStore.close, MessageStore.abandon])
def test_a_store_that_was_let_go_touches_no_file_any_more(
    tmp_path: Path, end: Callable[[MessageStore], None]
) -> None:
    with interpreted():
        store = Fixture(tmp_path).store
        append(store, b"x")
        end(store)
        before = sorted(tmp_path.rglob("*"))
        assert store.dispatch() == []  # a turn of the loop may have planned it
        assert sorted(tmp_path.rglob("*")) == before


def test_a_second_process_cannot_open_the_same_store(tmp_path: Path) -> None:
    with MessageStore.open(small_settings(tmp_path), start_flusher=False):
        script = (
            "import sys\nfrom pathlib import Path\nfrom pyromq.errors import StoreError\n"
            "from pyromq.store.message_store import MessageStore\n"
            "from pyromq.store.settings import StoreSettings\n"
            "try:\n    MessageStore.open(StoreSettings(root=Path(sys.argv[1])))\n"
            "except StoreError as error:\n    sys.exit(7 if 'in use' in str(error) else 8)\n"
        )
        source = ROOT / "src"
        done = subprocess.run(
            [sys.executable, "-c", script, str(tmp_path)], env={"PYTHONPATH": str(source)}, check=False
        )
        assert done.returncode == 7


def test_nor_can_the_same_process_open_it_twice(tmp_path: Path) -> None:
    with MessageStore.open(small_settings(tmp_path), start_flusher=False) as store:
        with pytest.raises(StoreError, match="in use by this process"):
            MessageStore.open(small_settings(tmp_path), start_flusher=False)
        assert append(store, b"undisturbed").is_ok
    with MessageStore.open(small_settings(tmp_path), start_flusher=False) as store:
        assert bodies_of(store) == [b"undisturbed"]


def test_a_store_that_cannot_be_written_says_so(tmp_path: Path) -> None:
    files = FaultyFiles(tmp_path)
    files.failures["write"] = errno.EROFS
    with pytest.raises(StoreError, match="cannot open"):
        MessageStore.open(small_settings(tmp_path), files=files, start_flusher=False)


def test_a_full_disk_is_not_taken_for_another_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def be_full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("os.pwrite", be_full)
        with pytest.raises(StoreError, match=r"cannot open .* No space left"):
            MessageStore.open(small_settings(tmp_path), start_flusher=False)
    MessageStore.open(small_settings(tmp_path), start_flusher=False).close()


def test_on_a_read_only_disk_reading_goes_on_and_writing_comes_back(tmp_path: Path) -> None:
    with MessageStore.open(small_settings(tmp_path), start_flusher=False) as store:
        for number in range(40):
            append(store, b"%04d" % number * 100, properties=b"KEYS\x01k%d\x02" % number)
        dispatch_all(store)
    files = FaultyFiles(tmp_path)
    clock = ManualClock()
    store = MessageStore.open(small_settings(tmp_path), files=files, clock=clock, start_flusher=False)
    for operation in ("map", "create", "allocate"):
        files.failures[operation] = errno.EROFS
    assert append(store, b"no").status is AppendStatus.CREATE_MAPPED_FILE_FAILED
    assert len(bodies_of(store)) == 40
    assert len(store.log.query("Orders", "k39", 10)) == 1
    files.failures.clear()
    clock.advance(1.1)
    store.upkeep()
    for number in range(40, 80):
        assert append(store, b"%04d" % number * 100, properties=b"KEYS\x01k%d\x02" % number).is_ok
        dispatch_all(store)
    assert bodies_of(store) == [b"%04d" % number * 100 for number in range(80)]
    assert len(store.log.query("Orders", "k79", 10)) == 1
    store.close()


def test_a_store_that_cannot_be_closed_cleanly_is_let_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Fixture(tmp_path).store

    def refuse(_: Path) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    with monkeypatch.context() as patched:
        patched.setattr(store.files, "remove", refuse)
        with pytest.raises(OSError, match="Read-only"):
            store.close()
    with MessageStore.open(small_settings(tmp_path), start_flusher=False) as store:
        assert not store.recovery.was_clean


def test_dispatch_goes_on_while_the_disk_is_only_nearly_full(tmp_path: Path) -> None:
    fixture = Fixture(tmp_path, disk_warning_percent=90)
    store = fixture.store
    append(store, b"accepted")
    fixture.files.space_now = Space(1000, 50, False)
    fixture.clock.advance(1.1)
    store.upkeep()
    assert store.faults
    assert store.has_dispatch_work
    dispatch_all(store)
    assert bodies_of(store) == [b"accepted"]
    store.close()


def test_dispatch_that_found_no_room_is_due_again_when_there_is(tmp_path: Path) -> None:
    fixture = Fixture(tmp_path)
    store = fixture.store
    append(store, b"accepted")
    fixture.files.failures["create"] = errno.ENOSPC
    store.dispatch()
    was_due = store.has_dispatch_work
    fixture.files.failures.clear()
    fixture.clock.advance(1.1)
    store.upkeep()
    assert (was_due, store.has_dispatch_work) == (False, True)
    store.close()


def test_a_queue_that_was_flushed_is_written_as_before_and_flushed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Fixture(tmp_path).store
    for queue_id in range(3):
        append(store, b"first", queue_id=queue_id)
    dispatch_all(store)
    store.flushes.flush()
    by_hand: list[int] = []
    if dispatch._native is not None:
        # Also after a flush, the compiled core carries every message.
        step_once = dispatch.Dispatcher._step_once

        def noted(self: dispatch.Dispatcher, segment: Any, limit: int) -> bool:
            by_hand.append(self.offset)
            return step_once(self, segment, limit)

        monkeypatch.setattr(dispatch.Dispatcher, "_step_once", noted)
    for queue_id in range(3):
        append(store, b"second", queue_id=queue_id)
    dispatch_all(store)
    assert by_hand == []
    dirty = store._queues.queue_files.take_dirty()
    assert sorted(queue.queue_id for queue, _ in dirty) == [0, 1, 2], "the next flush syncs them"
    store.close()


class Forgetful(FaultyFiles):
    """As a kernel does it: pages whose write failed count as written, and stay in memory."""

    def sync(self, path: Path) -> None:
        try:
            self._before("sync", path)
        except OSError:
            self.forgotten = path
            raise
        if path != self.forgotten:
            super().sync(path)

    forgotten: Path | None = None

    def read_back(self, path: Path) -> None:
        super().read_back(path)
        path.write_bytes(self.disk.live[path].content)


def test_after_a_failed_sync_only_what_the_disk_has_is_believed(tmp_path: Path) -> None:
    files = Forgetful(tmp_path)
    settings = small_settings(tmp_path)
    store = MessageStore.open(settings, files=files, start_flusher=False)
    append(store, b"safe")
    dispatch_all(store)
    store.flushes.flush()
    append(store, b"lost")
    files.failures["sync"] = errno.EIO
    store.flushes.flush_log()
    assert store.faults & Fault.NOT_WRITEABLE
    files.failures.clear()
    assert store.flushes.flush_log() < store.log.end  # a sync that succeeds now says nothing
    store.abandon()
    with MessageStore.open(settings, files=files, start_flusher=False) as store:
        assert bodies_of(store) == [b"safe"]


def test_the_log_file_stays_open_until_all_of_it_is_synced(tmp_path: Path) -> None:
    files = Files()
    with MessageStore.open(small_settings(tmp_path), files=files, start_flusher=False) as store:
        append(store, b"x")
        (first,) = files._held
        store.flushes.flush_log()
        assert list(files._held) == [first]
        while store.log.end < 8192:
            append(store, b"x" * 500)
        assert len(files._held) == 2
        store.flushes.flush_log()
        assert first not in files._held
        assert len(files._held) == 1
    assert not files._held
