"""The topics of this broker.

Every change advances the data version and calls `on_change`. It is safe after `saved`: operators and
first messages wait for that. Readers do not, so they continue while the disk is full.
"""

from collections.abc import Callable, Iterable

import msgspec

from pyromq.broker.settings import BrokerSettings
from pyromq.broker.tables.table_file import FiledTable, TableFile
from pyromq.clock import Clock
from pyromq.protocol import names
from pyromq.protocol.body import DataVersion
from pyromq.protocol.requests.topics import TopicConfig, TopicConfigSerializeWrapper
from pyromq.store.json_table import JsonTable

_SCHEDULE_QUEUES = 18
_BENCHMARK_QUEUES = 1024


def _topic(name: str, queues: int, perm: int = names.READ_WRITE) -> TopicConfig:
    return TopicConfig(topic_name=name, read_queue_nums=queues, write_queue_nums=queues, perm=perm)


def auto_create_topic(queues: int) -> TopicConfig:
    """The topic whose queues and permissions a topic inherits that a send creates."""
    return _topic(names.AUTO_CREATE_TOPIC, queues, names.READ_WRITE | names.INHERIT)


def system_topics(settings: BrokerSettings, *, has_timers: bool) -> list[TopicConfig]:
    """The topics that every broker has.

    Clients look up addresses by the topics named after the cluster and the broker; `cluster_topic` and
    `broker_topic` allow to use them as well.
    """
    cluster, inherited = settings.broker_cluster_name, names.READ_WRITE | names.INHERIT
    topics = [
        _topic(names.SELF_TEST_TOPIC, 1),
        _topic(names.BENCHMARK_TOPIC, _BENCHMARK_QUEUES),
        _topic(cluster, 16, inherited if settings.cluster_topic else names.INHERIT),
        _topic(settings.broker_name, 1, inherited if settings.broker_topic else names.INHERIT),
        _topic(names.OFFSET_MOVED_EVENT_TOPIC, 1),
        _topic(names.SCHEDULE_TOPIC, _SCHEDULE_QUEUES),
        _topic(names.HALF_TOPIC, 1),
        _topic(names.OP_HALF_TOPIC, 1),
        _topic(names.reply_topic(cluster), 1),
        _topic(names.revive_topic(cluster), settings.revive_queues),
    ]
    if settings.auto_create_topics:
        topics.append(auto_create_topic(settings.default_topic_queues))
    if has_timers:
        topics.append(_topic(names.TIMER_TOPIC, 1))
    if settings.trace_topic_enabled:
        topics.append(_topic(settings.trace_topic, 1))
    return topics


class TopicTable(FiledTable):
    def __init__(
        self,
        file: JsonTable,
        clock: Clock,
        system: Iterable[TopicConfig] = (),
        *,
        has_light_queues: bool = False,
    ) -> None:
        """`system`: topics that exist even if the file lacks them; the file's configuration wins."""
        self.has_light_queues = has_light_queues
        self._file = TableFile(file, self.snapshot)
        self._clock = clock
        self._listeners: list[Callable[[list[TopicConfig]], None]] = []
        loaded = file.load(TopicConfigSerializeWrapper) or TopicConfigSerializeWrapper()
        system_configs = {config.topic_name: config for config in system}
        self._system = frozenset(system_configs)
        self._topics = system_configs | loaded.topic_config_table
        self.data_version = loaded.data_version
        self._made: dict[str, int] = {}
        """New topics that may not be safe yet, with the number of the change that made them."""
        self.is_copied: Callable[[str], bool] = lambda _: True
        """Whether the replicas that must have a topic have it."""

    def __repr__(self) -> str:
        return f"<TopicTable topics={len(self._topics)} version={self.data_version.counter}>"

    def __contains__(self, topic: str) -> bool:
        return topic in self._topics

    def __len__(self) -> int:
        return len(self._topics)

    def on_change(self, listener: Callable[[list[TopicConfig]], None]) -> None:
        """Call `listener` with created or changed topics, and with an empty list after a deletion."""
        self._listeners.append(listener)

    def get(self, topic: str) -> TopicConfig | None:
        return self._topics.get(topic)

    def readable(self, topic: str) -> TopicConfig | None:
        """The same for readers. java: to them each light queue is a topic with one queue, even without
        messages."""
        found = self._topics.get(topic)
        return _topic(topic, 1) if found is None and self.is_light(topic) else found

    def is_light(self, topic: str) -> bool:
        return self.has_light_queues and topic.startswith(names.LMQ_PREFIX)

    def all(self) -> dict[str, TopicConfig]:
        return self._topics

    def system(self) -> list[str]:
        """The names of the system topics."""
        return sorted(self._system | names.SYSTEM_TOPICS)

    def is_system(self, topic: str) -> bool:
        return (
            topic in self._system
            or topic in names.SYSTEM_TOPICS
            or topic.startswith(names.SYSTEM_TOPIC_PREFIX)
        )

    def is_ordered(self, topic: str) -> bool:
        config = self._topics.get(topic)
        return config is not None and config.order

    def create_for_send(
        self, topic: str, default_topic: str, client_queues: int, sys_flag: int, *, auto_create: bool
    ) -> TopicConfig | None:
        """The topic of a send; created from the default topic if that one may be inherited."""
        if (existing := self._topics.get(topic)) is not None:
            return existing
        pattern = self._topics.get(default_topic)
        if pattern is None or not pattern.perm & names.INHERIT:
            return None
        if default_topic == names.AUTO_CREATE_TOPIC and not auto_create:
            return None
        queues = max(0, min(client_queues, pattern.write_queue_nums))
        created = TopicConfig(
            topic_name=topic,
            read_queue_nums=queues,
            write_queue_nums=queues,
            perm=pattern.perm & ~names.INHERIT,
            topic_sys_flag=sys_flag,
            topic_filter_type=pattern.topic_filter_type,
        )
        self.update(created)
        return created

    def create_if_absent(
        self, topic: str, queues: int, perm: int = names.READ_WRITE, sys_flag: int = 0, *, order: bool = False
    ) -> TopicConfig:
        """A topic that the broker itself needs: retries, dead letters, replies."""
        if (existing := self._topics.get(topic)) is not None:
            return existing
        created = TopicConfig(
            topic_name=topic,
            read_queue_nums=queues,
            write_queue_nums=queues,
            perm=perm,
            topic_sys_flag=sys_flag,
            order=order,
        )
        self.update(created)
        return created

    def create_missing(self, configs: Iterable[TopicConfig]) -> None:
        """Create the missing topics for consumers; writes the file once."""
        missing = [config for config in configs if config.topic_name not in self._topics]
        if missing:
            self._put(missing)
            self.data_version = self.data_version.next(self._clock.now_ms())
            self._file.save_or_wait()
            self._tell(missing)

    def update(self, *configs: TopicConfig) -> None:
        """Create or replace."""
        self._put(configs)
        self._changed(list(configs))

    def _put(self, configs: Iterable[TopicConfig]) -> None:
        for config in configs:
            if config.topic_name not in self._topics:
                self._made[config.topic_name] = self._file.changes + 1
            self._topics[config.topic_name] = config

    def is_written(self, topic: str) -> bool:
        """Whether a topic survives a crash, in whatever state."""
        made = self._made.get(topic)
        if made is None:
            return True
        if made > self._file.written or not self.is_copied(topic):
            return False
        del self._made[topic]
        return True

    def delete(self, topic: str) -> bool:
        if self._topics.pop(topic, None) is None:
            return False
        self._made.pop(topic, None)
        self._changed([])
        return True

    def mark_ordered(self, ordered_topics: Iterable[str]) -> bool:
        """Mark the topics that the name servers list as ordered; True if any changed."""
        ordered = frozenset(ordered_topics)
        changed = [
            msgspec.structs.replace(config, order=config.topic_name in ordered)
            for config in self._topics.values()
            if config.order != (config.topic_name in ordered)
        ]
        if changed:
            self.update(*changed)
        return bool(changed)

    def copy(self, configs: dict[str, TopicConfig], version: DataVersion, *, is_complete: bool) -> None:
        """Take over a master's topics: all of them, or only changed ones. System topics stay."""
        gone = []
        if is_complete:
            gone = [name for name in self._topics if name not in configs and name not in self._system]
        changed = [config for name, config in configs.items() if self._topics.get(name) != config]
        if not gone and not changed and version == self.data_version:
            return
        if gone:
            self._topics = {name: each for name, each in self._topics.items() if name not in set(gone)}
        self._put(changed)
        self.data_version = version
        self._file.save()
        if changed:
            self._tell(changed)
        if gone:
            self._tell([])

    def wrapper(self) -> TopicConfigSerializeWrapper:
        return TopicConfigSerializeWrapper(data_version=self.data_version, topic_config_table=self._topics)

    def snapshot(self) -> TopicConfigSerializeWrapper:
        """A copy that later changes leave alone."""
        return TopicConfigSerializeWrapper(
            data_version=self.data_version, topic_config_table=dict(self._topics)
        )

    def bump_version(self, epoch: int | None = None) -> None:
        """Give the table a new version, so that name servers read it again; `epoch` counts the masters."""
        state = self.data_version.state_version if epoch is None else epoch
        self.data_version = self.data_version.next(self._clock.now_ms(), state)
        self._file.save()

    def _changed(self, configs: list[TopicConfig]) -> None:
        self.bump_version()
        self._tell(configs)

    def _tell(self, configs: list[TopicConfig]) -> None:
        for listener in self._listeners:
            listener(configs)
