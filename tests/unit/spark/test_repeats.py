"""Which messages are repeated is decided by those before them, however they are cut into chunks."""

from itertools import pairwise

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from pyromq.spark.repeats import Repeats

IDS = st.lists(st.sampled_from("abcdefgh"), max_size=60)


@given(ids=IDS, window=st.integers(1, 20), cuts=st.sets(st.integers(0, 60)))
def test_a_message_is_left_out_if_its_id_is_among_those_before_it(
    ids: list[str], window: int, cuts: set[int]
) -> None:
    repeats = Repeats(window)
    found: list[bool] = []
    edges = sorted({0, len(ids), *(cut for cut in cuts if cut < len(ids))})
    for low, high in pairwise(edges):
        offsets = pa.array(range(100 + low, 100 + high), pa.int64())
        found += repeats.first_ones(pa.array(ids[low:high], pa.string()), offsets)
    assert found == [ids[place] not in ids[max(place - window, 0) : place] for place in range(len(ids))]


def test_ids_out_of_the_window_are_forgotten() -> None:
    repeats = Repeats(10)
    for start in range(0, 1000, 50):
        texts = pa.array([str(number) for number in range(start, start + 50)], pa.string())
        assert all(repeats.first_ones(texts, pa.array(range(start, start + 50), pa.int64())))
    assert "ids=11" in repr(repeats)
