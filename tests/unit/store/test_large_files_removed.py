"""Large files lose their names at once, and a thread gives their blocks back."""

import os
import threading
from pathlib import Path

import pytest

from pyromq.filesystem import Files

LARGE_BYTES = 1024 * 1024


class WatchedFiles(Files):
    """Releases a file only when it may."""

    def __init__(self) -> None:
        super().__init__()
        self.may_release = threading.Event()
        self.released: list[threading.Thread] = []

    def _release(self, descriptor: int) -> None:
        assert self.may_release.wait(60)
        super()._release(descriptor)
        self.released.append(threading.current_thread())

    def wait(self) -> None:
        self.may_release.set()
        self._releasing().submit(int).result()


@pytest.fixture
def files() -> WatchedFiles:
    return WatchedFiles()


def test_a_large_file_loses_its_name_at_once_and_its_blocks_on_a_thread(
    tmp_path: Path, files: WatchedFiles
) -> None:
    paths = [tmp_path / str(number) for number in range(3)]
    for path in paths:
        path.write_bytes(bytes(LARGE_BYTES))
        files.remove(path)
    assert not any(path.exists() for path in paths)
    assert not files.released
    files.wait()
    assert len(files.released) == 3
    assert threading.current_thread() not in files.released


def test_small_and_missing_files_cost_no_thread(tmp_path: Path, files: WatchedFiles) -> None:
    small = tmp_path / "small"
    small.write_bytes(b"x")
    files.remove(small)
    files.remove(tmp_path / "missing")
    files.wait()
    assert not small.exists()
    assert not files.released


def test_no_descriptor_is_left_behind(tmp_path: Path, files: WatchedFiles) -> None:
    def opened() -> int:
        return len(os.listdir("/proc/self/fd"))

    before = opened()
    path = tmp_path / "large"
    path.write_bytes(bytes(LARGE_BYTES))
    files.remove(path)
    assert opened() == before + 1
    files.wait()
    assert opened() == before


def test_a_large_file_that_cannot_be_removed_stays_and_is_let_go(
    tmp_path: Path, files: WatchedFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*arguments: object, **options: object) -> None:
        raise PermissionError("not ours")

    path = tmp_path / "large"
    path.write_bytes(bytes(LARGE_BYTES))
    monkeypatch.setattr(Path, "unlink", refuse)
    with pytest.raises(PermissionError):
        files.remove(path)
    files.wait()
    assert len(files.released) == 1
    assert path.exists()
