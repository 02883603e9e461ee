"""Copying a master's log: a replica's store adds nothing itself.

The log is a byte-for-byte prefix of the master's; queues and index are dispatched from it. A topic that the
master deletes is deleted up to the same log offset.
"""

from collections.abc import Iterable

from pyromq.errors import StoreError
from pyromq.protocol.names import lite_queue
from pyromq.store.compacted.snapshots import Snapshots
from pyromq.store.deletions import Deletion, Deletions
from pyromq.store.dispatch import Dispatcher
from pyromq.store.faults import Fault, StoreFaults
from pyromq.store.filenames import can_be_directory
from pyromq.store.log.commit_log import CommitLog
from pyromq.store.log.replicated import ReplicatedLog
from pyromq.store.queues.all_queues import Queues


class Copying:
    def __init__(
        self,
        log: CommitLog,
        queues: Queues,
        dispatcher: Dispatcher,
        deletions: Deletions,
        faults: StoreFaults,
        snapshots: Snapshots,
    ) -> None:
        self._log = log
        self._queues = queues
        self._dispatcher = dispatcher
        self._deletions = deletions
        self._faults = faults
        self._snapshots = snapshots
        self._replicated = ReplicatedLog(log)
        self.is_on = False
        """Whether the log is a copy."""

    def __repr__(self) -> str:
        return f"<Copying {self._replicated!r}>"

    def begin(self) -> None:
        """From now on the log is a copy, and only `append` adds to it."""
        self.is_on = self._dispatcher.starts_over = True

    def end(self) -> None:
        """From now on the store's own messages follow; raises OSError if the copy cannot be dispatched."""
        self.dispatch_all()
        self.is_on = self._dispatcher.starts_over = False

    def dispatch_all(self) -> None:
        """Complete the queues of a copy, confirmed or not: it is about to be the master's log. Raises
        OSError."""
        if not self.is_on:
            return
        self.drop_part()
        while self._dispatcher.offset < self._log.end_offset:
            self._dispatcher.step(self._log.end_offset, 1 << 20)
        for queue in self._queues:
            queue.next_offset = queue.end_offset
        if self._dispatcher.light is not None:
            self._dispatcher.light.number_on()

    def append(self, offset: int, piece: memoryview) -> None:
        """Add bytes of the master's log. They are readable after a dispatch, each record once it is whole.

        Raises StoreError if they do not continue this log, or if it cannot be written.
        """
        if self._faults.is_refusing:
            raise StoreError(self._faults.reason)
        if self._dispatcher.is_following:
            self._dispatcher.stop_following()  # the bytes are read from the log
        try:
            self._replicated.append(offset, piece)
        except OSError as error:
            reason = f"the log file cannot be made or written: {error}"
            self._faults.refuse(Fault.DISK_FULL, reason)  # tried again after the next check of the disk
            raise StoreError(reason) from error

    def drop_part(self) -> None:
        """Forget a record of which only a part has come: the connection is lost."""
        self._replicated.drop_part()

    def last_record(self) -> tuple[int, memoryview] | None:
        """The newest dispatched message, and where in the log it begins."""
        place = max((queue.last_place for queue in self._queues), default=-1)
        record = self._log.record(place) if place >= 0 else None
        return None if record is None else (place, record)

    def lacks(self, deletion: Deletion) -> bool:
        """Whether neither this nor a later deletion of the topic is known."""
        return can_be_directory(deletion.topic) and deletion.log_offset > self._deletions.offset_of(
            deletion.topic
        )

    def lite_queues_of(self, deletion: Deletion) -> Iterable[str]:
        """The light queues of the lite topics of a deleted topic."""
        light = self._dispatcher.light
        return () if light is None else light.names(lite_queue(deletion.topic, ""))

    def delete_lite_queue(self, queue: str, deletion: Deletion) -> bool:
        """Delete one of them, unless it has messages since. Raises StoreError if the disk refuses."""
        light = self._dispatcher.light
        if light is None or not light.ends_before(queue, deletion.log_offset):
            return False
        try:
            return light.remove(queue)
        except OSError as error:
            raise StoreError(f"{queue} cannot be deleted: {error}") from error

    def delete_topic(self, deletion: Deletion) -> bool:
        """Delete a topic up to the log offset up to which the master deleted it.

        False if this or a later deletion of the topic is known. Otherwise what else there is of the topic
        goes after this, and then `StoredTopics.finish_deletion`. Raises StoreError if the disk does not take
        it.
        """
        topic, before = deletion.topic, deletion.log_offset
        if not self.lacks(deletion):
            return False
        try:
            self._deletions.mark(topic, before, deletion.time_ms)
            self._dispatcher.forget_topic(topic, before)
            # Queues of a topic that was made again have only messages behind the mark.
            for queue in [each for each in self._queues.of_topic(topic).values() if each.last_place < before]:
                self._queues.drop_files(queue)
                self._queues.discard(queue)
            self._snapshots.remove_topic(topic, before)
            if self._dispatcher.light is not None:
                self._dispatcher.light.remove_deleted([topic])
        except OSError as error:
            raise StoreError(f"topic {topic} cannot be deleted: {error}") from error
        return True
