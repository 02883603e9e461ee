"""The table of open half messages against a plain dictionary."""

from hypothesis import given
from hypothesis import strategies as st

from pyromq.broker.tables import open_halves
from pyromq.broker.tables.open_halves import OpenHalves


def key(number: int) -> bytes:
    return number.to_bytes(8, "big")


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.integers(1, 3), st.integers(0, 9)),
        st.tuples(st.just("close"), st.integers(0, 80), st.just(0)),
    ),
    max_size=80,
)


@given(STEPS)
def test_it_is_a_dictionary_in_the_order_of_offsets(steps: list[tuple[str, int, int]]) -> None:
    table, model, end = OpenHalves(), dict[int, bytes](), 0
    for what, number, name in steps:
        if what == "add":
            end += number
            table.add(end, key(name))
            model[end] = key(name)
        else:
            assert table.close(number) == (model.pop(number, None) is not None)
        assert len(table) == len(model)
        assert table.from_offset(0) == min(model, default=None)
    for offset in range(end + 2):
        assert table.is_open(offset) == (offset in model)
        assert table.from_offset(offset) == min((each for each in model if each >= offset), default=None)
    for name in range(10):
        found = table.find(key(name))
        assert (found is None) == (key(name) not in model.values())
        assert found is None or model[found] == key(name)


def test_closed_entries_give_their_memory_back() -> None:
    table, count = OpenHalves(), 3 * open_halves._BLOCK
    for offset in range(count):
        table.add(offset, key(offset))
    for offset in range(count):
        if offset % 1000:
            assert table.close(offset)
    assert [len(block.offsets) < open_halves._BLOCK for block in table._blocks] == [True] * 3
    assert [offset for offset in range(count) if table.is_open(offset)] == list(range(0, count, 1000))
    assert table.find(key(2000)) == 2000
    assert table.from_offset(2001) == 3000


def test_a_key_across_two_others_is_not_found() -> None:
    table = OpenHalves()
    table.add(0, b"\0" * 7 + b"a")
    table.add(1, b"b" + b"\0" * 7)
    assert table.find(b"ab" + b"\0" * 6) is None
    assert table.find(b"\0" * 6 + b"ab") is None
