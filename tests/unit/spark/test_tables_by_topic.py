"""The directories of tables that are called after topics."""

import re

from hypothesis import given
from hypothesis import strategies as st

from pyromq.spark.pipelines.tables_by_topic import directory_of

topics = st.from_regex(r"[%|a-zA-Z0-9_-]{1,12}", fullmatch=True)


@given(topics, topics)
def test_topics_have_directories_of_their_own_that_need_no_escapes(one: str, other: str) -> None:
    assert re.fullmatch(r"[a-zA-Z0-9-.][a-zA-Z0-9_.-]*", directory_of(one))
    assert (directory_of(one) == directory_of(other)) == (one == other)


def test_ordinary_topics_are_called_what_they_are_called() -> None:
    assert directory_of("shop-public_orders") == "shop-public_orders"
    assert directory_of("ns%orders") == "ns.25orders"
    assert directory_of("_changes") == ".5Fchanges"
