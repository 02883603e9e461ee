"""Offsets beyond the ends of their queues: a loss of power took messages that groups had read already.

The next messages get the same queue offsets. The groups would skip them, and so would consumers that go on
from memory; hence they are reset to the ends.
"""

from collections.abc import Iterator

from pyromq.broker.tables.offsets import OffsetTable
from pyromq.broker.tables.topics import TopicTable
from pyromq.protocol import names
from pyromq.store.message_store import MessageStore

_OURS = frozenset((*names.SYSTEM_GROUPS, names.REVIVE_GROUP))
"""The broker's own readers find their places themselves."""


def set_back_offsets(store: MessageStore, topics: TopicTable, offsets: OffsetTable) -> list[str]:
    """What was set back, in words; only a store that was not stopped cleanly has lost anything."""
    if store.recovery.was_clean and not store.recovery.queues_rebuilt:
        return []
    told = []
    for group, topic, queue_id, offset in list(_offsets_of_users(topics, offsets)):
        end = store.next_offset(topic, queue_id)
        if offset > end:
            offsets.assign_reset(group, topic, queue_id, end)
            told.append(
                f"group {group} had read {topic} queue {queue_id} up to {offset}, but the store has lost the"
                f" messages from {end} on: it continues there"
            )
    return told


def _offsets_of_users(topics: TopicTable, offsets: OffsetTable) -> Iterator[tuple[str, str, int, int]]:
    for topic, group in offsets.pairs():
        if group in _OURS or topic.startswith(names.LMQ_PREFIX) or topic not in topics:
            continue
        for queue_id, offset in offsets.queues(group, topic).items():
            yield group, topic, queue_id, offset
