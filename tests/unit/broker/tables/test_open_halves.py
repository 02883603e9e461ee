"""The table of open half messages against plain dictionaries."""

from hypothesis import given
from hypothesis import strategies as st

from pyromq.broker.tables import open_halves
from pyromq.broker.tables.open_halves import OpenHalves

KEYS = [0, 1, -1, 5, 5 + open_halves._ROWS, 5 - open_halves._ROWS, 2**63 - 1, -(2**63)]
"""Some share a row, and some look like offsets."""

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.integers(1, 3), st.sampled_from([None, *KEYS])),
        st.tuples(st.just("close"), st.integers(0, 80), st.none()),
    ),
    max_size=80,
)


@given(STEPS)
def test_it_is_a_dictionary_in_the_order_of_offsets(steps: list[tuple[str, int, int | None]]) -> None:
    table, model, copies, end = OpenHalves(), dict[int, int | None](), dict[int, int](), 0
    for what, number, key in steps:
        if what == "add":
            end += number
            if key is not None:
                if (superseded := copies.get(key)) is not None:
                    assert table.close(superseded, key)
                    del model[superseded]
                copies[key] = end
            table.add(end, key)
            model[end] = key
        else:
            assert table.close(number, model.get(number)) == (number in model)
            if (closed := model.pop(number, None)) is not None:
                del copies[closed]
        assert len(table) == len(model)
        assert table.from_offset(0) == min(model, default=None)
    for offset in range(end + 2):
        assert table.is_open(offset) == (offset in model)
        assert table.from_offset(offset) == min((each for each in model if each >= offset), default=None)
    for each in KEYS:
        assert table.find_copy(each) == copies.get(each)
    assert bool(table._copies) == bool(copies), "closed copies give their memory back"


def test_closed_entries_give_their_memory_back() -> None:
    table, count = OpenHalves(), 3 * open_halves._BLOCK
    for offset in range(count):
        table.add(offset)
    for offset in range(count):
        if offset % 1000:
            assert table.close(offset)
    assert [len(block.offsets) < open_halves._BLOCK for block in table._blocks] == [True] * 3
    assert [offset for offset in range(count) if table.is_open(offset)] == list(range(0, count, 1000))
    assert table.from_offset(2001) == 3000


def test_a_copy_that_the_log_lost_is_not_found() -> None:
    table = OpenHalves()
    table.add(3, 77)
    assert table.close(3)
    assert table.find_copy(77) is None
    table.add(4, 77)
    assert table.find_copy(77) == 4


def test_a_search_touches_one_row_of_many() -> None:
    table, count = OpenHalves(), 4 * open_halves._ROWS
    for offset in range(count):
        table.add(offset, offset * 31)
    assert max(len(row) for row in table._copies._rows.values()) <= 2 * 4
    assert table.find_copy(31 * (count - 1)) == count - 1
