"""What readers find of a queue whose offsets go back."""

import pytest

from pyromq.protocol.record import MIN_RECORD_SIZE
from pyromq.tier.index import TierIndex, TierSpan
from pyromq.tier.manifest import HiddenMessages, Manifest, SegmentEntry
from pyromq.tier.names import segment_name

QUEUE = ("T", 0)
FILE_BYTES = 1000


def index(*runs: tuple[int, int] | None, deleted_before: int = 0) -> TierIndex:
    """One run in each segment: its first offset and its end; None for a segment that cannot be read."""
    entries, parts = [], {}
    for number, run in enumerate(runs):
        start = number * FILE_BYTES
        name = segment_name(start, 0, "0" * 64)
        entry = SegmentEntry(name, start, start + FILE_BYTES, 500, 100, 0, 0, "0" * 64, "0" * 64)
        entries.append(entry)
        if run is None:
            continue
        first, end = run
        parts[name] = ((QUEUE, TierSpan(entry, 0, first, end, start, start + 900, 0, 0, 900)),)
    marks = (HiddenMessages("T", deleted_before),) if deleted_before else ()
    return TierIndex(Manifest(tier_id="t", segments=tuple(entries), deletions=marks), parts)


@pytest.mark.parametrize(
    ("runs", "kept", "odd"),
    [
        ([(0, 9), (9, 20)], [(0, 9), (9, 20)], []),
        ([(0, 60), (1 << 20, (1 << 20) + 1), (61, 90)], [(0, 60), (61, 90)], [(1 << 20, (1 << 20) + 1)]),
        ([(0, 60), (5, 6), (61, 90)], [(0, 60), (61, 90)], [(5, 6)]),
        ([(0, 60), (5, 6)], [(0, 60)], [(5, 6)]),
        ([(0, 60), (0, 9), (9, 20)], [(0, 9), (9, 20)], [(0, 60)]),
        ([(0, 30), (30, 60), (0, 9)], [(0, 9)], [(0, 30), (30, 60)]),
    ],
)
def test_a_span_that_is_out_of_line_hides_no_others(
    runs: list[tuple[int, int]], kept: list[tuple[int, int]], odd: list[tuple[int, int]]
) -> None:
    found = index(*runs)
    assert [each[2:4] for each in found.visible(QUEUE, 0)] == kept
    assert [each[2:4] for each in found.out_of_line.get(QUEUE, ())] == odd


def test_after_a_deletion_only_the_new_messages_are_there() -> None:
    found = index((0, 30), (30, 60), (0, 1), deleted_before=2 * FILE_BYTES)
    assert [each[2:4] for each in found.visible(QUEUE, 0)] == [(0, 1)]
    assert not found.out_of_line
    # Only the last deletion is known; what comes before an earlier one is gone as well.
    found = index((0, 30), (0, 20), (0, 1), deleted_before=2 * FILE_BYTES)
    assert [each[2:4] for each in found.visible(QUEUE, 0)] == [(0, 1)]
    assert not found.out_of_line


ROOM = FILE_BYTES // MIN_RECORD_SIZE
"""So many messages may be in a segment that cannot be read."""


@pytest.mark.parametrize(
    ("runs", "deleted_before", "end", "is_known"),
    [
        ([(0, 9), (9, 20)], 0, 20, True),
        ([(0, 9), None, (12, 20)], 0, 20, True),
        ([(0, 9), None], 0, 9 + ROOM, False),
        ([None], 0, ROOM, False),
        ([(0, 9), None, None], 2 * FILE_BYTES, ROOM, False),
        ([(0, 9), None], 2 * FILE_BYTES, 0, True),
    ],
)
def test_no_queue_ends_before_what_may_be_in_a_segment_that_cannot_be_read(
    runs: list[tuple[int, int] | None], deleted_before: int, end: int, is_known: bool
) -> None:
    found = index(*runs, deleted_before=deleted_before)
    before = len(runs) * FILE_BYTES
    assert (found.end_of(QUEUE, before), found.is_end_known(QUEUE, before)) == (end, is_known)
