"""How much memory the filters of all groups may need, and which make room."""

from pathlib import Path

import pytest

from pyromq.broker.tables import filters as filters_module
from pyromq.broker.tables.filters import SQL92, FilterTable
from pyromq.clock import ManualClock
from pyromq.filesystem import Files
from pyromq.filtering import sql_parser
from pyromq.filtering.sql_parser import SqlFilter
from pyromq.protocol.requests.membership import SubscriptionData
from pyromq.store.json_table import JsonTable

ROOM = 3 * (1024 + 48 * len("a = 1"))
"""Enough for three small filters."""


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def filters(tmp_path: Path, clock: ManualClock) -> FilterTable:
    return FilterTable(JsonTable(Files(), tmp_path / "consumerFilter.json"), clock, lambda: 1 << 60)


def _subscribed(topic: str, expression: str = "a = 1", version: int = 1) -> list[SubscriptionData]:
    return [SubscriptionData(topic=topic, sub_string=expression, expression_type=SQL92, sub_version=version)]


def test_the_longest_dead_make_room(
    filters: FilterTable, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(filters_module, "MAX_BYTES", ROOM)
    for group in ("first", "second", "alive"):
        filters.register(group, _subscribed("T"))
    for group in ("second", "first"):
        clock.advance(1)
        filters.bury(group)
    assert filters.register("new", _subscribed("T")) == {}
    assert filters.get("T", "second") is None
    assert filters.get("T", "first") is not None
    assert filters.get("T", "alive") is not None
    assert filters.size_bytes == ROOM


def test_a_filter_for_which_there_is_no_room_is_refused_and_the_others_stay(
    filters: FilterTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(filters_module, "MAX_BYTES", ROOM)
    for group in ("a", "b", "c"):
        filters.register(group, _subscribed("T"))
    assert filters.register("d", _subscribed("T")) == {
        "T": f"the filters of all groups need more than {ROOM} bytes"
    }
    assert filters.get("T", "d") is None
    assert len(filters) == 3


def test_one_group_has_a_share_only(filters: FilterTable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(filters_module, "MAX_GROUP_BYTES", ROOM)
    refused = filters.register("g", [each for topic in "TUVW" for each in _subscribed(topic)])
    assert refused == {"W": f"the filters of the group g need more than {ROOM} bytes"}
    assert filters.register("other", _subscribed("W")) == {}


def test_dead_filters_are_bounded_before_their_time_is_over(
    filters: FilterTable, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(filters_module, "MAX_DEAD_BYTES", ROOM)
    for number in range(10):
        filters.register(f"g{number}", _subscribed("T"))
        clock.advance(1)
        filters.bury(f"g{number}")
    filters.remove_long_dead()
    assert [filters.get("T", f"g{number}") is not None for number in range(10)] == [False] * 7 + [True] * 3


def test_what_is_replaced_or_refused_counts_no_longer(filters: FilterTable) -> None:
    filters.register("g", _subscribed("T", " OR ".join(["a = 1"] * 100)))
    large = filters.size_bytes
    filters.register("g", _subscribed("T", "a = 1", version=2))
    assert filters.size_bytes < large
    filters.register("g", _subscribed("T", "a =", version=3))
    assert filters.size_bytes == 0
    assert len(filters) == 0


def test_long_expressions_of_a_heartbeat_are_compiled_when_they_are_needed(
    filters: FilterTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled: list[str] = []

    def compile_sql(expression: str) -> SqlFilter:
        compiled.append(expression)
        return sql_parser.compile_sql(expression)

    monkeypatch.setattr(filters_module, "compile_sql", compile_sql)
    long = " OR ".join(["a = 1"] * 300)
    subscriptions = [each for topic in "TUVW" for each in _subscribed(topic, f"{long} OR b = '{topic}'")]
    filters.register("g", subscriptions)
    assert len(compiled) == 1
    assert filters.get("W", "g") is not None
    assert filters.get("W", "g") is not None
    assert len(compiled) == 2


def test_a_long_expression_that_cannot_be_compiled_is_missed_when_it_is_needed(filters: FilterTable) -> None:
    assert filters.register("g", _subscribed("T", "a = " + " " * 5000)) == {}
    assert filters.get("T", "g") is None
    assert len(filters) == 0
