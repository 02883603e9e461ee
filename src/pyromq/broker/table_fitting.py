"""Fitting: no table says more than the log that is there.

A log may have lost its end: power was lost, a master that acknowledged alone was replaced, or a replica cut
off what its master does not have. The next messages get the same queue offsets, so a reader beyond the end
would skip them. Tables are fitted before the first request: at a start that was not clean, when a broker
becomes master, and after a cut. What is set back is on disk at once: after the next crash, other messages may
already be where the lost ones were.
"""

import logging
from collections.abc import Callable, Iterator

from pyromq.broker.tables.all_tables import Tables
from pyromq.errors import StoreError
from pyromq.protocol import names
from pyromq.store.message_store import MessageStore

_log = logging.getLogger(__name__)

_OURS = frozenset((*names.SYSTEM_GROUPS, names.REVIVE_GROUP))
"""The broker's own readers know their places from the table alone."""


def fit_to_log(store: MessageStore, tables: Tables) -> None:
    """This broker is about to serve as master.

    Consumers that continue from memory may be beyond the end, too: each group is held to the ends that its
    queues have now, until it reads from before them. Raises StoreError if the log cannot be dispatched, or
    the offsets not be written.
    """
    store.cutting.finish()
    try:
        store.copying.dispatch_all()
    except OSError as error:
        raise StoreError(f"the log cannot be dispatched: {error}") from error
    # There may be a million lite topics. If nothing was lost, what was read from them is still there.
    may_lack = store.recovery.may_lack or store.cutting.cuts > 0
    _fit(store, tables, store.queues.next_offset, has_lite=may_lack)
    # A lite topic is read from where the table says.
    for group, topic, queue_id, _ in _places(tables, has_lite=False):
        if group not in _OURS:
            tables.offsets.hold(group, topic, queue_id, store.queues.next_offset(topic, queue_id))


def fit_to_cut(store: MessageStore, tables: Tables) -> None:
    """The end of a replica's log was taken back. Raises StoreError if the offsets cannot be written."""
    tables.delay_offsets.set_back()
    if not store.can_dispatch_to(store.log.end):  # else the queues end before the cut, and all is there
        _fit(store, tables, store.queues.max_offset, has_lite=False)


def _fit(store: MessageStore, tables: Tables, end_of: Callable[[str, int], int], *, has_lite: bool) -> None:
    is_set_back = False
    for group, topic, queue_id, offset in list(_places(tables, has_lite=has_lite)):
        end = end_of(topic, queue_id)
        if offset > end:
            if topic.startswith(names.LITE_PREFIX):
                # It may have expired and been made again, and all of its messages may be new.
                end = store.queues.min_offset(topic, queue_id)
            tables.offsets.set_back(group, topic, queue_id, end)
            is_set_back = True
            _log.warning(
                "group %s had read %s queue %d up to %d, but the messages from %d on are lost: it continues"
                " there",
                *(group, topic, queue_id, offset, end),
            )
    if is_set_back:
        try:
            tables.offsets.persist()
        except OSError as error:
            raise StoreError(f"the offsets of groups cannot be written: {error}") from error
    tables.delay_offsets.fit(lambda level: end_of(names.SCHEDULE_TOPIC, level - 1))


def _places(tables: Tables, *, has_lite: bool) -> Iterator[tuple[str, str, int, int]]:
    """The offsets of groups in queues of this broker: group, topic, queue id, offset."""
    offsets, topics = tables.offsets, tables.topics
    for topic, group in offsets.pairs():
        is_wanted = has_lite or not topic.startswith(names.LITE_PREFIX)
        if is_wanted and (topic in topics or topics.is_light(topic)):
            for queue_id, offset in offsets.queues(group, topic).items():
                yield group, topic, queue_id, offset
