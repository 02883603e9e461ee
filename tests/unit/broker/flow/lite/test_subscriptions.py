"""Who reads which lite topics."""

from typing import Any, cast

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.chance import examples

from pyromq.broker.flow.lite.subscriptions import LiteSubscriptions
from pyromq.protocol.names import lite_queue

CHANNEL = cast(Any, object())
QUEUES = [lite_queue("parent", name) for name in "abc"]


def _join(subscriptions: LiteSubscriptions, client_id: str, topic: str = "parent", **how: bool) -> Any:
    return subscriptions.join("group", client_id, topic, CHANNEL, reads_all=how.get("reads_all", False))


@given(
    st.lists(
        st.tuples(st.sampled_from(["add", "remove", "leave"]), st.sampled_from("xyz"), st.integers(0, 2)),
        max_size=40,
    )
)
@settings(max_examples=examples(200), deadline=None)
def test_readers_are_those_who_have_subscribed(steps: list[tuple[str, str, int]]) -> None:
    subscriptions, expected = LiteSubscriptions(), dict[str, set[str]]()
    for step, client_id, number in steps:
        client, queue = _join(subscriptions, client_id), QUEUES[number]
        own = expected.setdefault(client_id, set())
        if step == "add":
            assert subscriptions.subscribe(client, queue) == (queue not in own)
            own.add(queue)
        elif step == "remove":
            assert subscriptions.unsubscribe(client, queue) == (queue in own)
            own.discard(queue)
        else:
            subscriptions.leave(client)
            own.clear()
        for each in QUEUES:
            readers = {reader.client_id for reader in subscriptions.readers(each)}
            assert readers == {name for name, queues in expected.items() if each in queues}
        assert subscriptions.count == sum(map(len, expected.values()))


def test_clients_of_a_group_that_reads_everything_share_what_is_ready() -> None:
    subscriptions = LiteSubscriptions()
    first, second = (_join(subscriptions, name, reads_all=True) for name in "xy")
    assert first.ready is second.ready
    assert list(subscriptions.readers_of_all(QUEUES[0])) == [first]
    assert list(subscriptions.readers_of_all(lite_queue("other", "a"))) == []
    subscriptions.leave(first)
    assert list(subscriptions.readers_of_all(QUEUES[0])) == [second]
    subscriptions.leave(second)
    assert list(subscriptions.readers_of_all(QUEUES[0])) == []


def test_a_client_whose_group_is_bound_to_another_topic_begins_anew() -> None:
    subscriptions = LiteSubscriptions()
    client = _join(subscriptions, "x")
    subscriptions.subscribe(client, QUEUES[0])
    again = _join(subscriptions, "x", "other")
    assert again is not client
    assert (subscriptions.count, len(subscriptions)) == (0, 1)
