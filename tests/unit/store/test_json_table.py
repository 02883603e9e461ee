"""Tables of `config/`: a file without a content is damage, and a missing one is not."""

from pathlib import Path

import pytest

from pyromq.errors import StoreError
from pyromq.filesystem import Files
from pyromq.store.json_table import JsonTable

NOTHING = [b"", b" \n\t", bytes(4096), b"\0\0 \0"]


def table_in(directory: Path) -> JsonTable:
    return JsonTable(Files(), directory / "topics.json")


@pytest.mark.parametrize("nothing", NOTHING)
def test_a_table_that_lost_its_content_is_refused(tmp_path: Path, nothing: bytes) -> None:
    table = table_in(tmp_path)
    table.path.write_bytes(nothing)
    with pytest.raises(StoreError, match=r"topics\.json: it .*delete topics\.json.* an empty table"):
        table.load(dict[str, int])
    (tmp_path / "topics.json.bak").write_bytes(nothing)
    with pytest.raises(StoreError, match=r"topics\.json: it .*; .*topics\.json\.bak: it "):
        table.load(dict[str, int])
    assert table.path.read_bytes() == nothing, "left as it was"


@pytest.mark.parametrize("nothing", NOTHING)
def test_the_backup_takes_the_place_of_a_table_that_lost_its_content(tmp_path: Path, nothing: bytes) -> None:
    table = table_in(tmp_path)
    table.save({"a": 1})
    table.save({"a": 2})
    table.path.write_bytes(nothing)
    assert table.load(dict[str, int]) == {"a": 1}
    assert "topics.json.bak was loaded instead" in table.remark
    assert (tmp_path / "topics.json.broken").read_bytes() == nothing
    assert table.is_older
    again = table_in(tmp_path)
    assert again.load(dict[str, int]) == {"a": 1}
    assert again.is_older, "nothing was written since"
    again.save({"a": 3})
    assert table_in(tmp_path).load(dict[str, int]) == {"a": 3}


def test_the_backup_takes_the_place_of_a_missing_table(tmp_path: Path) -> None:
    table = table_in(tmp_path)
    table.save({"a": 1})
    table.save({"a": 2})
    table.path.unlink()
    assert not table.is_missing
    assert table.load(dict[str, int]) == {"a": 1}
    assert table.remark == ""
    assert table.is_older


def test_a_backup_is_the_newest_if_a_save_was_interrupted_between_its_two_renames(tmp_path: Path) -> None:
    table = table_in(tmp_path)
    table.save({"a": 1})
    table.path.rename(tmp_path / "topics.json.bak")
    (tmp_path / "topics.json.tmp").write_bytes(b"{")
    assert table.load(dict[str, int]) == {"a": 1}
    assert (table.remark, table.is_older) == ("", False)


def test_a_backup_that_lost_its_content_is_refused_where_the_table_is_missing(tmp_path: Path) -> None:
    (tmp_path / "topics.json.bak").write_bytes(b"")
    with pytest.raises(StoreError, match=r"topics\.json\.bak: it is empty \(0 bytes\)"):
        table_in(tmp_path).load(dict[str, int])


def test_a_table_begins_empty_where_there_is_neither_file_nor_backup(tmp_path: Path) -> None:
    table = table_in(tmp_path)
    assert table.is_missing
    assert table.load(dict[str, int]) is None
    table.path.write_bytes(b"{}")
    assert table.load(dict[str, int]) == {}


@pytest.mark.parametrize("content", [b"null", b"[]", b'""', b"0", b"{}\0\0"])
def test_a_table_that_is_no_object_is_refused(tmp_path: Path, content: bytes) -> None:
    table = table_in(tmp_path)
    table.path.write_bytes(content)
    with pytest.raises(StoreError, match=r"topics\.json"):
        table.load(dict[str, int])
