"""Counts that are added to the statistics once per read; see `pyromq.broker.tables.statistics`."""


cdef class Counted:
    """Counts of one queue that are not yet added to its statistics."""

    cdef int settle(self) except -1:
        series = self.series
        series.calls += self.calls
        series.messages += self.messages
        series.size_bytes += self.size_bytes
        self.calls = self.messages = 0
        self.size_bytes = 0
        return 0


cdef class Touched:
    """Those of one read."""

    def __cinit__(self):
        self.counted = []

    cdef int count(self, Counted counted, long messages, int64_t size_bytes) except -1:
        if not counted.calls:
            self.counted.append(counted)
        counted.calls += 1
        counted.messages += messages
        counted.size_bytes += size_bytes
        return 0

    cdef int settle(self) except -1:
        cdef Counted counted
        for counted in self.counted:
            counted.settle()
        self.counted.clear()
        return 0
