"""Tags codes: the third field of a unit.

It is the Java hash of the message's tag, 0 without one. In the queues of delayed messages it is the time at
which the message is due.
"""

from typing import Final

from pyromq.protocol.java_hash import java_string_hash
from pyromq.protocol.properties import get_property_bytes
from pyromq.protocol.record import RecordOutline
from pyromq.store.log.segment_source import ReadableSegment
from pyromq.store.queues.consume_queue import ConsumeQueue

_UNKNOWN_DELAY_MS: Final = 1000
_MAX_TAGS: Final = 4096


class TagsCodes:
    def __init__(self, delays_ms: tuple[int, ...]) -> None:
        self._delays_ms = delays_ms
        self.by_tag: dict[bytes, int] = {}
        """Codes of the tags seen last: hashing a tag is slower than looking it up."""

    def of(self, queue: ConsumeQueue, store_timestamp: int, properties: bytes, tags: bytes) -> int:
        if queue.is_schedule:
            level = get_property_bytes(properties, "DELAY")
            if level and level.isdigit() and int(level) > 0:
                return store_timestamp + self._delay_ms(int(level))
        if not tags:
            return 0
        code = java_string_hash(tags.decode("utf-8", "replace"))
        if len(self.by_tag) >= _MAX_TAGS:
            self.by_tag.clear()
        self.by_tag[tags] = code
        return code

    def of_record(self, queue: ConsumeQueue, segment: ReadableSegment, outline: RecordOutline) -> int:
        """The code of a record in the log, for a unit that is made again."""
        properties = segment.buffer[outline.properties_start : outline.properties_end]
        tags, _, _ = queue.probe.read(properties)
        return self.of(queue, outline.store_timestamp, properties, tags)

    def _delay_ms(self, level: int) -> int:
        # java: a level above the highest counts as the highest
        delays = self._delays_ms
        return delays[min(level, len(delays)) - 1] if delays else _UNKNOWN_DELAY_MS
