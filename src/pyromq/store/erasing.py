"""Erasing: messages with a key lose their bytes in the log, on purpose and for good.

The file `erasures` says what is to go, in the format of `deletions`, with `key@topic` (the key
percent-encoded) in place of a topic. It is on disk before the first byte is overwritten, and gets its
`finished` line when nothing is left to do: so an erasure that was cut short is repeated from its beginning.

A record is replaced by a filler of the same size, which no reader sees. Its unit becomes a gap before that.
Its body is overwritten before its properties, so that a record of which only a part was written is found
again by its key.
"""

from collections.abc import Callable, Mapping
from typing import Final
from urllib.parse import quote, unquote

from pyromq.compiled import twin
from pyromq.errors import RemoteProtocolError
from pyromq.protocol import properties as props
from pyromq.protocol.properties import get_property
from pyromq.protocol.record import BLANK_SIZE, MIN_RECORD_SIZE, RecordOutline, peek_size, scan_record
from pyromq.store.deletions import Deletion
from pyromq.store.log.damage import filler_for_removed, is_filler
from pyromq.store.log.record_checks import next_sound_record
from pyromq.store.log.segment import MissingSegment
from pyromq.store.parts import StoreParts
from pyromq.store.queues.mending import Mending
from pyromq.store.scrubbing import Scrubbing

_native = twin("protocol.records")

_PIECE_BYTES: Final = 1024 * 1024

Named = tuple[str, str]
"""A topic and a key."""


def names_of(topic: str, raw_properties: bytes) -> list[Named]:
    """The topics and keys by which people know a message. Copies of it that wait for their time or for the
    end of their transaction, or are retried, say the topic in a property."""
    found = (get_property(raw_properties, name) for name in (props.REAL_TOPIC, props.RETRY_TOPIC))
    keys = (get_property(raw_properties, props.KEYS) or "").split(props.KEY_SEPARATOR)
    unique = (get_property(raw_properties, name) for name in (props.UNIQ_KEY, props.ORIGIN_MESSAGE_ID))
    return [(each, key) for each in (topic, *found) if each for key in (*keys, *unique) if key]


def mark_name(named: Named) -> str:
    topic, key = named
    return f"{quote(key, safe='')}@{topic}"


def named_in(mark: str) -> Named:
    key, _, topic = mark.partition("@")
    return topic, unquote(key)


class LogErasing:
    def __init__(self, parts: StoreParts, mending: Mending, scrubbing: Scrubbing) -> None:
        self._files = parts.files
        self._log = parts.log
        self._marks = parts.erasures
        self._mending = mending
        self._scrubbing = scrubbing
        self.on_change: Callable[[], None] = lambda: None
        """Called after an erasure was asked for, so that replicas hear of it."""
        self._done_here: dict[str, int] = {}
        """The marks whose messages are gone from this log, and their log offsets."""
        self._marks.fit_to_log(self._log.start_offset, self._log.end_offset)

    def __repr__(self) -> str:
        return f"<LogErasing {len(self._marks.all())} keys>"

    # What is to go

    def all(self) -> list[Deletion]:
        """The requests that still concern the log; the topic of each is a `mark_name`."""
        return self._marks.all()

    def unfinished(self) -> list[Deletion]:
        return [each for each in self._marks.all() if not each.is_finished]

    def ask(self, names: list[Named], log_offset: int, time_ms: int) -> None:
        """Messages with these names go that are stored before a log offset; on return that is safe. Raises
        OSError."""
        for named in names:
            self._marks.mark(mark_name(named), log_offset, time_ms)
        self.on_change()

    def lacks(self, erasure: Deletion) -> bool:
        return erasure.log_offset > max(self._marks.offset_of(erasure.topic), self._log.start_offset)

    def copy(self, erasures: list[Deletion]) -> None:
        """Take over erasures of the master, once the log has come so far. Raises OSError."""
        for each in erasures:
            self._marks.mark(each.topic, each.log_offset, each.time_ms)

    def is_done_here(self, erasure: Deletion) -> bool:
        """Whether this log has nothing of it any more."""
        return erasure.is_finished or self._done_here.get(erasure.topic) == erasure.log_offset

    def done_here(self, erasure: Deletion) -> None:
        self._done_here[erasure.topic] = erasure.log_offset

    def finish(self, erasure: Deletion) -> None:
        """Nothing is left to do, unless it was asked for again. Raises OSError."""
        if self._marks.offset_of(erasure.topic) == erasure.log_offset:
            self._marks.finish(erasure.topic)

    def repeat(self, log_offset: int) -> None:
        """The log has got bytes from elsewhere at this place: erase again. Raises OSError."""
        for each in self._marks.all():
            if log_offset < each.log_offset:
                self._done_here.pop(each.topic, None)
                if each.is_finished:
                    self._marks.mark(each.topic, each.log_offset, each.time_ms)

    # In the log

    def find(self, wanted: Mapping[Named, int], offset: int, end: int) -> tuple[int, list[RecordOutline]]:
        """In a thread: search a piece of the log, from the record at `offset` on and up to `end` at most.
        Damaged bytes are passed over, but not a record of which only the body is damaged.

        Returns where the next piece begins, and the messages with these names that are before these log
        offsets. Raises OSError.
        """
        segment_bytes = self._log.segment_bytes
        end_of_file = offset - offset % segment_bytes + segment_bytes
        covering = self._log.segments.covering(offset, offset + 1)
        if not covering or isinstance(covering[0], MissingSegment):
            return end_of_file, []
        end = min(end, end_of_file)
        position = offset - covering[0].start
        try:
            with self._files.open(covering[0].path) as reader:
                content = reader.read(position, min(_PIECE_BYTES, end - offset))
                size = peek_size(content) if len(content) >= BLANK_SIZE else 0
                if len(content) < size <= end - offset:
                    content = reader.read(position, size)
        except FileNotFoundError:
            return end_of_file, []  # its time has come meanwhile
        return self._search(wanted, content, offset, end_of_file)

    def _search(
        self, wanted: Mapping[Named, int], content: bytes, offset: int, end_of_file: int
    ) -> tuple[int, list[RecordOutline]]:
        found: list[RecordOutline] = []
        here = 0
        if _native is not None and not any(key.encode() in content for _, key in wanted):
            here, _, _ = _native.whole_records(content, 0, len(content), len(content), offset)
        while len(content) - here >= BLANK_SIZE:
            try:
                outline = scan_record(content, here)
                if outline is None:
                    return end_of_file, found
                if outline.log_offset != offset + here:
                    raise RemoteProtocolError("it has the log offset of another record")
            except RemoteProtocolError:
                if here and MIN_RECORD_SIZE <= peek_size(content, here) > len(content) - here:
                    break  # it continues behind this piece
                following = next_sound_record(self._files, self._log, offset + here, end_of_file)
                return end_of_file if following is None else following, found
            raw = content[outline.properties_start : outline.properties_end]
            before = max((wanted.get(each, 0) for each in names_of(outline.topic, raw)), default=0)
            if outline.log_offset < before and not is_filler(outline):
                found.append(outline)
            here += outline.size
        return (offset + here if here else end_of_file), found

    def hide(self, message: RecordOutline) -> None:
        """Readers of its queue pass over a message from now on. Raises OSError."""
        self._mending.lose(message)

    def overwrite(self, message: RecordOutline) -> None:
        """In a thread: replace a message, and sync. Raises OSError."""
        body_bytes = message.body_end - message.body_start
        body_at = message.log_offset + message.body_start - message.start
        if body_bytes:
            self._scrubbing.put_back(body_at, bytes(body_bytes))
        self._scrubbing.put_back(
            message.log_offset,
            filler_for_removed(message.log_offset, message.size, message.store_timestamp),
        )
