"""A queue begins again at 0 when its topic was made again, and not because one number is damaged."""

import shutil
from array import array
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.small_stores import append, bodies_of, small_settings

from pyromq.store.message_store import MessageStore
from pyromq.store.queues.generations import newest_generation

X = "X"
QUEUE_OFFSET_AT = 20
"""Where in a record its queue offset is."""


def paired(offsets: list[int]) -> "array[int]":
    return array("q", [number for place, offset in enumerate(offsets) for number in (offset, place * 100)])


@given(st.lists(st.integers(1, 6), min_size=1, max_size=5))
def test_the_last_of_several_generations_counts(sizes: list[int]) -> None:
    offsets = [offset for size in sizes for offset in range(size)]
    newest = newest_generation(paired(offsets))
    assert list(newest[::2]) == list(range(sizes[-1]))
    assert list(newest[1::2]) == [place * 100 for place in range(sum(sizes[:-1]), sum(sizes))]


@given(st.integers(3, 20), st.data())
def test_a_zero_that_nothing_follows_from_is_damage(size: int, data: st.DataObject) -> None:
    offsets = list(range(size))
    offsets[data.draw(st.integers(1, size - 2))] = 0
    assert newest_generation(paired(offsets)) == paired(offsets)


@pytest.mark.parametrize("damaged", range(1, 8))
def test_a_queue_offset_damaged_to_zero_costs_one_message_at_most(tmp_path: Path, damaged: int) -> None:
    bodies = [b"message %d" % number for number in range(10)]
    with MessageStore.open(small_settings(tmp_path), start_flusher=False) as store:
        places = [append(store, body, topic=X).log_offset for body in bodies]
    segment = tmp_path / "commitlog" / f"{0:020d}"
    content = bytearray(segment.read_bytes())
    start = places[damaged] + QUEUE_OFFSET_AT
    assert int.from_bytes(content[start : start + 8]) == damaged
    content[start : start + 8] = bytes(8)
    segment.write_bytes(content)
    shutil.rmtree(tmp_path / "consumequeue")
    with MessageStore.open(small_settings(tmp_path), start_flusher=False) as store:
        offset, found = 0, []
        while offset < store.queues.max_offset(X, 0):
            result = store.read(X, 0, offset)
            found += [bytes(view) for view in result.views]
            offset = result.next_offset
        text = b"".join(found)
        assert [body for body in bodies if body in text] == bodies[:damaged] + bodies[damaged + 1 :]
        assert store.queues.next_offset(X, 0) == 10


@pytest.mark.parametrize("rounds", [2, 3])
def test_generations_of_one_message_are_told_apart(tmp_path: Path, rounds: int) -> None:
    with MessageStore.open(small_settings(tmp_path), start_flusher=False) as store:
        for round_ in range(rounds):
            append(store, b"generation %d" % round_, topic=X)
            if round_ < rounds - 1:
                store.topics.delete(X)
    shutil.rmtree(tmp_path / "consumequeue")
    (tmp_path / "deletions").unlink()
    with MessageStore.open(small_settings(tmp_path), start_flusher=False) as store:
        assert bodies_of(store, X) == [b"generation %d" % (rounds - 1)]
