"""Appending: write a message as a record at the end of the log and give it its queue offset, or refuse it.

A refused message has written nothing. Compiled code appends ordinary messages; this code appends those that
it declines. Both write the same bytes.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from pyromq.compiled import twin
from pyromq.errors import LocalProtocolError, StoreError
from pyromq.protocol.batch import BatchEntry, decode_batch
from pyromq.protocol.properties import PROPERTIES_LIMIT_BYTES
from pyromq.protocol.record import pack_record_into
from pyromq.store.dispatch import Dispatcher
from pyromq.store.faults import Fault, StoreFaults
from pyromq.store.light.light_queues import OFFSETS_MARK
from pyromq.store.log.commit_log import CommitLog
from pyromq.store.log.log_time import LogTime
from pyromq.store.queues.all_queues import Queues
from pyromq.store.refusals import illegal, refuse_batch, refuse_places, refuse_queue, too_large
from pyromq.store.results import AppendResult, AppendStatus
from pyromq.store.settings import StoreSettings

if TYPE_CHECKING:
    from pyromq_native.store.fast_appending import Appender

_native = twin("store.fast_appending")

_PUT_OK: Final = AppendStatus.PUT_OK


def compiled_appender(
    log: CommitLog, queues: Queues, dispatcher: Dispatcher, time: LogTime
) -> "Appender | None":
    """The compiled append, if the compiled core is there."""
    if _native is None or not dispatcher.is_compiled:
        return None
    appender: Appender = _native.Appender(queues.by_topic, log, time.now_ms, AppendResult, _PUT_OK)
    return appender


class LogAppending:
    def __init__(
        self,
        log: CommitLog,
        queues: Queues,
        dispatcher: Dispatcher,
        faults: StoreFaults,
        time: LogTime,
        settings: StoreSettings,
        appender: "Appender | None",
    ) -> None:
        self._log = log
        self._queues = queues
        self._queues_by_topic = queues.by_topic
        self._dispatcher = dispatcher
        self._now_ms = time.append_ms
        self._faults = faults
        self._appender = appender
        self.refused_messages = 0
        self.apply_settings(settings)

    def apply_settings(self, settings: StoreSettings) -> None:
        self._has_light_queues = settings.has_light_queues
        self._max_message_bytes = settings.max_message_bytes
        if self._appender is not None:
            self._appender.max_message_bytes = settings.max_message_bytes

    def append(
        self,
        topic: str,
        queue_id: int,
        body: bytes,
        properties: bytes = b"",
        *,
        born_timestamp: int,
        born_host: bytes,
        store_host: bytes,
        flag: int = 0,
        sys_flag: int = 0,
        reconsume_times: int = 0,
        prepared_offset: int = 0,
    ) -> AppendResult:
        """Store one message. Hosts come packed (`Host.pack`). A refusal says why and has written nothing."""
        if self._appender is not None:
            appended: AppendResult | None = self._appender.append(
                topic,
                queue_id,
                body,
                properties,
                born_timestamp,
                born_host,
                store_host,
                flag,
                sys_flag,
                reconsume_times,
                prepared_offset,
            )
            if appended is not None:
                return appended
        # The hottest path: avoid calls.
        queues = self._queues_by_topic.get(topic)
        queue = queues.get(queue_id) if queues is not None else None
        if queue is None or self._faults.is_refusing:
            refusal = self._unavailable() or refuse_queue(topic, queue_id)
            if refusal is not None:
                return self._count(refusal)
            queue = self._queues.get(topic, queue_id)
        body_bytes, properties_bytes = len(body), len(properties)
        if properties_bytes > PROPERTIES_LIMIT_BYTES or body_bytes > self._max_message_bytes:
            return self._count(too_large(body_bytes, properties_bytes, self._max_message_bytes))
        if properties_bytes and properties[-1] == 0:
            properties += b"\x02"  # a record that ends in a zero looks torn to recovery
            properties_bytes += 1
        size = queue.fixed_bytes + body_bytes + properties_bytes + len(born_host) + len(store_host)
        log = self._log
        offset = log.end_offset
        if offset + size > log.room_end:
            try:
                offset = log.make_room(size)
            except (OSError, StoreError) as error:
                return self._no_room(error)
        now_ms = self._now_ms()
        if now_ms < log.last_store_timestamp:
            now_ms = log.last_store_timestamp
        # java: prepared and rolled-back records have no place in the queue
        queue_offset = 0 if sys_flag & 0x4 else queue.next_offset
        try:
            pack_record_into(
                log.buffer,
                offset - log.buffer_start,
                body,
                queue.topic_bytes,
                properties,
                queue_id,
                flag,
                queue_offset,
                offset,
                sys_flag,
                born_timestamp,
                born_host,
                now_ms,
                store_host,
                reconsume_times,
                prepared_offset,
            )
        except LocalProtocolError as error:
            log.wipe(offset, size)
            return self._count(illegal(str(error)))
        log.end_offset = offset + size
        log.last_store_timestamp = now_ms
        if not sys_flag & 0x4:
            queue.next_offset = queue_offset + 1
        dispatcher = self._dispatcher
        if dispatcher.is_following:
            dispatcher.pending.append((queue, offset, size, queue_offset, sys_flag, now_ms, properties))
            if len(dispatcher.pending) > dispatcher.max_pending:
                dispatcher.stop_following()
        log.appended_messages += 1
        return AppendResult(_PUT_OK, offset, size, queue_offset, now_ms, store_host)

    def append_batch(
        self,
        topic: str,
        queue_id: int,
        entries: Sequence[BatchEntry],
        *,
        born_timestamp: int,
        born_host: bytes,
        store_host: bytes,
        sys_flag: int = 0,
        reconsume_times: int = 0,
    ) -> AppendResult:
        """Store several messages of one queue, all or none, one after the other in one file."""
        refusal = (
            self._unavailable()
            or refuse_queue(topic, queue_id)
            or refuse_batch(entries, sys_flag, self._max_message_bytes)
            or (refuse_places(entries) if self._has_light_queues else None)
        )
        if refusal is not None:
            return self._count(refusal)
        queue = self._queues.get(topic, queue_id)
        fixed = queue.fixed_bytes + len(born_host) + len(store_host)
        entries = [_ending_visibly(entry) for entry in entries]
        sizes = [fixed + len(entry.body) + len(entry.properties) for entry in entries]
        log = self._log
        try:
            first = offset = log.make_room(sum(sizes))
        except (OSError, StoreError) as error:
            return self._no_room(error)
        now_ms = max(self._now_ms(), log.last_store_timestamp)
        queue_offset = queue.next_offset
        offsets: list[int] = []
        try:
            for entry, size in zip(entries, sizes, strict=True):
                pack_record_into(
                    log.buffer,
                    offset - log.buffer_start,
                    entry.body,
                    queue.topic_bytes,
                    entry.properties,
                    queue_id,
                    entry.flag,
                    queue_offset + len(offsets),
                    offset,
                    sys_flag,
                    born_timestamp,
                    born_host,
                    now_ms,
                    store_host,
                    reconsume_times,
                )
                offsets.append(offset)
                offset += size
        except LocalProtocolError as error:
            log.wipe(first, sum(sizes))
            return self._count(illegal(str(error)))
        log.end_offset, log.last_store_timestamp = offset, now_ms
        queue.next_offset = queue_offset + len(entries)
        for index, (entry, size) in enumerate(zip(entries, sizes, strict=True)):
            self._dispatcher.remember(
                (queue, offsets[index], size, queue_offset + index, sys_flag, now_ms, entry.properties)
            )
        log.appended_messages += len(entries)
        return AppendResult(_PUT_OK, first, offset - first, queue_offset, now_ms, store_host, tuple(offsets))

    def append_encoded_batch(
        self,
        topic: str,
        queue_id: int,
        batch: bytes,
        *,
        born_timestamp: int,
        born_host: bytes,
        store_host: bytes,
        sys_flag: int = 0,
        reconsume_times: int = 0,
        appended_properties: bytes = b"",
    ) -> AppendResult:
        """Store the messages of a batch as received, all or none, one after the other in one file.

        `batch` is the whole body of a batch request, laid out as `pyromq.protocol.batch` says; flags, bodies
        and properties are taken from it. `appended_properties` goes behind the properties of each message
        that is stored, with a separator between the two where there is none. Everything else, and the
        result, is as with `append_batch`.

        Raises RemoteProtocolError if `batch` is not a batch, or one of too many messages; then nothing has
        been written.
        """
        # A batch that brings places in light queues along is refused below.
        if self._appender is not None and not (self._has_light_queues and OFFSETS_MARK in batch):
            arguments = (
                topic,
                queue_id,
                batch,
                born_timestamp,
                born_host,
                store_host,
                sys_flag,
                reconsume_times,
                appended_properties,
            )
            appended: AppendResult | int | None = self._appender.append_encoded_batch(*arguments)
            if isinstance(appended, int):
                # Nothing but room is missing: the batch begins the next file.
                try:
                    self._log.make_room(appended)
                except (OSError, StoreError) as error:
                    return self._no_room(error)
                appended = self._appender.append_encoded_batch(*arguments)
            if isinstance(appended, AppendResult):
                return appended
        entries = decode_batch(batch)
        if appended_properties:
            entries = [_with_more_properties(entry, appended_properties) for entry in entries]
        return self.append_batch(
            topic,
            queue_id,
            entries,
            born_timestamp=born_timestamp,
            born_host=born_host,
            store_host=store_host,
            sys_flag=sys_flag,
            reconsume_times=reconsume_times,
        )

    def _unavailable(self) -> AppendResult | None:
        if not self._faults.is_refusing:
            return None
        return AppendResult(AppendStatus.SERVICE_NOT_AVAILABLE, reason=self._faults.reason)

    def _no_room(self, error: OSError | StoreError) -> AppendResult:
        if isinstance(error, StoreError):
            return self._count(illegal(str(error)))
        reason = f"cannot create a new log file: {error}"
        self._faults.refuse(Fault.DISK_FULL, reason)  # tried again after the next check of the disk
        return self._count(AppendResult(AppendStatus.CREATE_MAPPED_FILE_FAILED, reason=reason))

    def _count(self, refusal: AppendResult) -> AppendResult:
        self.refused_messages += 1
        return refusal


def _ending_visibly(entry: BatchEntry) -> BatchEntry:
    if entry.properties and entry.properties[-1] == 0:
        return BatchEntry(entry.body, entry.properties + b"\x02", entry.flag)
    return entry


def _with_more_properties(entry: BatchEntry, more: bytes) -> BatchEntry:
    # java: 4.x brokers put a separator between the two where there is none
    separator = b"\x02" if entry.properties and not entry.properties.endswith(b"\x02") else b""
    return BatchEntry(entry.body, entry.properties + separator + more, entry.flag)
