"""The consumer groups of this broker, and which topics they may not read.

Every change advances the data version and is on disk after `saved`, which operators wait for. Auto-created
groups do not wait: consumers must be able to read while the disk is full.
"""

from collections.abc import Callable, Iterable

from pyromq.broker.tables.table_file import FiledTable, TableFile
from pyromq.clock import Clock
from pyromq.protocol import names
from pyromq.protocol.requests.groups import SubscriptionGroupConfig, SubscriptionGroupWrapper
from pyromq.store.json_table import JsonTable


class GroupTable(FiledTable):
    def __init__(self, file: JsonTable, clock: Clock, auto_create: Callable[[], bool]) -> None:
        self._file = TableFile(file, self.snapshot)
        self._clock = clock
        self._auto_create = auto_create
        loaded = file.load(SubscriptionGroupWrapper) or SubscriptionGroupWrapper()
        self._groups = {group: SubscriptionGroupConfig(group_name=group) for group in names.SYSTEM_GROUPS}
        self._groups |= loaded.subscription_group_table
        self._forbidden = loaded.forbidden_table
        self.data_version = loaded.data_version
        self._listeners: list[Callable[[], None]] = []

    def __repr__(self) -> str:
        return f"<GroupTable groups={len(self._groups)} version={self.data_version.counter}>"

    def __len__(self) -> int:
        return len(self._groups)

    def on_change(self, listener: Callable[[], None]) -> None:
        """Call `listener` when a group is created, changed or deleted."""
        self._listeners.append(listener)

    def get(self, group: str) -> SubscriptionGroupConfig | None:
        return self._groups.get(group)

    def find(self, group: str) -> SubscriptionGroupConfig | None:
        """The group; created if auto-creation is on."""
        if (existing := self._groups.get(group)) is not None:
            return existing
        self.create_missing((group,))
        return self._groups.get(group)

    def create_missing(self, groups: Iterable[str]) -> None:
        """Create the missing groups that may be auto-created; writes the file once."""
        missing = [
            SubscriptionGroupConfig(group_name=group)
            for group in dict.fromkeys(groups)
            if group not in self._groups and self._may_auto_create(group)
        ]
        if missing:
            self._put(missing)
            self._file.save_or_wait()

    def _may_auto_create(self, group: str) -> bool:
        return (self._auto_create() or names.is_system_group(group)) and not names.group_problem(group)

    def all(self) -> dict[str, SubscriptionGroupConfig]:
        return self._groups

    def update(self, *configs: SubscriptionGroupConfig) -> None:
        """Create or replace."""
        self._put(configs)
        self._file.save()

    def _put(self, configs: Iterable[SubscriptionGroupConfig]) -> None:
        for config in configs:
            self._groups[config.group_name] = config
        self._tell_change()

    def delete(self, group: str) -> bool:
        was_known = self._groups.pop(group, None) is not None
        if self._forbidden.pop(group, None) is not None or was_known:
            self._changed()
        return was_known

    # java: a mask of forbidden actions; only the first bit, reading, is used

    def may_read(self, group: str, topic: str) -> bool:
        return not self._forbidden.get(group, {}).get(topic, 0) & 1

    def let_read(self, group: str, topic: str, allowed: bool) -> None:
        masks = self._forbidden.setdefault(group, {})
        mask = masks.get(topic, 0)
        masks[topic] = mask & ~1 if allowed else mask | 1
        if not masks[topic]:
            del masks[topic]
        if not masks:
            del self._forbidden[group]
        self._changed()

    def copy(self, table: SubscriptionGroupWrapper) -> None:
        """Take over a master's groups."""
        system = {group: self._groups[group] for group in names.SYSTEM_GROUPS if group in self._groups}
        groups = system | table.subscription_group_table
        if groups == self._groups and table.forbidden_table == self._forbidden:
            self.data_version = table.data_version
            return
        self._groups, self._forbidden = groups, dict(table.forbidden_table)
        self.data_version = table.data_version
        for listener in self._listeners:
            listener()
        self._file.save()

    def snapshot(self) -> SubscriptionGroupWrapper:
        """A copy that later changes leave alone."""
        return SubscriptionGroupWrapper(
            data_version=self.data_version,
            forbidden_table={group: dict(masks) for group, masks in self._forbidden.items()},
            subscription_group_table=dict(self._groups),
        )

    def _changed(self) -> None:
        self._tell_change()
        self._file.save()

    def _tell_change(self) -> None:
        self.data_version = self.data_version.next(self._clock.now_ms())
        for listener in self._listeners:
            listener()
