"""The journal of a single controller: nothing committed is lost, wherever a crash interrupts a write."""

import errno
from itertools import pairwise
from pathlib import Path
from random import Random

import pytest
from tests.support.faulty_files import FaultyFiles

from pyromq.controller.file_store import FileStore
from pyromq.controller.groups import GroupRecord
from pyromq.controller.journal import MAGIC, Journal, encode_entry, replay
from pyromq.controller.store import Leader, NotLeading
from pyromq.errors import StoreError

OWN = Leader("n0", "127.0.0.1:9877")


def group(name: str, epoch: int = 1) -> GroupRecord:
    return GroupRecord(cluster="c", name=name, master_epoch=epoch)


def test_a_crash_at_any_byte_of_a_write_undoes_nothing_before_it(tmp_path: Path) -> None:
    before = MAGIC + encode_entry(group("a")) + encode_entry(group("b"))
    last = encode_entry(group("a", 2))
    for cut in range(len(last)):
        groups, end = replay(before + last[:cut], tmp_path)
        assert groups == {"a": group("a"), "b": group("b")}
        assert end == len(before)
    assert replay(before + last, tmp_path)[0]["a"] == group("a", 2)


def test_a_torn_entry_is_cut_off_before_the_next_is_written(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.open()
    journal.append(group("a"))
    journal.close()
    with journal.path.open("ab") as file:
        file.write(encode_entry(group("a", 2))[:-1])
    again = Journal(tmp_path)
    assert again.open() == {"a": group("a")}
    assert again.torn_bytes == len(encode_entry(group("a", 2))) - 1
    again.append(group("a", 3))
    again.close()
    assert Journal(tmp_path).open() == {"a": group("a", 3)}


def test_a_journal_that_was_being_made_is_made_again(tmp_path: Path) -> None:
    (tmp_path / "groups.journal").write_bytes(MAGIC[:3])
    assert Journal(tmp_path).open() == {}


def test_damage_before_later_decisions_is_an_error(tmp_path: Path) -> None:
    data = bytearray(MAGIC + encode_entry(group("a")) + encode_entry(group("b")))
    data[len(MAGIC) + 12] ^= 1
    with pytest.raises(StoreError, match="damaged at byte 8"):
        replay(bytes(data), tmp_path)


def test_a_flipped_bit_anywhere_in_the_last_decision_is_an_error(tmp_path: Path) -> None:
    """Else an election would be undone, and its epoch given out again."""
    before = MAGIC + encode_entry(group("a"))
    last = encode_entry(group("a", 2))
    for place in range(8 * len(last)):
        damaged = bytearray(before + last)
        damaged[len(before) + place // 8] ^= 1 << place % 8
        with pytest.raises(StoreError, match=f"damaged at byte {len(before)}"):
            replay(bytes(damaged), tmp_path)


@pytest.mark.parametrize("padding", range(380, 520, 7))
def test_an_entry_of_which_a_sector_was_not_written_is_cut_off(tmp_path: Path, padding: int) -> None:
    """The file was made longer, and the power failed before all of it was on disk."""
    first = group("a" * padding)
    before = MAGIC + encode_entry(first)
    whole = before + encode_entry(group("b" * 1500))
    bounds = sorted({len(before), *range(0, len(whole), 512), len(whole)})
    for start, end in pairwise(each for each in bounds if each >= len(before)):
        torn = whole[:start] + bytes(end - start) + whole[end:]
        assert replay(torn, tmp_path) == ({first.name: first}, len(before))
    assert len(replay(whole, tmp_path)[0]) == 2


def test_another_file_is_not_taken_for_a_journal(tmp_path: Path) -> None:
    (tmp_path / "groups.journal").write_bytes(b"something else")
    with pytest.raises(StoreError, match="not the journal"):
        Journal(tmp_path).open()


def test_a_directory_has_one_controller(tmp_path: Path) -> None:
    first = Journal(tmp_path)
    first.open()
    with pytest.raises(StoreError, match="in use by this process"):
        Journal(tmp_path).open()
    first.close()


def test_after_a_failed_sync_nothing_is_written_any_more(tmp_path: Path) -> None:
    files = FaultyFiles(tmp_path)
    journal = Journal(tmp_path, files)
    journal.open()
    files.failures["overwrite"] = errno.EIO
    with pytest.raises(StoreError, match="could not write"):
        journal.append(group("a"))
    files.failures.clear()
    with pytest.raises(StoreError, match="could not write"):
        journal.append(group("a"))
    with pytest.raises(StoreError, match="could not write"):
        journal.compact([])


async def test_a_store_compares_revisions(tmp_path: Path) -> None:
    store = FileStore(Journal(tmp_path))
    await store.open(OWN)
    assert (store.leader, store.is_leading) == (OWN, True)
    assert (await store.read("a")).revision == 0
    assert await store.replace("a", group("a"), 0)
    assert not await store.replace("a", group("a", 2), 0)
    found = await store.read("a")
    assert found.group == group("a")
    assert await store.replace("a", group("a", 2), found.revision)
    await store.close()
    with pytest.raises(NotLeading):
        await store.read("a")

    again = FileStore(Journal(tmp_path))
    await again.open(OWN)
    assert {name: each.group for name, each in (await again.read_all()).items()} == {"a": group("a", 2)}
    await again.close()


async def test_a_store_whose_disk_failed_stops_leading_and_ends_the_controller(tmp_path: Path) -> None:
    files = FaultyFiles(tmp_path)
    store = FileStore(Journal(tmp_path, files))
    await store.open(OWN)
    files.failures["overwrite"] = errno.EIO
    with pytest.raises(StoreError):
        await store.replace("a", group("a"), 0)
    assert not store.is_leading
    with pytest.raises(NotLeading):
        await store.read("a")
    with pytest.raises(StoreError):
        await store.run()
    await store.close()


async def test_a_long_journal_is_written_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pyromq.controller.file_store.COMPACT_ABOVE_BYTES", 1000)
    store = FileStore(Journal(tmp_path))
    await store.open(OWN)
    await store.replace("b", group("b"), 0)
    for epoch in range(100):
        assert await store.replace("a", group("a", epoch), (await store.read("a")).revision)
    assert store.size_bytes <= 1200
    await store.close()
    assert Journal(tmp_path).open() == {"a": group("a", 99), "b": group("b")}


@pytest.mark.parametrize("seed", range(20))
def test_what_was_appended_survives_the_loss_of_power(tmp_path: Path, seed: int) -> None:
    files = FaultyFiles(tmp_path)
    journal = Journal(tmp_path / "new" / "controller", files)
    journal.open()
    for epoch in range(1, 4):
        journal.append(group("a", epoch))
    files.crash(Random(seed))
    assert Journal(tmp_path / "new" / "controller", FaultyFiles(tmp_path)).open() == {"a": group("a", 3)}
