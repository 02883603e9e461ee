"""Epochs of a log: which part of it which master wrote."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyromq.errors import StoreError
from pyromq.store.log.epochs import (
    MAX_EPOCHS,
    Epoch,
    Epochs,
    agreed_end,
    begin_epoch,
    cut_epochs,
    decode_epochs,
    encode_epochs,
    epoch_at,
    epochs_from,
)

TWO = (Epoch(7, 7000), Epoch(8, 8000))


def test_the_file_is_that_of_rocketmq() -> None:
    assert encode_epochs(TWO) == b"2\n773307083\n7-7000\n8-8000\n"
    assert decode_epochs(b"2\n773307083\n7-7000\n8-8000\n") == TWO


def test_a_checksum_of_zero_is_not_checked() -> None:
    assert decode_epochs(b"2\n0\n7-7000\n8-8000\n") == TWO


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"2\n",
        b"x\n0\n7-7000\n",
        b"2\n773307083\n7-7000\n",
        b"2\n773307084\n7-7000\n8-8000\n",
        b"1\n0\n7-7000\nsomething\n",
        b"\xff\xfe",
    ],
)
def test_a_damaged_file_is_not_read(data: bytes) -> None:
    with pytest.raises(StoreError):
        decode_epochs(data)


@given(st.lists(st.tuples(st.integers(0, 2**31 - 1), st.integers(0, 2**63 - 1)), max_size=20))
def test_epochs_survive_the_file(pairs: list[tuple[int, int]]) -> None:
    epochs = tuple(Epoch(*pair) for pair in pairs)
    assert decode_epochs(encode_epochs(epochs)) == epochs


def test_an_epoch_that_begins_where_the_last_one_began_is_recorded_too() -> None:
    assert begin_epoch(TWO, 9, 8000) == (*TWO, Epoch(9, 8000))


def test_a_master_that_wrote_alone_parts_from_the_next_one_where_both_began() -> None:
    """RocketMQ does not record the later epoch, and takes the two logs for equal."""
    returned = (Epoch(1, 0), Epoch(2, 100))
    successor = begin_epoch(returned, 3, 100)
    assert agreed_end(returned, 180, successor, 170) == 100


def test_epochs_without_a_record_are_forgotten_when_there_are_too_many() -> None:
    epochs: Epochs = (Epoch(1, 0),)
    for number in range(2, 3 * MAX_EPOCHS):
        epochs = begin_epoch(epochs, number, 1000)
        assert len(epochs) <= MAX_EPOCHS
    assert epochs[0] == Epoch(1, 0)
    assert epochs[-1] == Epoch(3 * MAX_EPOCHS - 1, 1000)


def test_the_epoch_of_a_place_is_the_newest_that_began_there_or_before() -> None:
    epochs = (*TWO, Epoch(9, 8000))
    assert [epoch_at(epochs, offset) for offset in (6999, 7000, 7999, 8000)] == [None, 0, 0, 2]


@pytest.mark.parametrize("number", [7, 8])
def test_an_epoch_must_be_newer_than_the_last(number: int) -> None:
    with pytest.raises(StoreError, match="cannot follow"):
        begin_epoch(TWO, number, 9000)


def test_a_cut_log_keeps_the_epochs_it_has_records_of() -> None:
    assert cut_epochs(TWO, 8001) == TWO
    assert cut_epochs(TWO, 8000) == TWO[:1]
    assert cut_epochs(TWO, 7000) == ()


def test_deleted_files_take_their_epochs_along() -> None:
    assert epochs_from(TWO, 7999) == TWO
    assert epochs_from(TWO, 8000) == TWO[1:]
    assert epochs_from(TWO, 99999) == TWO[1:]


def test_logs_agree_up_to_the_shorter_end_of_their_newest_common_epoch() -> None:
    assert agreed_end(TWO, 9000, TWO, 8500) == 8500
    assert agreed_end(TWO, 9000, (*TWO, Epoch(9, 8200)), 9900) == 8200
    assert agreed_end(TWO, 9000, (Epoch(7, 7000), Epoch(9, 8000)), 9900) == 8000
    assert agreed_end(TWO, 9000, (Epoch(7, 7000), Epoch(9, 7500)), 9900) == 7500
    assert agreed_end(TWO, 9000, (Epoch(3, 0),), 9900) is None
    assert agreed_end((), 0, TWO, 9000) is None


Log = list[int]
"""The epoch of each record: a record is known by its epoch and its offset, for an epoch has one master."""


def epochs_of(log: Log) -> Epochs:
    found: Epochs = ()
    for offset, epoch in enumerate(log):
        if not found or found[-1].number != epoch:
            found = begin_epoch(found, epoch, offset)
    return found


@given(
    common=st.lists(st.integers(1, 2), max_size=8).map(sorted),
    own=st.lists(st.sampled_from([3, 5]), max_size=8).map(sorted),
    other=st.lists(st.sampled_from([4, 6]), max_size=8).map(sorted),
)
def test_logs_that_parted_agree_exactly_up_to_where_they_parted(common: Log, own: Log, other: Log) -> None:
    ours, theirs = common + own, common + other
    agreed = agreed_end(epochs_of(ours), len(ours), epochs_of(theirs), len(theirs))
    assert agreed == (len(common) if ours and theirs else None)
