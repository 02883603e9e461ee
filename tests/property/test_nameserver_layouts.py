"""Layouts against a table of tables: grouping topics must never show."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from pyromq.nameserver.queue_layouts import QueueLayouts, QueueShape

BROKERS = ["a", "b", "c"]
TOPICS = [f"t{number}" for number in range(6)]
brokers = st.sampled_from(BROKERS)
shapes = st.sampled_from([QueueShape(4, 4, 6, 0), QueueShape(4, 4, 4, 0), QueueShape(8, 8, 7, 1)])
some_topics = st.lists(st.sampled_from(TOPICS), max_size=6)

operations = st.one_of(
    st.tuples(st.just("put"), brokers, st.lists(st.tuples(st.sampled_from(TOPICS), shapes)), st.booleans()),
    st.tuples(st.just("remove"), brokers, some_topics),
    st.tuples(st.just("remove_topic"), st.sampled_from(TOPICS)),
    st.tuples(st.just("remove_broker"), brokers),
    st.tuples(st.just("wipe"), brokers),
    st.tuples(st.just("allow"), brokers),
)


class Plain:
    def __init__(self) -> None:
        self.table: dict[str, dict[str, QueueShape]] = {}

    def put(self, broker: str, entries: list[tuple[str, QueueShape]], only_missing: bool) -> None:
        for topic, shape in entries:
            queues = self.table.setdefault(topic, {})
            if not (only_missing and broker in queues):
                queues[broker] = shape

    def remove(self, broker: str, topics: list[str]) -> None:
        for topic in topics:
            self.table.get(topic, {}).pop(broker, None)
        self.table = {topic: queues for topic, queues in self.table.items() if queues}

    def remove_topic(self, topic: str) -> None:
        self.table.pop(topic, None)

    def remove_broker(self, broker: str) -> None:
        self.remove(broker, TOPICS)

    def wipe(self, broker: str) -> None:
        self._reshape(broker, QueueShape.without_write)

    def allow(self, broker: str) -> None:
        self._reshape(broker, QueueShape.read_and_write)

    def _reshape(self, broker: str, change: Any) -> None:
        for queues in self.table.values():
            if broker in queues:
                queues[broker] = change(queues[broker])


def _apply(layouts: QueueLayouts, name: str, *details: Any) -> set[str]:
    if name == "put":
        broker, entries, only_missing = details
        return set(layouts.put(broker, entries, only_missing=only_missing))
    if name == "remove":
        return set(layouts.remove(*details))
    if name == "remove_topic":
        return set(layouts.remove_topic(*details))
    if name == "remove_broker":
        return set().union(*layouts.remove_broker(*details))
    change = QueueShape.without_write if name == "wipe" else QueueShape.read_and_write
    return set().union(*layouts.reshape(details[0], change))


@given(st.lists(operations, max_size=30))
def test_layouts_hold_what_a_plain_table_holds(steps: list[tuple[Any, ...]]) -> None:
    plain, layouts = Plain(), QueueLayouts()
    for name, *details in steps:
        before = {topic: dict(queues) for topic, queues in plain.table.items()}
        revisions = {broker: layouts.revision_of_broker(broker) for broker in BROKERS}
        held = {broker: set(layouts.topics_of_broker(broker)) for broker in BROKERS}
        getattr(plain, name)(*details)
        changed = _apply(layouts, name, *details)

        assert {topic: layout.shapes for topic in layouts.topics if (layout := layouts.find(topic))} == (
            plain.table
        )
        differing = {
            topic
            for topic in before.keys() | plain.table.keys()
            if before.get(topic) != plain.table.get(topic)
        }
        assert changed >= differing
        if name != "put":  # The same topic twice in one put may change and change back.
            assert changed == differing
        assert layouts.pairs == sum(map(len, plain.table.values()))
        for broker in BROKERS:
            topics = {topic for topic, queues in plain.table.items() if broker in queues}
            assert set(layouts.topics_of_broker(broker)) == topics
            if topics != held[broker]:
                assert layouts.revision_of_broker(broker) != revisions[broker]
        keys = [layout.key for layout in layouts.layouts]
        assert len(set(keys)) == len(keys)
        assert all(layout.topics for layout in layouts.layouts)
