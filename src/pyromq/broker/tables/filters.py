"""The SQL92 filters of consumer groups, compiled, by topic and group.

A group's filter outlives its members for a while, so that a group that comes back finds it again.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from pyromq.clock import Clock
from pyromq.errors import BadExpression
from pyromq.filtering.sql_eval import Node, Properties
from pyromq.filtering.sql_parser import SqlFilter, compile_sql
from pyromq.protocol import names
from pyromq.protocol import properties as props
from pyromq.protocol.bodies.config_tables import (
    ConsumerFilterData,
    ConsumerFilterTable,
    FilterDataMapByTopic,
)
from pyromq.protocol.bodies.heartbeat import SubscriptionData
from pyromq.store.json_table import JsonTable

SQL92 = "SQL92"
_ASSUMED_DEAD_BEFORE_START_MS = 30_000


def is_tag_type(expression_type: str | None) -> bool:
    return not expression_type or expression_type == "TAG"


@dataclass(slots=True)
class GroupFilter:
    """A filter on one topic; `version` is that of the subscription, `dead_ms` is 0 while the group lives."""

    expression: str
    version: int
    born_ms: int
    filter: SqlFilter
    dead_ms: int = 0

    @property
    def is_dead(self) -> bool:
        return self.dead_ms >= self.born_ms


class FilterTable:
    def __init__(
        self,
        file: JsonTable,
        clock: Clock,
        keep_dead_ms: Callable[[], int],
        retries_by_origin: Callable[[], bool] = lambda: False,
    ) -> None:
        """`retries_by_origin` says whether retries pass by the filter of the topic that they come from."""
        self._file = file
        self._clock = clock
        self._keep_dead_ms = keep_dead_ms
        self._retries_by_origin = retries_by_origin
        self._filters: dict[tuple[str, str], GroupFilter] = {}
        self._is_dirty = False
        loaded = file.load(ConsumerFilterTable) or ConsumerFilterTable()
        for topic, of_topic in loaded.filter_data_by_topic.items():
            for group, data in of_topic.group_filter_data.items():
                self._load(topic, group, data)

    def __repr__(self) -> str:
        dead = sum(each.is_dead for each in self._filters.values())
        return f"<FilterTable filters={len(self._filters)} dead={dead} dirty={self._is_dirty}>"

    def __len__(self) -> int:
        return len(self._filters)

    def get(self, topic: str, group: str) -> GroupFilter | None:
        known = self._filters.get((topic, group))
        if known is None or not names.is_retry_topic(topic) or not self._retries_by_origin():
            return known
        return replace(known, filter=SqlFilter(known.expression, Node(self._origin_test(group))))

    def _origin_test(self, group: str) -> Callable[[Properties], bool]:
        def passes(properties: Properties) -> bool:
            origin = self._filters.get((properties.get(props.RETRY_TOPIC, ""), group))
            # java: what comes from where nothing is filtered passes
            return origin is None or origin.filter.matches(properties)

        return passes

    def register(self, group: str, subscriptions: Iterable[SubscriptionData]) -> list[str]:
        """Take over what a group subscribes to; the topics whose expressions cannot be compiled."""
        wanted = {
            each.topic: each for each in subscriptions if each.expression_type == SQL92 and each.sub_string
        }
        refused = [topic for topic, each in wanted.items() if not self._register(topic, group, each)]
        for (topic, each_group), known in self._filters.items():
            if each_group == group and topic not in wanted:
                self._bury(known)
        return refused

    def bury(self, group: str) -> None:
        """The last member of a group is gone."""
        for (_, each_group), known in self._filters.items():
            if each_group == group:
                self._bury(known)

    def _register(self, topic: str, group: str, wanted: SubscriptionData) -> bool:
        expression, version = wanted.sub_string or "", wanted.sub_version
        known = self._filters.get((topic, group))
        if known is not None and version <= known.version:
            # java: an older subscription never replaces a newer one; the same one brings a dead filter back
            if version == known.version:
                self._revive(known)
            return True
        if known is not None and expression == known.expression:
            known.version = version
            self._is_dirty = True
            self._revive(known)
            return True
        try:
            compiled = compile_sql(expression)
        except BadExpression:
            # Without the filter the client is told when it pulls.
            if self._filters.pop((topic, group), None) is not None:
                self._is_dirty = True
            return False
        self._filters[topic, group] = GroupFilter(expression, version, self._clock.now_ms(), compiled)
        self._is_dirty = True
        return True

    def _bury(self, known: GroupFilter) -> None:
        if not known.is_dead:
            known.dead_ms = self._clock.now_ms()
            self._is_dirty = True

    def _revive(self, known: GroupFilter) -> None:
        if known.is_dead:
            known.dead_ms = 0
            self._is_dirty = True

    # On disk

    def _load(self, topic: str, group: str, data: ConsumerFilterData) -> None:
        if data.expression_type != SQL92 or not data.expression:
            return
        try:
            compiled = compile_sql(data.expression)
        except BadExpression:
            return
        loaded = GroupFilter(data.expression, data.client_version, data.born_time, compiled, data.dead_time)
        if not loaded.is_dead:
            # java: nobody is connected yet, so everyone counts as gone until heard of
            loaded.dead_ms = max(loaded.born_ms, self._clock.now_ms() - _ASSUMED_DEAD_BEFORE_START_MS)
        self._filters[topic, group] = loaded

    def remove_long_dead(self) -> None:
        now_ms, keep_ms = self._clock.now_ms(), self._keep_dead_ms()
        for key, known in list(self._filters.items()):
            if known.is_dead and now_ms - known.dead_ms >= keep_ms:
                del self._filters[key]
                self._is_dirty = True

    def table(self) -> ConsumerFilterTable:
        table: dict[str, FilterDataMapByTopic] = {}
        for (topic, group), known in self._filters.items():
            of_topic = table.setdefault(topic, FilterDataMapByTopic(topic=topic))
            of_topic.group_filter_data[group] = ConsumerFilterData(
                topic=topic,
                consumer_group=group,
                expression=known.expression,
                expression_type=SQL92,
                client_version=known.version,
                born_time=known.born_ms,
                dead_time=known.dead_ms,
            )
        return ConsumerFilterTable(filter_data_by_topic=table)

    def persist(self) -> None:
        self.remove_long_dead()
        if self._is_dirty:
            self._file.save(self.table())
            self._is_dirty = False
