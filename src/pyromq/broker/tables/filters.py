"""The SQL92 filters of consumer groups, compiled, by topic and group.

The filter of a group without members is kept for a while, in case the group returns. The memory of all
filters is limited: filters of groups without members are removed first, the oldest before the others.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

from pyromq.broker.tables.table_file import FiledTable, TableFile
from pyromq.clock import Clock
from pyromq.errors import BadExpression
from pyromq.filtering.sql_eval import Node, Properties
from pyromq.filtering.sql_parser import SqlFilter, compile_sql
from pyromq.protocol import names
from pyromq.protocol import properties as props
from pyromq.protocol.config_tables import ConsumerFilterData, ConsumerFilterTable, FilterDataMapByTopic
from pyromq.protocol.requests.membership import SubscriptionData
from pyromq.store.json_table import JsonTable

SQL92 = "SQL92"
MAX_BYTES = 64 * 1024 * 1024
"""Memory limit for the filters of all groups."""
MAX_GROUP_BYTES = 8 * 1024 * 1024
MAX_DEAD_BYTES = 16 * 1024 * 1024

_ASSUMED_DEAD_BEFORE_START_MS = 30_000
_BYTES_PER_FILTER = 1024
_BYTES_PER_CHAR = 48
_COMPILED_AT_ONCE_CHARS = 4096
"""This much of a heartbeat's expressions is compiled at once, the rest on first use."""


def is_tag_type(expression_type: str | None) -> bool:
    return not expression_type or expression_type == "TAG"


@dataclass(slots=True)
class GroupFilter:
    """A filter on one topic; `version` is that of the subscription, `dead_ms` is 0 while the group lives."""

    expression: str
    version: int
    born_ms: int
    compiled: SqlFilter | None = None
    """None until first use."""
    dead_ms: int = 0

    @property
    def is_dead(self) -> bool:
        return self.dead_ms >= self.born_ms

    @property
    def filter(self) -> SqlFilter:
        """Raises BadExpression."""
        if self.compiled is None:
            self.compiled = compile_sql(self.expression)
        return self.compiled

    @property
    def size_bytes(self) -> int:
        """Approximate memory, mostly of the compiled expression."""
        return _BYTES_PER_FILTER + _BYTES_PER_CHAR * len(self.expression)


class FilterTable(FiledTable):
    def __init__(
        self,
        file: JsonTable,
        clock: Clock,
        keep_dead_ms: Callable[[], int],
        retries_by_origin: Callable[[], bool] = lambda: False,
    ) -> None:
        """`retries_by_origin`: whether retries are matched against the filter for their original topic."""
        self._file = TableFile(file, self.table)
        self._clock = clock
        self._keep_dead_ms = keep_dead_ms
        self._retries_by_origin = retries_by_origin
        self._groups: dict[str, dict[str, GroupFilter]] = {}
        """By group and topic."""
        self.size_bytes = 0
        self._is_dirty = False
        loaded = file.load(ConsumerFilterTable) or ConsumerFilterTable()
        for topic, of_topic in loaded.filter_data_by_topic.items():
            for group, data in of_topic.group_filter_data.items():
                self._load(topic, group, data)

    def __repr__(self) -> str:
        dead = sum(known.is_dead for _, _, known in self._all())
        return f"<FilterTable filters={len(self)} dead={dead} bytes={self.size_bytes} dirty={self._is_dirty}>"

    def __len__(self) -> int:
        return sum(map(len, self._groups.values()))

    def _all(self) -> Iterator[tuple[str, str, GroupFilter]]:
        for group, of_group in self._groups.items():
            for topic, known in of_group.items():
                yield group, topic, known

    def _find(self, group: str, topic: str) -> GroupFilter | None:
        return self._groups.get(group, {}).get(topic)

    def get(self, topic: str, group: str) -> GroupFilter | None:
        """The compiled filter; None if there is none or it does not compile."""
        known = self._find(group, topic)
        if known is None:
            return None
        try:
            known.filter  # noqa: B018  compiles it
        except BadExpression:
            self._remove(group, topic)
            return None
        if not names.is_retry_topic(topic) or not self._retries_by_origin():
            return known
        by_origin = SqlFilter(
            known.expression, Node(self._origin_test(group)), reads_body=self._reads_body(group)
        )
        return replace(known, compiled=by_origin)

    def _reads_body(self, group: str) -> bool:
        try:
            return any(known.filter.reads_body for known in self._groups.get(group, {}).values())
        except BadExpression:
            return True

    def _origin_test(self, group: str) -> Callable[[Properties], bool]:
        def passes(properties: Properties) -> bool:
            origin = self.get(properties.get(props.RETRY_TOPIC, ""), group)
            # java: messages of a topic without filter pass
            return origin is None or origin.filter.matches(properties)

        return passes

    def register(self, group: str, subscriptions: Iterable[SubscriptionData]) -> dict[str, str]:
        """Apply the subscriptions of a group; returns the refused topics with the reasons."""
        wanted = {
            each.topic: each for each in subscriptions if each.expression_type == SQL92 and each.sub_string
        }
        refused: dict[str, str] = {}
        chars = 0
        for topic, each in wanted.items():
            chars += len(each.sub_string or "")
            try:
                self._register(topic, group, each, at_once=chars <= _COMPILED_AT_ONCE_CHARS)
            except BadExpression as problem:
                # The client gets an error when it pulls without the filter.
                refused[topic] = str(problem)
                if self._find(group, topic) is not None:
                    self._remove(group, topic)
        for topic, known in self._groups.get(group, {}).items():
            if topic not in wanted:
                self._bury(known)
        return refused

    def bury(self, group: str) -> None:
        """The last member of a group has left."""
        for known in self._groups.get(group, {}).values():
            self._bury(known)

    def _register(self, topic: str, group: str, wanted: SubscriptionData, *, at_once: bool) -> None:
        expression, version = wanted.sub_string or "", wanted.sub_version
        known = self._find(group, topic)
        if known is not None and version <= known.version:
            # java: an older subscription never replaces a newer one; the same one brings a dead filter back
            if version == known.version:
                self._revive(known)
            return
        if known is not None and expression == known.expression:
            known.version = version
            self._is_dirty = True
            self._revive(known)
            return
        compiled = compile_sql(expression) if at_once else None
        if known is not None:
            self._remove(group, topic)
        self._add(group, topic, GroupFilter(expression, version, self._clock.now_ms(), compiled))
        self._is_dirty = True

    def _add(self, group: str, topic: str, added: GroupFilter) -> None:
        """Keep a filter; raises BadExpression if it exceeds the memory limits."""
        of_group = self._groups.get(group, {})
        if added.size_bytes + sum(each.size_bytes for each in of_group.values()) > MAX_GROUP_BYTES:
            raise BadExpression(f"the filters of the group {group} need more than {MAX_GROUP_BYTES} bytes")
        if self.size_bytes + added.size_bytes > MAX_BYTES:
            self._remove_dead(MAX_BYTES - self.size_bytes - added.size_bytes)
            if self.size_bytes + added.size_bytes > MAX_BYTES:
                raise BadExpression(f"the filters of all groups need more than {MAX_BYTES} bytes")
        self._groups.setdefault(group, {})[topic] = added
        self.size_bytes += added.size_bytes

    def _remove(self, group: str, topic: str) -> None:
        of_group = self._groups[group]
        self.size_bytes -= of_group.pop(topic).size_bytes
        if not of_group:
            del self._groups[group]
        self._is_dirty = True

    def _remove_dead(self, spare_bytes: int) -> None:
        """Remove the oldest dead filters until `spare_bytes` is no longer negative."""
        dead = sorted(((known.dead_ms, group, topic) for group, topic, known in self._all() if known.is_dead))
        for _, group, topic in dead:
            if spare_bytes >= 0:
                return
            spare_bytes += self._groups[group][topic].size_bytes
            self._remove(group, topic)

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
        loaded = GroupFilter(data.expression, data.client_version, data.born_time, dead_ms=data.dead_time)
        if not loaded.is_dead:
            # java: no client is connected yet, so every group counts as dead until its heartbeat
            loaded.dead_ms = max(loaded.born_ms, self._clock.now_ms() - _ASSUMED_DEAD_BEFORE_START_MS)
        try:
            self._add(group, topic, loaded)
        except BadExpression:
            return

    def remove_long_dead(self) -> None:
        """Remove dead filters: after a while, or sooner if they need too much memory."""
        now_ms, keep_ms = self._clock.now_ms(), self._keep_dead_ms()
        dead = [(group, topic, known) for group, topic, known in self._all() if known.is_dead]
        dead_bytes = 0
        for group, topic, known in dead:
            if now_ms - known.dead_ms >= keep_ms:
                self._remove(group, topic)
            else:
                dead_bytes += known.size_bytes
        self._remove_dead(MAX_DEAD_BYTES - dead_bytes)

    def table(self) -> ConsumerFilterTable:
        table: dict[str, FilterDataMapByTopic] = {}
        for group, topic, known in self._all():
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
        """Write what has changed; under a loop a thread does so."""
        self.remove_long_dead()
        if self._is_dirty:
            self._file.save()
            self._is_dirty = False
        else:
            self._file.retry()

    def close(self) -> None:
        """Write what is not written yet, for the last time."""
        self.persist()
        self._file.persist()
