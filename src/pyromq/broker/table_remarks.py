"""What a start tells of the tables under `config/`: damage that a backup made good, and tables that are gone.

A missing table is no reason to refuse a start, because every first start has none. But a store that has
messages has had tables, and what they knew cannot be found in the log: somebody has to hear of it.
"""

from collections.abc import Iterable

from pyromq.broker.tables.groups import GroupTable
from pyromq.broker.tables.topics import TopicTable
from pyromq.protocol import names
from pyromq.store.json_table import JsonTable
from pyromq.store.message_store import MessageStore

_NAMED = 5


def table_remarks(
    store: MessageStore, topics: TopicTable, groups: GroupTable, files: Iterable[JsonTable]
) -> list[str]:
    """What to warn of once the tables are loaded."""
    files = list(files)
    remarks = [file.remark for file in files if file.remark]
    lost = [topic for topic in store.topics() if topic not in topics]
    if lost:
        remarks.append(
            f"topics.json does not know {_some(lost)}, though the store has messages of it:"
            " restore the table, or create the topic again with as many queues as it had"
        )
    users = [group for group in groups.all() if group not in names.SYSTEM_GROUPS]
    offsets = next((file for file in files if file.path.name == "consumerOffset.json"), None)
    if users and offsets is not None and offsets.is_missing:
        remarks.append(
            f"consumerOffset.json is missing, though there are groups ({_some(users)}):"
            " restore it, or they consume as new groups do"
        )
    return remarks


def _some(known: list[str]) -> str:
    more = f" and {len(known) - _NAMED} more" if len(known) > _NAMED else ""
    return ", ".join(known[:_NAMED]) + more
