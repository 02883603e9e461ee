"""The stream under a controller is read the same however it was split, and has Apache's bytes."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.chance import examples

from pyromq.errors import RemoteProtocolError
from pyromq.protocol.epoch_replication import (
    FRAME_HEADER_BYTES,
    LogFrame,
    MasterGreeting,
    MasterReader,
    ReplicaGreeting,
    ReplicaReader,
    encode_report,
)

OFFSETS = st.integers(0, (1 << 62) - 1)
NUMBERS = st.integers(0, (1 << 31) - 1)
CUTS = st.lists(st.integers(0, 400), max_size=8)
FRAMES = st.tuples(st.builds(LogFrame, OFFSETS, NUMBERS, OFFSETS, OFFSETS), st.binary(max_size=60))
GREETINGS = st.builds(MasterGreeting, OFFSETS, st.lists(st.tuples(NUMBERS, OFFSETS), max_size=5).map(tuple))
FROM_REPLICA = st.one_of(st.builds(ReplicaGreeting, OFFSETS, st.booleans(), st.booleans()), OFFSETS)


def split(stream: bytes, cuts: list[int]) -> list[bytes]:
    places = sorted({0, *(min(cut, len(stream)) for cut in cuts), len(stream)})
    return [stream[a:b] for a, b in pairwise(places)]


def test_a_replica_greets_with_apaches_bytes() -> None:
    greeting = ReplicaGreeting(0x0102030405060708, from_last_file=False, is_learner=True)
    assert greeting.encode() == bytes([0, 0, 0, 1, 0, 0, 0, 1, *range(1, 9)])
    assert encode_report(0x0102030405060708) == bytes([0, 0, 0, 2, *range(1, 9)])


def test_a_master_greets_with_its_epochs() -> None:
    greeting = MasterGreeting(500, ((3, 0), (4, 200)))
    assert greeting.encode() == (
        b"\0\0\0\1\0\0\0\x18"
        + (500).to_bytes(8)
        + b"\0\0\0\4"
        + b"\0\0\0\3"
        + bytes(8)
        + b"\0\0\0\4"
        + (200).to_bytes(8)
    )


def test_a_frame_has_its_epoch_and_the_confirm_offset() -> None:
    head = LogFrame(1000, 7, 600, 900).encode(5)
    assert len(head) == FRAME_HEADER_BYTES == 36
    numbers = [int.from_bytes(head[a:b]) for a, b in pairwise((0, 4, 8, 16, 20, 28, 36))]
    assert numbers == [2, 5, 1000, 7, 600, 900]


@settings(max_examples=examples(200))
@given(st.lists(FROM_REPLICA, max_size=6), CUTS)
def test_a_replica_is_understood_however_the_stream_is_split(
    said: list[ReplicaGreeting | int], cuts: list[int]
) -> None:
    stream = b"".join(encode_report(each) if isinstance(each, int) else each.encode() for each in said)
    reader = ReplicaReader()
    assert [each for piece in split(stream, cuts) for each in reader.feed(piece)] == said


@settings(max_examples=examples(200))
@given(st.lists(st.one_of(FRAMES, GREETINGS), max_size=6), CUTS)
def test_a_master_is_understood_however_the_stream_is_split(
    said: list[tuple[LogFrame, bytes] | MasterGreeting], cuts: list[int]
) -> None:
    stream = b"".join(
        each.encode() if isinstance(each, MasterGreeting) else each[0].encode(len(each[1])) + each[1]
        for each in said
    )
    reader = MasterReader()
    heard = [each for piece in split(stream, cuts) for each in reader.feed(piece)]
    whole: list[tuple[LogFrame, bytes] | MasterGreeting] = []
    for each in heard:
        last = whole[-1] if whole else None
        if isinstance(each, MasterGreeting):
            whole.append(each)
        elif (
            isinstance(last, tuple)
            and not isinstance(last, MasterGreeting)
            and each[0] == last[0]._replace(offset=last[0].offset + len(last[1]))
            and last[1]
            and each[1]
        ):
            whole[-1] = (last[0], last[1] + bytes(each[1]))
        else:
            whole.append((each[0], bytes(each[1])))
    assert b"".join(each[1] for each in whole if not isinstance(each, MasterGreeting)) == b"".join(
        each[1] for each in said if not isinstance(each, MasterGreeting)
    )
    assert [each for each in whole if isinstance(each, MasterGreeting)] == [
        each for each in said if isinstance(each, MasterGreeting)
    ]


@settings(max_examples=examples(200))
@given(st.binary(max_size=200), CUTS)
def test_any_bytes_are_understood_or_refused(stream: bytes, cuts: list[int]) -> None:
    for reader in (MasterReader(), ReplicaReader()):
        try:
            for piece in split(stream, cuts):
                for _ in reader.feed(piece):
                    pass
        except RemoteProtocolError:
            continue


def test_an_empty_master_of_apache_sends_heartbeats_at_minus_one() -> None:
    assert list(MasterReader().feed(LogFrame(-1, 1, 0, 0).encode(0))) == [
        (LogFrame(-1, 1, 0, 0), memoryview(b""))
    ]
    with pytest.raises(RemoteProtocolError, match="-1"):
        list(MasterReader().feed(LogFrame(-1, 1, 0, 0).encode(5)))


def test_a_replica_without_a_controller_is_told_apart() -> None:
    with pytest.raises(RemoteProtocolError, match="state 1 or 2"):
        list(ReplicaReader().feed((12345).to_bytes(8)))
