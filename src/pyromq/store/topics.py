"""The topics that have messages, and the deletion of topics."""

from collections.abc import Callable

from pyromq.clock import Clock
from pyromq.errors import StoreError
from pyromq.store.filenames import can_be_directory
from pyromq.store.flushing import Flusher
from pyromq.store.parts import StoreParts
from pyromq.store.queue_flushing import QueueFlushing


class StoredTopics:
    def __init__(
        self, parts: StoreParts, clock: Clock, flusher: Flusher, queue_flushing: QueueFlushing
    ) -> None:
        self._log = parts.log
        self._queues = parts.queues
        self._dispatcher = parts.dispatcher
        self._deletions = parts.deletions
        self._snapshots = parts.snapshots
        self._purges = parts.purges
        self._clock = clock
        self._flusher = flusher
        self._queue_flushing = queue_flushing
        # Bound here: a method in between would cost a call.
        self.is_deleted = parts.deletions.covers
        """Whether the topic of a message was deleted after the message was stored."""
        self.deletions = parts.deletions.all
        """The deleted topics that still have records in the log."""

    def hidden(self) -> dict[str, int]:
        """Deleted topics, and purged queues as `3@topic`: messages before these log offsets are gone."""
        marks = [*self._deletions.all(), *self._purges.all()]
        return {each.topic: each.log_offset for each in marks}

    def names(self) -> list[str]:
        return self._queues.topics

    def queue_goes_on(self, topic: str, queue_id: int, offset: int) -> bool:
        """The messages of a queue before `offset` have left the log and are kept elsewhere: the next one
        follows them. False if the queue has other messages at these offsets. Raises OSError."""
        queue = self._queues.find(topic, queue_id)
        if queue is not None:
            if queue.end_offset >= offset:
                return True
            if queue.next_offset > queue.end_offset or queue.last_place >= self._log.start_offset:
                return False
        if can_be_directory(topic):
            self._queues.begin_at(topic, queue_id, offset)
        return True

    def delete(self, topic: str, forget: Callable[[], None] = lambda: None) -> int:
        """Delete the queues of a topic; return how many. Its messages stay in the log until its files expire.

        Then `forget` is called to remove everything else of the topic and sync that. After a crash in
        between, `unfinished_deletions` names the topic. Raises StoreError if the deletion cannot be written;
        if `forget` was not called by then, nothing was deleted.
        """
        removed = self.begin_deletion(topic)
        try:
            forget()
            self.finish_deletion(topic)
        except OSError as error:
            raise StoreError(f"topic {topic} cannot be deleted: {error}") from error
        return removed

    def begin_deletion(self, topic: str) -> int:
        """Mark a topic as deleted and delete its queues; how many there were.

        What else there is of the topic shall go after this, and then `finish_deletion`. Raises StoreError if
        the disk does not take the deletion.
        """
        if not can_be_directory(topic):
            return 0  # no message was ever taken for it
        try:
            self._deletions.mark(topic, self._log.end_offset, self._clock.now_ms())
            self._dispatcher.forget_topic(topic)
            removed = self._queues.remove_topic(topic)
            self._snapshots.remove_topic(topic, self._log.end_offset)
            if self._dispatcher.light is not None:
                removed += self._dispatcher.light.remove(topic)
        except OSError as error:
            raise StoreError(f"topic {topic} cannot be deleted: {error}") from error
        if removed:
            self._queue_flushing.request()
            self._flusher.wake()
        return removed

    def unfinished_deletions(self) -> list[str]:
        """Topics whose deletion was interrupted by a crash, and that have no new messages.

        Their queues are removed already. Remove everything else of them, then call `finish_deletion`.
        """
        return [topic for topic in self._deletions.unfinished() if topic not in self._queues.by_topic]

    def finish_deletion(self, topic: str) -> None:
        """Nothing is left of a deleted topic; any thread may say so. Raises OSError."""
        self._snapshots.sync_removals()
        self._queues.sync_removals()  # a deletion is finished only when no queue can come back
        self._deletions.finish(topic)
