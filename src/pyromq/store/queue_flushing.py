"""Requests flushes of queues and index: each covers every file written since the last one."""

from pyromq.store.checkpoint import UNITS_UNKNOWN
from pyromq.store.dispatch import Dispatcher
from pyromq.store.flushing import Flusher, QueueFlush
from pyromq.store.index.key_index import Index
from pyromq.store.queues.all_queues import Queues


class QueueFlushing:
    def __init__(self, flusher: Flusher, dispatcher: Dispatcher, queues: Queues, index: Index | None) -> None:
        self._flusher = flusher
        self._dispatcher = dispatcher
        self._queues = queues
        self._index = index
        self._requested_units = 0

    @property
    def unrequested_units(self) -> int:
        """How many messages were dispatched since the last request."""
        return self._dispatcher.dispatched_messages - self._requested_units

    def request(self) -> int:
        """Have the flusher sync everything that is dispatched so far; how many files that are."""
        dispatcher = self._dispatcher
        try:
            light_paths = dispatcher.light.take_dirty() if dispatcher.light is not None else []
        except OSError:
            return 0  # the disk is full: the next flush tries again
        paths = light_paths + [queue.path_of(start) for queue, start in self._queues.queue_files.take_dirty()]
        if self._index is not None:
            paths += [file.path for file in self._index.take_dirty()]
        queue_count, unit_count = self._queues.totals()
        safe_offset = dispatcher.safe_offset
        if safe_offset != dispatcher.offset:
            unit_count = UNITS_UNKNOWN  # the index is behind the queues
        self._flusher.request_queues(
            QueueFlush(
                paths,
                safe_offset,
                dispatcher.last_timestamp,
                dispatcher.last_timestamp,
                queue_count,
                unit_count,
            )
        )
        self._requested_units = dispatcher.dispatched_messages
        return len(paths)
