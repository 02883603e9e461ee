"""Topics grouped by their queues: topics with equal queues on the same brokers share one `Layout`.

A hundred thousand topics on a hundred brokers are ten million pairs, but only a handful of different
layouts. Removing a broker changes layouts, not topics, and a route is encoded once for each layout. Where
many topics must be touched, `sweep` does it later, some at a time: when a large layout loses its last
broker, its topics disappear at once and are removed from the index later; when it becomes equal to another
layout, both exist until all topics have moved.
"""

from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping
from itertools import chain
from typing import NamedTuple

from pyromq.nameserver.bucket_dict import BucketDict

READABLE = 4
WRITABLE = 2


class QueueShape(NamedTuple):
    """The queues of one topic on one broker."""

    read_queues: int
    write_queues: int
    perm: int
    sys_flag: int

    @property
    def is_writable(self) -> bool:
        return self.perm & WRITABLE != 0

    @property
    def max_queues(self) -> int:
        return max(self.read_queues, self.write_queues)

    @property
    def min_queues(self) -> int:
        return min(self.read_queues, self.write_queues)

    def without_write(self) -> "QueueShape":
        return self._replace(perm=self.perm & ~WRITABLE)

    def read_and_write(self) -> "QueueShape":
        return self._replace(perm=READABLE | WRITABLE)


class EncodedRoute(NamedTuple):
    """The body of a route answer, into which parts of single topics can be inserted."""

    body: bytes
    order_configuration_at: int


_Key = tuple[tuple[str, ...], tuple[QueueShape, ...]]


class Layout:
    """Which queues are on which brokers, and all topics with these queues."""

    __slots__ = ("answers", "key", "shapes", "topics")

    def __init__(self, shapes: dict[str, QueueShape], key: _Key) -> None:
        self.shapes = shapes
        """Broker name to queues, in the order of the names."""
        self.key = key
        self.topics: BucketDict[str] = BucketDict()
        """Topic to topic: the value is the string object that all tables share."""
        self.answers: dict[Hashable, EncodedRoute] = {}
        """Encoded routes; emptied whenever one of the brokers or queues changes."""

    def __repr__(self) -> str:
        return f"<Layout brokers={len(self.shapes)} topics={len(self.topics)} answers={len(self.answers)}>"

    @property
    def first_sys_flag(self) -> int:
        return self.key[1][0].sys_flag


SWEPT_AT_ONCE = 500

Topics = Collection[str]
"""Topics whose queues changed; valid until the next change."""


class QueueLayouts:
    """Topic → layout, broker name → layouts. Nothing here scans all topics."""

    def __init__(self) -> None:
        self.of_topic: BucketDict[Layout] = BucketDict()
        self._of_first_topics = self.of_topic.first
        self._by_key: dict[_Key, Layout] = {}
        self._by_broker: dict[str, dict[Layout, None]] = {}
        self._revisions: dict[str, int] = {}
        self._revision = 0
        self._pairs = 0
        self._abandoned: list[Layout] = []
        """Layouts without brokers, whose topics are still in the index."""
        self._merging: list[Layout] = []
        """Layouts whose queues have become equal to those of the one in `_by_key`."""

    def __repr__(self) -> str:
        return f"<QueueLayouts topics={len(self)} layouts={len(self._by_key)} pairs={self._pairs}>"

    def __len__(self) -> int:
        return len(self.of_topic) - sum(len(layout.topics) for layout in self._abandoned)

    def __contains__(self, topic: str) -> bool:
        return self.find(topic) is not None

    @property
    def topics(self) -> Topics:
        if self._abandoned:
            return list(chain.from_iterable(layout.topics for layout in self.layouts))
        return self.of_topic

    @property
    def needs_sweeping(self) -> bool:
        return bool(self._abandoned or self._merging)

    def sweep(self, max_topics: int = SWEPT_AT_ONCE) -> None:
        """Remove some of the topics without brokers from the index, or move some to their new layout."""
        while self._abandoned and max_topics > 0:
            topics = self._abandoned[-1].topics
            for topic in topics.take(max_topics):
                self.of_topic.pop(topic)
                max_topics -= 1
            if not topics:
                self._abandoned.pop()
        while self._merging and max_topics > 0:
            layout = self._merging[-1]
            twin = self._by_key.setdefault(layout.key, layout) if layout.shapes else layout
            if twin is layout:
                self._merging.pop()
                continue
            for topic in layout.topics.take(max_topics):
                twin.topics[topic] = topic
                self.of_topic[topic] = twin
                max_topics -= 1
            self._drop_empty((layout,))

    @property
    def layouts(self) -> Collection[Layout]:
        if not self._merging:
            return self._by_key.values()
        return dict.fromkeys([*self._by_key.values(), *(each for each in self._merging if each.shapes)])

    @property
    def pairs(self) -> int:
        """How many (topic, broker) pairs there are."""
        return self._pairs

    def find(self, topic: str) -> Layout | None:
        layout = self._of_first_topics.get(topic) or self.of_topic.get_later_one(topic)
        return layout if layout is not None and layout.shapes else None

    def of_broker(self, broker: str) -> Collection[Layout]:
        return self._by_broker.get(broker, ())

    def topics_of_broker(self, broker: str) -> Iterator[str]:
        for layout in self.of_broker(broker):
            yield from layout.topics

    def revision_of_broker(self, broker: str) -> int:
        """A number that changes whenever a topic is added to the broker or removed from it."""
        return self._revisions.get(broker, 0)

    def put(
        self, broker: str, shapes: Iterable[tuple[str, QueueShape]], *, only_missing: bool = False
    ) -> Topics:
        """Give topics queues on a broker; `only_missing` skips topics that the broker already has."""
        changed: dict[str, None] = {}
        moves: dict[tuple[Layout | None, QueueShape], Layout | None] = {}
        appeared = 0
        of_topic = self.of_topic
        # Consecutive topics mostly move alike: reuse the last result.
        source: Layout | None = None
        shape: QueueShape | None = None
        target: Layout | None = None
        for topic, wanted in shapes:
            found = of_topic.get(topic)
            if found is not source or wanted is not shape:
                source, shape = found, wanted
                if (source, shape) not in moves:
                    moves[source, shape] = self._target(source, broker, shape, only_missing)
                target = moves[source, shape]
            if target is None:
                continue
            if source is None:
                appeared += 1
            else:
                # The same topic comes as a new string with each registration: keep the first one.
                topic = source.topics.pop(topic)
                if broker not in source.shapes:
                    appeared += 1
            target.topics[topic] = topic
            of_topic[topic] = target
            changed[topic] = None
        self._drop_empty(source for source, _ in moves if source is not None)
        if appeared:
            self._note(broker, appeared)
        return changed

    def _target(
        self, source: Layout | None, broker: str, shape: QueueShape, only_missing: bool
    ) -> Layout | None:
        """The new layout of a topic that gets these queues; None if it stays in this layout."""
        if source is None:
            return self._layout({broker: shape})
        existing = source.shapes.get(broker)
        if existing is not None and (only_missing or existing == shape):
            return None
        return self._layout(_with(source.shapes, broker, shape))

    def remove(self, broker: str, topics: Iterable[str]) -> Topics:
        """Remove a broker's queues from some topics; a topic without queues is removed."""
        changed: dict[str, None] = {}
        targets: dict[Layout, Layout | None] = {}
        for name in topics:
            source = self.of_topic.get(name)
            if source is None or broker not in source.shapes:
                continue
            topic = source.topics.pop(name)
            if source not in targets:
                rest = _without(source.shapes, broker)
                targets[source] = self._layout(rest) if rest else None
            target = targets[source]
            if target is None:
                self.of_topic.pop(topic)
            else:
                target.topics[topic] = topic
                self.of_topic[topic] = target
            changed[topic] = None
        self._drop_empty(targets)
        if changed:
            self._note(broker, -len(changed))
        return changed

    def remove_topic(self, topic: str) -> Topics:
        layout = self.find(topic)
        if layout is None:
            return ()
        self.of_topic.pop(topic)
        layout.topics.pop(topic)
        for broker in layout.shapes:
            self._note(broker, -1)
        self._drop_empty((layout,))
        return (topic,)

    def remove_broker(self, broker: str) -> list[Topics]:
        changed: list[Topics] = []
        forgotten = 0
        for layout in self._by_broker.pop(broker, ()):
            changed.append(layout.topics)
            self._pairs -= len(layout.topics)
            rest = _without(layout.shapes, broker)
            if rest:
                self._relabel(layout, rest)
            else:
                self._forget(layout)
                layout.shapes = {}
                layout.answers.clear()
                forgotten += len(layout.topics)
                if forgotten > SWEPT_AT_ONCE:
                    self._abandoned.append(layout)
                    continue
                for topic in layout.topics:
                    self.of_topic.pop(topic)
        self._revisions.pop(broker, None)
        return changed

    def reshape(self, broker: str, change: Callable[[QueueShape], QueueShape]) -> list[Topics]:
        """Change a broker's queues in all of its topics; `change` must be idempotent."""
        changed: list[Topics] = []
        for layout in list(self.of_broker(broker)):
            before = layout.shapes[broker]
            after = change(before)
            if after != before:
                changed.append(layout.topics)
                self._relabel(layout, _with(layout.shapes, broker, after))
        return changed

    def forget_answers_of(self, broker: str) -> list[Topics]:
        """Drop the encoded routes of a broker's topics; returns these topics."""
        changed: list[Topics] = []
        for layout in self.of_broker(broker):
            layout.answers.clear()
            changed.append(layout.topics)
        return changed

    def forget_all_answers(self) -> None:
        for layout in self.layouts:
            layout.answers.clear()

    def _layout(self, shapes: dict[str, QueueShape]) -> Layout:
        key = _key_of(shapes)
        layout = self._by_key.get(key)
        if layout is None:
            layout = self._by_key[key] = Layout(shapes, key)
            for broker in shapes:
                self._by_broker.setdefault(broker, {})[layout] = None
        return layout

    def _relabel(self, layout: Layout, shapes: dict[str, QueueShape]) -> None:
        """Give all topics of a layout new queues at once, if possible without touching each topic.

        The brokers stay the same, or one of them is missing and has been removed from the index already.
        """
        key = _key_of(shapes)
        twin = self._by_key.get(key)
        if twin is not None and len(layout.topics) <= SWEPT_AT_ONCE:
            self._forget(layout)
            for topic in layout.topics:
                twin.topics[topic] = topic
                self.of_topic[topic] = twin
            return
        self._forget_key(layout)
        layout.shapes, layout.key = shapes, key
        layout.answers.clear()
        if self._by_key.setdefault(key, layout) is not layout and layout not in self._merging:
            self._merging.append(layout)

    def _forget_key(self, layout: Layout) -> None:
        if self._by_key.get(layout.key) is layout:
            del self._by_key[layout.key]

    def _forget(self, layout: Layout) -> None:
        self._forget_key(layout)
        for broker in layout.shapes:
            layouts = self._by_broker.get(broker)
            if layouts is not None:
                layouts.pop(layout, None)
                if not layouts:
                    del self._by_broker[broker]

    def _drop_empty(self, layouts: Iterable[Layout]) -> None:
        for layout in layouts:
            if not layout.topics:
                self._forget(layout)
                if layout in self._merging:
                    self._merging.remove(layout)

    def _note(self, broker: str, appeared: int) -> None:
        self._revision += 1
        self._revisions[broker] = self._revision
        self._pairs += appeared


def _with(shapes: Mapping[str, QueueShape], broker: str, shape: QueueShape) -> dict[str, QueueShape]:
    # java: the order is that of a hash table; ours is by name, the same on every name server
    changed = {**shapes, broker: shape}
    return changed if broker in shapes else dict(sorted(changed.items()))


def _without(shapes: Mapping[str, QueueShape], broker: str) -> dict[str, QueueShape]:
    return {each: shape for each, shape in shapes.items() if each != broker}


def _key_of(shapes: dict[str, QueueShape]) -> _Key:
    return tuple(shapes), tuple(shapes.values())
