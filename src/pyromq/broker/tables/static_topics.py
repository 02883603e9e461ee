"""The mappings of static topics: which of this broker's queues store which global queues.

A change is on disk before it counts for anybody else: a broker that has given a queue away must not take
messages for it after a crash. A mapping belongs to a topic of the same name; without that it means nothing.

If the file is damaged or gone, its backup is one change older, and may call queues the broker's own that it
gave away. Such mappings are `dirty`: their queues wait until a plan says again whose they are.
"""

import logging
from collections.abc import Container

from msgspec.structs import replace

from pyromq.broker.tables.table_file import FiledTable, TableFile
from pyromq.clock import Clock
from pyromq.protocol.requests.topics import (
    TopicQueueMappingDetail,
    TopicQueueMappingInfo,
    TopicQueueMappingSerializeWrapper,
)
from pyromq.protocol.static_topics import info_of, is_decided, led_queues
from pyromq.store.json_table import JsonTable

_log = logging.getLogger(__name__)


class StaticTopicTable(FiledTable):
    def __init__(self, file: JsonTable, clock: Clock) -> None:
        self._file = TableFile(file, self.snapshot)
        self._clock = clock
        loaded = file.load(TopicQueueMappingSerializeWrapper) or TopicQueueMappingSerializeWrapper()
        self._topics = dict(loaded.topic_queue_mapping_info_map)
        if file.is_older and self._topics:
            self._topics = {topic: replace(each, dirty=True) for topic, each in self._topics.items()}
            _log.warning(
                "%s comes from its backup, and queues may have moved since: the queues of %d static topics"
                " wait until their last plans are repeated (mqadmin remappingStaticTopic -mf)",
                file.path.name,
                len(self._topics),
            )
        self.data_version = loaded.data_version
        self._writable = {topic: _writable(each) for topic, each in self._topics.items()}

    def __repr__(self) -> str:
        return f"<StaticTopicTable topics={len(self._topics)} version={self.data_version.counter}>"

    def __contains__(self, topic: str) -> bool:
        return topic in self._topics

    def __len__(self) -> int:
        return len(self._topics)

    def get(self, topic: str) -> TopicQueueMappingDetail | None:
        return self._topics.get(topic)

    def all(self) -> dict[str, TopicQueueMappingDetail]:
        return self._topics

    def infos(self, topics: Container[str]) -> dict[str, TopicQueueMappingInfo]:
        """The entries for the name server, of those that are static."""
        return {topic: info_of(detail) for topic, detail in self._topics.items() if topic in topics}

    def is_writable(self, topic: str, queue_id: int) -> bool:
        """Whether a queue of this broker takes messages: always, unless its topic is static."""
        queues = self._writable.get(topic)
        return queues is None or queue_id in queues

    def put(self, detail: TopicQueueMappingDetail) -> None:
        """Create or replace a mapping; on return it is on disk. Raises OSError: then it counts here only."""
        topic = detail.topic or ""
        self._topics[topic] = replace(
            detail, curr_id_map={number: item.queue_id for number, item in led_queues(detail).items()}
        )
        self._writable[topic] = _writable(detail)
        self._changed()

    def delete(self, topic: str) -> None:
        """On return it is gone from the disk, too; raises OSError."""
        if self._topics.pop(topic, None) is not None:
            del self._writable[topic]
            self._changed()

    def copy(self, table: TopicQueueMappingSerializeWrapper) -> None:
        """Take over a master's table; raises OSError."""
        if table.data_version == self.data_version and table.topic_queue_mapping_info_map == self._topics:
            return
        self._topics = dict(table.topic_queue_mapping_info_map)
        self._writable = {topic: _writable(each) for topic, each in self._topics.items()}
        self.data_version = table.data_version
        self._file.save_now()

    def snapshot(self) -> TopicQueueMappingSerializeWrapper:
        """A copy that later changes leave alone."""
        return TopicQueueMappingSerializeWrapper(
            data_version=self.data_version, topic_queue_mapping_info_map=dict(self._topics)
        )

    def _changed(self) -> None:
        self.data_version = self.data_version.next(self._clock.now_ms())
        self._file.save_now()


def _writable(detail: TopicQueueMappingDetail) -> frozenset[int]:
    return frozenset(item.queue_id for item in led_queues(detail).values() if is_decided(item))
