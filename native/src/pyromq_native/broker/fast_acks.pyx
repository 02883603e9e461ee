# cython: boundscheck=False, wraparound=False
"""Acknowledgements on the broker's fast path, gathered by pop."""

from cpython.bytes cimport PyBytes_GET_SIZE

from pyromq_native.protocol.answers cimport put_prefix
from pyromq_native.growing cimport Growing, put_bytes, put_number, reserve, take_bytes
from pyromq_native.protocol.declared cimport PREFIX_BYTES
from pyromq_native.protocol.headers cimport Header
from pyromq_native.protocol.requests cimport Ack
from pyromq_native.protocol.spans cimport is_same


cdef class AckRun:
    """Acknowledgements of one pop, one after the other in one read; see `pyromq.broker.fast_path.AckedRun`."""

    cdef bint is_of(self, Ack *ack) noexcept:
        return (
            ack.queue_id == self.queue_id
            and is_same(ack.receipt, self.receipt)
            and is_same(ack.topic, self.topic)
            and is_same(ack.group, self.group)
        )


cdef class FastAcks:
    """Acknowledgements, gathered with the others of their pop."""

    def __init__(self, acks):
        """`acks`: see `pyromq.broker.fast_path.GatheredAcks`."""
        self._acks = acks
        self._before, self._after = acks.answer_pieces
        self._run = None
        self._answers = Growing()

    cdef bint take(self, Header *header, Ack *ack, connection) except -1:
        """Gather it; False if the general path must handle it."""
        cdef Growing out = self._answers
        cdef AckRun run = self._run
        cdef Py_ssize_t start
        if run is None or not run.is_of(ack):
            self.end(connection)
            run = self._begin(ack)
            if run is None:
                return False
            self._run = run
        if not run.first <= ack.offset <= run.end:
            return False
        run.offsets.append(ack.offset)
        reserve(out, PREFIX_BYTES + PyBytes_GET_SIZE(self._before) + PyBytes_GET_SIZE(self._after) + 32)
        start = out.size
        out.size += PREFIX_BYTES
        put_bytes(out, self._before)
        put_number(out, header.opaque)
        put_bytes(out, self._after)
        put_prefix(out, start, False, 0)
        return True

    cdef AckRun _begin(self, Ack *ack):
        cdef AckRun run = AckRun.__new__(AckRun)
        run.topic = ack.topic.at[: ack.topic.length]
        run.group = ack.group.at[: ack.group.length]
        run.receipt = ack.receipt.at[: ack.receipt.length]
        run.queue_id = ack.queue_id
        run.found = self._acks.begin(run.topic, run.group, run.queue_id, run.receipt)
        if run.found is None:
            return None
        run.first, run.end = run.found.first, run.found.end
        run.offsets = []
        return run

    cdef int end(self, connection) except -1:
        cdef AckRun run = self._run
        if run is not None:
            self._run = None
            if run.offsets:
                self._acks.gather(run.found, run.offsets, connection, take_bytes(self._answers))
        return 0
