"""A journal's files are created whole, by one of several writers, on every kind of file system."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("obstore")

from obstore.store import MemoryStore
from pyarrow import fs

from pyromq.errors import ConfigError
from pyromq.spark.batch_journal import BatchHeld, BatchJournal, StoredHalf
from pyromq.spark.journal_files import JournalFiles, LocalFiles, ObjectFiles, RenamedFiles, journal_files
from pyromq.spark.queues import Queue

WRITERS = 8


class Hdfs:
    """As HDFS has it: a rename replaces nothing, a killed writer leaves a part of its file."""

    def __init__(self) -> None:
        self._files = fs.SubTreeFileSystem("/", fs.LocalFileSystem())
        self._lock = threading.Lock()
        self.tears = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._files, name)

    def move(self, source: str, target: str) -> None:
        with self._lock:
            if self._files.get_file_info(target).type != fs.FileType.NotFound:
                raise OSError("rename failed")
            self._files.move(source, target)

    def open_output_stream(self, path: str) -> Any:
        return self._torn(path) if self.tears else self._files.open_output_stream(path)

    @contextmanager
    def _torn(self, path: str) -> Iterator[BytesIO]:
        content = BytesIO()
        yield content
        with self._files.open_output_stream(path) as stream:
            stream.write(content.getvalue()[:100])
        raise InterruptedError


@pytest.fixture(params=["disk", "hdfs", "objects"])
def files(request: pytest.FixtureRequest, tmp_path: Path) -> JournalFiles:
    kinds: dict[str, Callable[[], JournalFiles]] = {
        "disk": lambda: LocalFiles(str(tmp_path)),
        "hdfs": lambda: RenamedFiles(Hdfs(), str(tmp_path)),
        "objects": lambda: ObjectFiles(MemoryStore(), "bucket/path"),
    }
    return kinds[request.param]()


def test_a_file_is_there_until_it_is_removed(files: JournalFiles) -> None:
    assert files.read("7") is None
    assert files.written_ms("7") is None
    assert files.names() == []
    files.create("7", b"decided")
    assert files.read("7") == b"decided"
    assert (files.written_ms("7") or 0) > 1_700_000_000_000
    assert files.names() == ["7"]
    files.replace("7", b"")
    assert files.read("7") == b""
    with pytest.raises(FileExistsError):
        files.create("7", b"again")
    for _ in range(2):
        files.remove("7")
    assert files.read("7") is None


def test_one_of_several_writers_creates_a_file(files: JournalFiles) -> None:
    begin, won = threading.Barrier(WRITERS), list[bytes]()

    def write(number: int) -> None:
        data = b"%d" % number * 1000
        begin.wait()
        try:
            files.create("7", data)
        except FileExistsError:
            return
        won.append(data)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(WRITERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(won) == 1
    assert files.read("7") == won[0]
    assert files.names() == ["7"]


def test_a_decision_is_whole_or_not_there(tmp_path: Path) -> None:
    hdfs, journal = Hdfs(), BatchJournal(str(tmp_path))
    journal._files = RenamedFiles(hdfs, journal._files.directory)
    hdfs.tears = True
    with pytest.raises(InterruptedError):
        journal.decide(0, [StoredHalf(Queue("T", "b", 1), "key", 5, 6)])
    assert not journal.is_decided(0)
    hdfs.tears = False
    journal.decide(0, [StoredHalf(Queue("T", "b", 1), "key", 5, 6)])
    assert len(BatchJournal(str(tmp_path)).unended(0)) == 1


def test_an_object_that_was_written_by_a_lost_answer_is_our_own() -> None:
    files = ObjectFiles(MemoryStore(), "bucket/path")
    for _ in range(2):
        files.create("7", b"ours")
    with pytest.raises(FileExistsError):
        files.create("7", b"theirs")


def test_a_batch_is_decided_once_also_when_it_has_ended(files: JournalFiles, tmp_path: Path) -> None:
    journal = BatchJournal(str(tmp_path / "other"))
    journal._files = files
    journal.decide(3, [StoredHalf(Queue("T", "b", 1), "first", 5, 6)], "Totals")
    for ended in (False, True):
        with pytest.raises(BatchHeld, match=r"process .* has decided batch 3"):
            journal.decide(3, [StoredHalf(Queue("T", "b", 1), "second", 7, 8)], "Totals")
        with pytest.raises(BatchHeld, match=r"batch 2 is not committed: process .* has decided batch 3"):
            journal.decide(2, [], "Totals")
        assert [half.unique_key for half in journal.unended(3)] == ([] if ended else ["first"])
        assert journal.topic(3) == "Totals"
        journal.end(3)


def test_what_an_earlier_release_has_ended_is_decided(tmp_path: Path) -> None:
    journal = BatchJournal(str(tmp_path))
    files = journal_files(journal._files.directory)
    files.create("3.ended", b"Totals")
    assert journal.is_decided(3)
    assert journal.topic(3) == "Totals"
    assert journal.unended(3) == []
    journal.end(3)


def test_places_are_told_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert isinstance(journal_files(str(tmp_path)), LocalFiles)
    assert isinstance(journal_files(tmp_path.as_uri()), LocalFiles)
    assert journal_files(tmp_path.as_uri()).directory == str(tmp_path)
    monkeypatch.setenv("AWS_REGION", "eu-central-1")
    for scheme in ("s3", "s3a"):
        found = journal_files(f"{scheme}://bucket/some/path")
        assert isinstance(found, ObjectFiles)
        assert found.directory == "bucket/some/path"
    monkeypatch.setitem(__import__("sys").modules, "obstore.store", None)
    with pytest.raises(ConfigError, match=r"journal=s3://bucket.*pip install 'pyromq\[object-store\]'"):
        journal_files("s3://bucket/some/path")
