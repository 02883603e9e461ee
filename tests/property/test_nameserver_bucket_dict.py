"""A table of names in buckets behaves as a dict."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.chance import examples

from pyromq.nameserver.bucket_dict import BucketDict

names = st.integers(0, 60).map(str)
operations = st.one_of(
    st.tuples(st.just("set"), st.lists(st.tuples(names, st.integers()), max_size=30)),
    st.tuples(st.just("pop"), st.lists(names, max_size=10)),
    st.tuples(st.just("take"), st.integers(0, 20)),
)


@settings(max_examples=examples(200))
@given(st.lists(operations, max_size=20), st.integers(0, 8), st.integers(1, 4))
def test_a_table_in_buckets_has_the_entries_of_a_dict(
    steps: list[tuple[str, Any]], max_first: int, bucket_entries: int
) -> None:
    table: BucketDict[int] = BucketDict(max_first, bucket_entries)
    model: dict[str, int] = {}
    for step, details in steps:
        if step == "set":
            for name, value in details:
                table[name] = model[name] = value
        elif step == "pop":
            for name in model.keys() & set(details):
                assert table.pop(name) == model.pop(name)
        else:
            taken = list(table.take(details))
            assert len(set(taken)) == min(details, len(model))
            for name in taken:
                del model[name]
        assert sorted(table) == sorted(model)
        assert len(table) == len(model)
        assert bool(table) == bool(model)
        for name in map(str, range(61)):
            found = model.get(name)
            assert table.get(name) == found
            assert (name in table) == (found is not None)
            assert (table.first.get(name) if name in table.first else table.get_later_one(name)) == found
