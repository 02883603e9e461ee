"""What one broker holds at the end of a run, read once from its log."""

from collections import defaultdict
from collections.abc import Iterable, Iterator

from pyromq.broker.broker import Broker
from pyromq.errors import RemoteProtocolError
from pyromq.protocol.record import StoredMessage, SysFlag, decode_record
from pyromq.store.log.damage import is_filler
from pyromq.store.message_store import MessageStore
from pyromq.tier.packing import records_in

_NOT_VISIBLE = (SysFlag.TRANSACTION_PREPARED, SysFlag.TRANSACTION_ROLLBACK)


class Contents:
    def __init__(self, name: str, broker: Broker, older: Iterable[tuple[int, bytes]] = ()) -> None:
        """`older`: where log files begin that may have left its disk, and what was in them."""
        self.broker = name
        self.store: MessageStore = broker.store
        self.damage: list[str] = []
        self._by_topic: dict[str, list[StoredMessage]] = defaultdict(list)
        reached = self.store.log.start
        for start, content in older:
            for outline in records_in(content, start) if start < reached else ():
                self._add(decode_record(content[outline.start : outline.start + outline.size]))
        for outline, _ in self.store.log.records_from(reached):
            reached = outline.log_offset + outline.size
            if is_filler(outline):
                self.damage.append(f"{name}: a filler of {outline.size} bytes at {outline.log_offset}")
                continue
            record = self.store.log.record_at(outline.log_offset)
            assert record is not None
            try:
                message = decode_record(record)
            except RemoteProtocolError as problem:
                self.damage.append(f"{name}: the record at {outline.log_offset}: {problem}")
            else:
                self._add(message)
        if self.store.log.end - reached > self.store.settings.log_segment_bytes:
            self.damage.append(f"{name}: no record after {reached}, and the log ends at {self.store.log.end}")

    def _add(self, message: StoredMessage) -> None:
        self._by_topic[message.topic].append(message)

    def __repr__(self) -> str:
        return f"<Contents of {self.broker}>"

    @property
    def topics(self) -> list[str]:
        return list(self._by_topic)

    def messages(self, topic: str) -> list[StoredMessage]:
        return self._by_topic.get(topic, [])

    def bodies(self, topic: str) -> dict[int, dict[int, str]]:
        """By queue and queue offset."""
        found: dict[int, dict[int, str]] = defaultdict(dict)
        for message in self.messages(topic):
            found[message.queue_id][message.queue_offset] = message.body.decode(errors="replace")
        return found

    def queue_problems(self) -> Iterator[str]:
        """Where the queues are not what the log says."""
        for topic, messages in self._by_topic.items():
            for message in messages:
                is_pending = message.log_offset >= self.store.queues.dispatched_offset
                queue = self.store.queues.find(topic, message.queue_id)
                is_gone = queue is not None and message.log_offset < queue.floor
                is_gone |= message.log_offset < self.store.log.start
                if is_pending or is_gone or message.sys_flag & SysFlag.TRANSACTION_MASK in _NOT_VISIBLE:
                    continue
                found = self.store.queues.log_offset(topic, message.queue_id, message.queue_offset)
                if found != message.log_offset:
                    yield (
                        f"{self.broker}: {topic} queue {message.queue_id} leads at {message.queue_offset} to"
                        f" {found}, and its message is at {message.log_offset}"
                    )


def differences(one: Contents, other: Contents) -> Iterator[str]:
    """Where two logs differ, from the higher of their starts to the lower of their ends."""
    start = max(one.store.log.start, other.store.log.start)
    end = min(one.store.log.end, other.store.log.end)
    if (at := first_difference(one.store, other.store, start, end)) is not None:
        yield f"the logs of {one.broker} and {other.broker} differ at {at}"


def first_difference(one: MessageStore, other: MessageStore, start: int, end: int) -> int | None:
    while start < end:
        ours, theirs = one.log.bytes_at(start, end - start), other.log.bytes_at(start, end - start)
        size = min(len(ours), len(theirs))
        if not size:
            return None
        if ours[:size] != theirs[:size]:
            return start + next(i for i in range(size) if ours[i] != theirs[i])
        start += size
    return None
