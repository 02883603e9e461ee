"""What was synced survives a loss of power; the rest may be old or new, page by page."""

from pathlib import Path
from random import Random

import pytest
from tests.campaign.disks import BreakableFiles, flip_bit, lose_power, remove_tables

PAGES = 64
PAGE_BYTES = 4096


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "broker" / "store" / "commitlog" / "00000000000000000000"
    BreakableFiles(tmp_path / "broker").create(path, PAGES * PAGE_BYTES)
    return path


def _write(log: Path, byte: bytes, pages: range) -> None:
    with log.open("r+b") as file:
        file.seek(pages.start * PAGE_BYTES)
        file.write(byte * PAGE_BYTES * len(pages))


def _pages(log: Path) -> list[int]:
    return list(log.read_bytes()[::PAGE_BYTES])


def test_a_loss_of_power_keeps_what_was_synced_and_any_of_the_pages_behind_it(
    tmp_path: Path, log: Path
) -> None:
    files = BreakableFiles(tmp_path / "broker")
    _write(log, b"a", range(8))
    files.sync(log)
    _write(log, b"b", range(8, PAGES))
    lost = lose_power(tmp_path / "broker", Random(1))
    pages = _pages(log)
    assert pages[:8] == [ord("a")] * 8
    assert set(pages[8:]) == {0, ord("b")}
    assert pages.count(0) == lost


def test_a_file_that_was_synced_before_it_got_its_name_is_safe(tmp_path: Path) -> None:
    files = BreakableFiles(tmp_path / "broker")
    table = tmp_path / "broker" / "store" / "config" / "topics.json"
    files.write(table.with_suffix(".tmp"), b"{}")
    files.rename(table.with_suffix(".tmp"), table)
    lose_power(tmp_path / "broker", Random(1))
    assert table.read_bytes() == b"{}"


def test_a_sync_fails_as_long_as_the_disk_does(tmp_path: Path, log: Path) -> None:
    files = BreakableFiles(tmp_path / "broker")
    _write(log, b"a", range(PAGES))
    files.fails = True
    with pytest.raises(OSError, match="Input/output error"):
        files.sync(log)
    lose_power(tmp_path / "broker", Random(1))
    assert 0 in _pages(log)


def test_a_flipped_bit_is_in_the_body_of_a_message(tmp_path: Path, log: Path) -> None:
    body = b"order-1".ljust(200)
    _write(log, b"", range(1))
    with log.open("r+b") as file:
        file.write(b"header" + body)
    before = log.read_bytes()
    name, position = flip_bit(tmp_path / "broker", Random(1)).split(":")
    after = log.read_bytes()
    assert name == log.name
    assert [index for index, pair in enumerate(zip(before, after, strict=True)) if pair[0] != pair[1]] == [
        int(position)
    ]


def test_tables_are_removed_with_their_backups(tmp_path: Path) -> None:
    files = BreakableFiles(tmp_path / "broker")
    for name in ("topics.json", "topics.json.bak", "delayOffset.json"):
        files.write(tmp_path / "broker" / "store" / "config" / name, b"{}")
    remove_tables(tmp_path / "broker")
    assert list((tmp_path / "broker" / "store" / "config").iterdir()) == []
