"""Messages that a queue holds twice, because whoever sent them had no answer: the later ones are omitted.

Whether a message is omitted depends on a window of messages before it in its queue, and on nothing else.
So it is the same in every batch and partition. Each task reads the window before its span once more.
"""

from dataclasses import replace

import pyarrow as pa

from pyromq.spark.cluster import SparkCluster
from pyromq.spark.columns import read_columns
from pyromq.spark.fetch import Fetch
from pyromq.spark.options import ReadOptions
from pyromq.spark.queues import Span

COLUMNS = ("msgId", "offset")
"""The columns that must be known of each message."""


class Repeats:
    def __init__(self, window: int) -> None:
        self._window = window
        self._last: dict[str, int] = {}
        """The last offset of each id."""

    def __repr__(self) -> str:
        return f"<Repeats within {self._window} ids={len(self._last)}>"

    def first_ones(self, ids: pa.StringArray, offsets: pa.Int64Array) -> list[bool]:
        """For each message, whether none of the window before it has its id; in the order of offsets."""
        last, window = self._last, self._window
        firsts = []
        for key, offset in zip(ids.to_pylist(), offsets.to_pylist(), strict=True):
            firsts.append(offset - last.get(key, -window - 1) > window)
            last[key] = offset
        if len(last) > 2 * window and len(offsets):
            begin = offsets[-1].as_py() - window
            self._last = {key: offset for key, offset in last.items() if offset >= begin}
        return firsts


def repeats_before(cluster: SparkCluster, options: ReadOptions, span: Span, window: int) -> Repeats:
    """The repeated messages known where a span begins."""
    repeats = Repeats(window)
    start = max(span.start - window, 0)
    if start < span.start:
        start = max(start, *cluster.earliest([span.queue]).values())
    if start >= span.start:
        return repeats
    before = Span(span.queue, start, span.start)
    # Messages that were deleted meanwhile cannot be repeated, so their loss is not an error.
    for chunk in Fetch(cluster, before, replace(options, fail_on_data_loss=False)):
        end = min(chunk.end, before.end)
        _, columns = read_columns(chunk.bodies, COLUMNS, {}, chunk.start, end)
        repeats.first_ones(columns["msgId"], columns["offset"])
    return repeats
