"""The file of deletions by itself: what is written is read again, whatever is torn off its end."""

import errno
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.chance import examples
from tests.support.faulty_files import FaultyFiles

from pyromq.errors import StoreError
from pyromq.filesystem import Files
from pyromq.store.deletions import HEADER, Deletion, Deletions, decode, decode_line, encode, encode_line
from pyromq.store.filenames import can_be_directory

ROOT = Path(__file__).parents[3]
TOPICS = st.text(st.characters(codec="utf-8"), max_size=20).filter(can_be_directory)
DELETIONS = st.builds(
    Deletion, TOPICS, st.integers(0, 2**63 - 1), st.integers(0, 2**63 - 1), is_finished=st.booleans()
)
TAILS = st.binary(max_size=10).filter(lambda tail: b"\n" not in tail)


@given(st.lists(DELETIONS, max_size=6))
def test_the_newest_line_of_each_topic_is_read_back(deletions: list[Deletion]) -> None:
    assert decode(encode(deletions)) == {each.topic: each for each in deletions}


@settings(max_examples=examples(20))
@given(
    st.lists(DELETIONS, min_size=1, max_size=3), st.binary(max_size=10).map(lambda x: x.replace(b"\n", b""))
)
def test_a_last_line_that_is_torn_does_not_count(deletions: list[Deletion], tail: bytes) -> None:
    complete = encode(deletions[:-1])
    torn = encode_line(deletions[-1])
    for length in range(len(torn)):
        assert decode(complete + torn[:length]) == decode(complete)
        assert decode(complete + torn[:length] + b"\0" * (len(torn) - length)) == decode(complete)
        damaged = torn[:length] + bytes([torn[length] ^ 1]) + torn[length + 1 :]
        if damaged.count(b"\n") == 1:
            assert decode(complete + damaged) == decode(complete)
    assert decode(complete + tail) == decode(complete)


@given(st.binary(max_size=60))
def test_no_garbage_is_taken_for_a_line(garbage: bytes) -> None:
    assert decode_line(garbage) is None


@pytest.mark.parametrize("topic", ["..", ".", "", "a/b", "/etc"])
def test_a_topic_that_could_lead_out_of_the_store_is_not_believed(topic: str) -> None:
    assert decode_line(encode_line(Deletion(topic, 5, 6))[:-1]) is None


def test_damage_before_the_last_line_is_refused_with_the_line_and_what_to_do(tmp_path: Path) -> None:
    path = tmp_path / "deletions"
    lines = encode([Deletion("A", 10, 1), Deletion("B", 20, 2)])
    path.write_bytes(lines.replace(b"deleted 10", b"deleted 11"))
    with pytest.raises(StoreError, match=r"deletions: line 2 is damaged: .*deleted 11.*move it away"):
        Deletions(Files(), path)


def test_a_file_of_another_kind_or_version_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "deletions"
    path.write_bytes(b"pyromq deletions 2\n")
    with pytest.raises(StoreError, match=r"begins with .*expected b'pyromq deletions 1"):
        Deletions(Files(), path)


def test_the_example_of_the_documentation_is_what_is_written() -> None:
    page = (ROOT / "docs" / "formats" / "deletions.md").read_bytes()
    example = page.split(b"```\n")[1]
    assert example.startswith(HEADER)
    assert decode(example) == {"Orders": Deletion("Orders", 18437, 1731700000000, is_finished=True)}


def test_a_mark_covers_what_lies_before_it_in_its_topic_only(tmp_path: Path) -> None:
    deletions = Deletions(Files(), tmp_path / "deletions")
    deletions.mark("A", 100, 5)
    assert deletions.covers("A", 99)
    assert not deletions.covers("A", 100)
    assert not deletions.covers("B", 99)
    deletions.mark("A", 200, 6)
    assert deletions.covers("A", 199)
    assert deletions.unfinished() == ["A"]
    deletions.finish("A")
    deletions.finish("B")
    again = Deletions(Files(), tmp_path / "deletions")
    assert again.all() == [Deletion("A", 200, 6, is_finished=True)]
    assert not again.unfinished()


def test_marks_go_when_the_log_has_left_them_behind_and_then_the_file(tmp_path: Path) -> None:
    path = tmp_path / "deletions"
    deletions = Deletions(Files(), path)
    for topic, offset in (("A", 100), ("B", 200), ("C", 50)):
        deletions.mark(topic, offset, 5)
    deletions.finish("A")
    deletions.finish("B")
    deletions.forget_before(99)
    assert len(Deletions(Files(), path).all()) == 3
    deletions.forget_before(100)
    assert [each.topic for each in Deletions(Files(), path).all()] == ["C", "B"], "C is not finished"
    deletions.finish("C")
    deletions.forget_before(1000)
    assert not path.exists()
    deletions.mark("D", 2000, 5)
    assert [each.topic for each in Deletions(Files(), path).all()] == ["D"]


def test_marks_beyond_the_end_of_the_log_move_to_it(tmp_path: Path) -> None:
    deletions = Deletions(Files(), tmp_path / "deletions")
    deletions.mark("A", 500, 5)
    deletions.mark("B", 300, 5)
    deletions.fit_to_log(0, 400)
    assert {each.topic: each.log_offset for each in deletions.all()} == {"A": 400, "B": 300}
    assert Deletions(Files(), tmp_path / "deletions").all() == deletions.all()


@pytest.mark.parametrize("operation", ["overwrite", "write"])
def test_a_mark_that_cannot_be_written_does_not_count_now_or_later(tmp_path: Path, operation: str) -> None:
    files = FaultyFiles(tmp_path)
    deletions = Deletions(files, tmp_path / "deletions")
    if operation == "overwrite":
        deletions.mark("A", 10, 1)
    before = deletions.all()
    files.failures[operation] = errno.ENOSPC
    with pytest.raises(OSError, match="No space"):
        deletions.mark("B" * 100, 20, 2)
    assert deletions.all() == before
    assert Deletions(files, tmp_path / "deletions").all() == before
    files.failures.clear()
    deletions.mark("C", 30, 3)
    assert Deletions(files, tmp_path / "deletions").all() == [*before, Deletion("C", 30, 3)]
