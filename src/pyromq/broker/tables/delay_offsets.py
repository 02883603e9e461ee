"""The delivery progress of each delay level.

Only saved offsets survive a crash or a cut of the log; messages behind them are delivered again, never
skipped. So they are saved only when no other master can cut off the messages that were delivered.
"""

from collections.abc import Callable

from pyromq.broker.tables.table_file import FiledTable, TableFile
from pyromq.clock import Clock
from pyromq.protocol.body import DataVersion
from pyromq.protocol.requests.offsets import DelayOffsetSerializeWrapper
from pyromq.store.json_table import JsonTable


class DelayOffsetTable(FiledTable):
    def __init__(self, file: JsonTable, clock: Clock, *, deliveries_per_version: int = 200) -> None:
        self._file = TableFile(file, lambda: self._taken)
        self._clock = clock
        self._deliveries_per_version = deliveries_per_version
        loaded = file.load(DelayOffsetSerializeWrapper) or DelayOffsetSerializeWrapper()
        self._offsets = dict(loaded.offset_table)
        self._deliveries = 0
        self.is_dirty = False
        """Whether the table changed since the last `take`."""
        self.data_version = loaded.data_version or DataVersion()
        self._taken = loaded

    def __repr__(self) -> str:
        return f"<DelayOffsetTable levels={len(self._offsets)} dirty={self.is_dirty}>"

    def get(self, level: int) -> int:
        """The offset of the next message to deliver, from 0."""
        return self._offsets.get(level, 0)

    def all(self) -> dict[int, int]:
        return self._offsets

    def advance(self, level: int, offset: int) -> None:
        self._offsets[level] = offset
        self.is_dirty = True
        self._deliveries += 1
        if self._deliveries % self._deliveries_per_version == 0:
            self.data_version = self.data_version.next(self._clock.now_ms())

    @property
    def changes(self) -> int:
        """Counts the changes."""
        return self._deliveries

    def copy(self, table: DelayOffsetSerializeWrapper) -> None:
        """Take over a master's progress."""
        if table.offset_table != self._offsets:
            self._offsets = dict(table.offset_table)
            self.data_version = table.data_version or self.data_version
            self._deliveries += 1
            self.is_dirty = True

    def hand_over(self) -> None:
        """Give the table a newer version than the master's, so that it takes this progress over; save it."""
        self.data_version = self.data_version.next(self._clock.now_ms())
        self.save(self.take())

    def fit(self, end_of: Callable[[int], int]) -> None:
        """The log was cut: nothing was delivered beyond the end of a level's queue."""
        for level, offset in list(self._offsets.items()):
            if offset > end_of(level):
                self.advance(level, end_of(level))

    def set_back(self) -> None:
        """The log was cut, perhaps with messages that were delivered: continue from what was saved last."""
        if self._offsets != self._taken.offset_table:
            self._offsets = dict(self._taken.offset_table)
            self._deliveries += 1

    def take(self) -> DelayOffsetSerializeWrapper:
        """A copy of the table, for saving later."""
        self.is_dirty = False
        return self.wrapper()

    @property
    def is_unsaved(self) -> bool:
        """Whether something that was to be saved is not on disk yet."""
        return self._file.written < self._file.changes

    def save(self, taken: DelayOffsetSerializeWrapper) -> None:
        """Write what was taken; under a loop a thread does so. `retry` writes what it could not write."""
        self._taken = taken
        self._file.save()

    def save_now(self, taken: DelayOffsetSerializeWrapper) -> None:
        """Write what was taken; on return it is safe."""
        self._taken = taken
        self._file.save_now()

    def wrapper(self) -> DelayOffsetSerializeWrapper:
        return DelayOffsetSerializeWrapper(data_version=self.data_version, offset_table=dict(self._offsets))
