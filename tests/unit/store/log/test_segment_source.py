"""Readers ask a source for segments: a message is found wherever its segment lies."""

from contextlib import nullcontext
from pathlib import Path

import pytest
from tests.support.small_stores import TOPIC, append, bodies_of, dispatch_all, interpreted, small_settings

from pyromq.protocol.record import decode_record
from pyromq.store.log.segment_source import ReadableSegment, SegmentSource
from pyromq.store.message_store import MessageStore
from pyromq.store.reading import RecordFilter


class CopiedSegment:
    """A segment in memory, as another place than a mapped file would give it."""

    def __init__(self, segment: ReadableSegment) -> None:
        self.start, self.size_bytes, self.end = segment.start, segment.size_bytes, segment.end
        self.buffer = bytes(segment.view)
        self.view = memoryview(self.buffer)


class CopiedSegments:
    def __init__(self, source: SegmentSource) -> None:
        self.start = source.start
        self._source = source
        self.found = 0

    def find(self, offset: int) -> ReadableSegment | None:
        segment = self._source.find(offset)
        self.found += segment is not None
        return CopiedSegment(segment) if segment is not None else None


@pytest.mark.parametrize("is_compiled", [True, False])
def test_messages_are_read_from_segments_that_are_not_mapped_files(tmp_path: Path, is_compiled: bool) -> None:
    with (
        nullcontext() if is_compiled else interpreted(),
        MessageStore.open(small_settings(tmp_path)) as store,
    ):
        wanted = [b"message %d" % number for number in range(100)]
        places = [append(store, body).log_offset for body in wanted]
        dispatch_all(store)
        store._log.source = source = CopiedSegments(store._log.source)
        assert bodies_of(store) == wanted
        only = RecordFilter(lambda record: record.tobytes().find(b"message 7") >= 0)
        assert store.read(TOPIC, 0, 0, 100, only=only).message_count == 1
        record = store.log.record_at(places[50])
        assert record is not None
        assert decode_record(record).body == wanted[50]
        assert [outline.log_offset for outline, _ in store.log.records_from(places[0])] == places
        assert source.found
