"""Warnings at the start about the tables under `config/`: those restored from a backup, and missing ones.

A missing table is not an error, because a first start has none. But a store with messages had tables, and
their content cannot be rebuilt from the log: the operator must know.
"""

from collections.abc import Iterable

from pyromq.broker.tables.groups import GroupTable
from pyromq.broker.tables.topics import TopicTable
from pyromq.broker.topic_attributes import is_compacted, topics_of_batches
from pyromq.protocol import names
from pyromq.store.json_table import JsonTable
from pyromq.store.message_store import MessageStore

_NAMED = 5


def table_remarks(
    store: MessageStore, topics: TopicTable, groups: GroupTable, files: Iterable[JsonTable]
) -> list[str]:
    """The warnings, after the tables are loaded."""
    files = list(files)
    remarks = [file.remark for file in files if file.remark]
    lost = [topic for topic in store.topics.names() if topic not in topics]
    if lost:
        remarks.append(
            f"topics.json lacks {_some(lost)}, but the store has messages of these topics:"
            " restore the table, or create the topics again with as many queues as before"
        )
    compacted = [name for name, topic in topics.all().items() if is_compacted(topic.attributes)]
    if compacted and not store.settings.compaction_enabled:
        remarks.append(
            f"enableCompaction is off: messages of the compacted topics {_some(compacted)} expire like all"
            " others"
        )
    of_apache = store.files.names(store.paths.compacted_by_apache)[1]
    if of_apache:
        remarks.append(
            f"{store.paths.compacted_by_apache} has messages of compacted topics ({_some(of_apache)}) that"
            " only Apache's broker reads: here, what is still in the commit log is compacted"
        )
    batches = topics_of_batches(topics.all())
    if batches:
        remarks.append(
            f"queues of batches (queue.type=BatchCQ) are not supported: {_some(batches)} can be neither read"
            " nor written here as at Apache's broker"
        )
    users = [group for group in groups.all() if group not in names.SYSTEM_GROUPS]
    offsets = next((file for file in files if file.path.name == "consumerOffset.json"), None)
    if users and offsets is not None and offsets.is_missing:
        remarks.append(
            f"consumerOffset.json is missing, but there are groups ({_some(users)}):"
            " restore it, or these groups start like new ones"
        )
    return remarks


def _some(known: list[str]) -> str:
    more = f" and {len(known) - _NAMED} more" if len(known) > _NAMED else ""
    return ", ".join(known[:_NAMED]) + more
