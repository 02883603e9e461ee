"""What subscriptions say on the wire."""

import pytest

from pyromq.client.consumer.reading.subscriptions import Sql, Subscription
from pyromq.errors import BadExpression


@pytest.mark.parametrize("expression", ["*", "", "  "])
def test_every_way_to_say_all_is_written_as_a_star(expression: str) -> None:
    data = Subscription.of("Orders", expression, 7).data()
    assert (data.sub_string, data.expression_type, data.sub_version) == ("*", "TAG", 7)
    assert not data.tags_set
    assert not data.code_set


def test_tags_travel_with_their_hashes() -> None:
    data = Subscription.of("Orders", "TagA || TagB", 7).data()
    assert data.sub_string == "TagA || TagB"
    assert data.tags_set == {"TagA", "TagB"}
    assert data.code_set == {2598919, 2598920}


def test_an_sql_expression_travels_as_it_is() -> None:
    data = Subscription.of("Orders", Sql("price > 10"), 7).data()
    assert (data.sub_string, data.expression_type, data.tags_set) == ("price > 10", "SQL92", set())


@pytest.mark.parametrize("expression", ["||", " || ", Sql("price >"), Sql(""), None, 3])
def test_an_expression_that_cannot_be_meant_is_refused_at_once(expression: str | Sql) -> None:
    with pytest.raises(BadExpression):
        Subscription.of("Orders", expression, 7)


def test_only_the_wanted_tags_are_wanted() -> None:
    assert Subscription.of("Orders", "a||b", 0).wants("a")
    assert not Subscription.of("Orders", "a||b", 0).wants("c")
    assert not Subscription.of("Orders", "a||b", 0).wants(None)
    assert Subscription.of("Orders", "*", 0).wants(None)
