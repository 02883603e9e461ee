"""The key-value table and its file."""

import asyncio
import threading
from pathlib import Path

import pytest
from tests.conftest import ErrorLogs

from pyromq.config.durable_file import DurableFile
from pyromq.config.saving import Saving
from pyromq.errors import RemoteProtocolError, StoreError
from pyromq.nameserver.kv_table import KvTable


def test_entries_have_a_namespace_and_a_key() -> None:
    table = KvTable()
    table.put("n", "k", "v")
    table.put("m", "k", "w")
    table.put("n", "k", "changed")
    assert (table.get("n", "k"), table.get("m", "k"), table.get("n", "x"), table.get("x", "k")) == (
        "changed",
        "w",
        None,
        None,
    )
    assert list(table) == [("n", "k", "changed"), ("m", "k", "w")]


def test_a_namespace_stays_when_its_last_key_goes() -> None:
    table = KvTable()
    table.put("n", "k", "v")
    table.delete("n", "k")
    table.delete("n", "k")
    table.delete("unknown", "k")
    assert dict(table.namespace("n") or {"not": "empty"}) == {"not": "empty"}
    assert table.namespace("n") is not None
    assert table.namespace("unknown") is None
    assert table.encode() == b'{"configTable":{"n":{}}}'


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b'{"configTable":{"n":{"k":"v"}}}', id="as we write it"),
        pytest.param(b'{\n\t"configTable":{\n\t\t"n":{"k":"v"}\n\t}\n}', id="pretty-printed"),
        pytest.param(b"{configTable:{'n':{'k':'v'}}}", id="as fastjson also reads it"),
        pytest.param(b'{"configTable":{"n":{"k":"v"}},"later":1}', id="with something unknown"),
    ],
)
def test_what_java_wrote_is_read(data: bytes) -> None:
    table = KvTable()
    table.load(data)
    assert table.get("n", "k") == "v"


def test_what_cannot_be_read_changes_nothing() -> None:
    table = KvTable()
    table.put("n", "k", "v")
    with pytest.raises(RemoteProtocolError):
        table.load(b'{"configTable":[1,2]}')
    assert table.get("n", "k") == "v"


def test_a_saved_file_keeps_what_was_there_before_as_its_backup(tmp_path: Path) -> None:
    file = DurableFile(tmp_path / "new" / "directory" / "file")
    assert list(file.contents()) == []
    file.save(b"one")
    assert [content for _, content in file.contents()] == [b"one"]
    file.save(b"two")
    file.save(b"three")
    assert [content for _, content in file.contents()] == [b"three", b"two"]
    assert sorted(path.name for path in file.path.parent.iterdir()) == ["file", "file.bak"]


def test_left_overs_of_an_interrupted_save_do_no_harm(tmp_path: Path) -> None:
    file = DurableFile(tmp_path / "file")
    file.save(b"one")
    (tmp_path / "file.new").write_bytes(b"half")
    (tmp_path / "file.old").write_bytes(b"half")
    file.save(b"two")
    assert [content for _, content in file.contents()] == [b"two", b"one"]


def test_a_file_system_without_links_gets_copies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_links(*_: object) -> None:
        raise PermissionError("no links here")

    monkeypatch.setattr("os.link", no_links)
    file = DurableFile(tmp_path / "file")
    (tmp_path / "file").write_bytes(b"one")
    file.save(b"two")
    assert [content for _, content in file.contents()] == [b"two", b"one"]


class SlowFile(DurableFile):
    """Waits with every save until it is let go."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.go = threading.Semaphore(0)
        self.problem: OSError | None = None
        self.saved: list[bytes] = []

    def save(self, content: bytes) -> None:
        self.go.acquire(timeout=10)
        if self.problem is not None:
            raise self.problem
        self.saved.append(content)


async def test_changes_during_a_write_share_the_next_one(tmp_path: Path) -> None:
    file = SlowFile(tmp_path / "file")
    number = 0
    saving = Saving(file.path, lambda: b"%d" % number, file.save)
    saves = []
    for number in range(1, 6):  # noqa: B007  (the saving reads it)
        saves.append(asyncio.create_task(saving.save()))
        await asyncio.sleep(0)
    file.go.release(5)
    await asyncio.gather(*saves)
    await saving.close()
    assert len(file.saved) == 2
    assert file.saved[-1] == b"5"


async def test_a_failed_write_is_told_to_those_it_was_for(tmp_path: Path, error_logs: ErrorLogs) -> None:
    file = SlowFile(tmp_path / "file")
    saving = Saving(file.path, lambda: b"x", file.save)
    file.problem = OSError(28, "No space left on device")
    failing = asyncio.create_task(saving.save())
    await asyncio.sleep(0)
    file.go.release()
    with pytest.raises(StoreError, match="No space left"):
        await failing
    file.problem = None
    file.go.release()
    await saving.save()
    await saving.close()
    assert file.saved == [b"x"]
    error_logs.expect("could not write")


async def test_a_caller_that_leaves_does_not_take_the_write_away(tmp_path: Path) -> None:
    file = SlowFile(tmp_path / "file")
    saving = Saving(file.path, lambda: b"x", file.save)
    leaving, staying = asyncio.create_task(saving.save()), asyncio.create_task(saving.save())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    leaving.cancel()
    file.go.release(2)
    await staying
    await saving.close()
    assert leaving.cancelled()
    assert file.saved[-1:] == [b"x"]
