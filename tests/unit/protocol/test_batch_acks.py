"""Which offsets an acknowledgement of several messages names."""

from hypothesis import given
from hypothesis import strategies as st

from pyromq.protocol.requests.popping import BatchAck

OFFSETS = st.integers(0, 300)


@given(st.sets(st.integers(0, 200)), OFFSETS, OFFSETS, OFFSETS)
def test_each_bit_names_an_offset_and_those_outside_the_queue_are_left_out(
    bits: set[int], start: int, first: int, last: int
) -> None:
    ack = BatchAck(bit_set=packed(bits), start_offset=start)
    wanted = [start + bit for bit in sorted(bits) if first <= start + bit <= last]
    assert list(ack.offsets(first, last)) == wanted


@given(st.integers(0, 64), OFFSETS)
def test_a_whole_pop_is_named_without_a_list(count: int, start: int) -> None:
    ack = BatchAck(bit_set=packed(set(range(count))), start_offset=start)
    assert ack.offsets(0, 1000) == range(start, start + count)


def test_a_million_bits_are_read_in_one_pass() -> None:
    ack = BatchAck(bit_set=b"\x55" * 125_000, start_offset=7)
    assert ack.offsets(0, 1 << 60) == list(range(7, 1_000_007, 2))


def packed(bits: set[int]) -> bytes:
    number = sum(1 << bit for bit in bits)
    return number.to_bytes(30, "little")
