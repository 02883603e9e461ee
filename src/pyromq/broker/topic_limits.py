"""Tells the store how long topics keep their messages, how many bytes of them, and which are compacted."""

from collections.abc import Mapping

from pyromq.broker.tables.topics import TopicTable
from pyromq.broker.topic_attributes import RESERVE_BYTES, is_compacted
from pyromq.protocol.requests.topics import TopicConfig
from pyromq.protocol.topic_ages import max_age_ms
from pyromq.store.expiry import QueueLimit
from pyromq.store.message_store import MessageStore


def limit_of(attributes: Mapping[str, str]) -> QueueLimit | None:
    """java: a compacted topic has no limits"""
    if is_compacted(attributes):
        return None
    limit = QueueLimit(max_age_ms(attributes), int(attributes.get(RESERVE_BYTES) or 0))
    return limit if any(limit) else None


class TopicLimits:
    def __init__(self, store: MessageStore, topics: TopicTable) -> None:
        self._expiry, self._compacting = store.expiry, store.compacting
        self._is_compacting = store.settings.compaction_enabled
        self._topics = topics
        topics.on_change(self._changed)
        self._changed(list(topics.all().values()))

    def __repr__(self) -> str:
        return f"<TopicLimits {len(self._expiry.limits)}>"

    def _changed(self, configs: list[TopicConfig]) -> None:
        for each in configs:
            if each.attributes or each.topic_name in self._expiry.limits:
                self._expiry.limit(each.topic_name, limit_of(each.attributes))
        self._compact(configs)
        if not configs:  # a topic was deleted
            for topic in [each for each in self._expiry.limits if each not in self._topics]:
                self._expiry.limit(topic, None)

    def _compact(self, configs: list[TopicConfig]) -> None:
        if not self._is_compacting:
            return
        compacted = {topic for topic in self._compacting.topics if topic in self._topics}
        for each in configs:
            if is_compacted(each.attributes):
                compacted.add(each.topic_name)
            else:
                compacted.discard(each.topic_name)
        if compacted != self._compacting.topics:
            self._compacting.compact(compacted)
