# cython: boundscheck=False, wraparound=False
"""One object for one send: the coroutine that its caller awaits, and the future that the caller's task gets.

A separate coroutine and future would cost as much as all the rest of a send, and so would a callback of the
loop for each of them: one callback gives many of these their results, and each wakes its task itself.
"""

from asyncio import CancelledError
from contextvars import copy_context
from warnings import warn

cimport cython
from cpython.object cimport PyObject
from cpython.ref cimport Py_DECREF, Py_INCREF
from libc.stdint cimport int64_t

from pyromq_native.protocol.unique_keys cimport monotonic_us

cdef enum:
    WOKEN_AT_ONCE = 32
    TURN_US = 4000

cdef extern from *:
    """
    static void resume_by(PyObject *type, void *resume) {
        ((PyTypeObject *)type)->tp_as_async->am_send = (sendfunc)resume;
    }
    """
    ctypedef enum PySendResult:
        PYGEN_RETURN
        PYGEN_ERROR
        PYGEN_NEXT
    PySendResult PyIter_Send(object iterator, object value, PyObject **result) except PYGEN_ERROR
    void resume_by(object type, void *resume)
    int PyContext_Enter(object context) except -1
    int PyContext_Exit(object context) except -1


cdef inline int _give(int how, object given, PyObject **result) noexcept:
    Py_INCREF(given)
    result[0] = <PyObject *>given
    return how


cdef int _resume(PyObject *sent, PyObject *value, PyObject **result) except -1:
    result[0] = NULL
    return (<Sent>sent).resume(<object>value, result)


cdef resume_in_c(object kind):
    """Cython knows no `__send__`; without it, every result would be the value of a StopIteration."""
    resume_by(kind, <void *>_resume)


@cython.no_gc
cdef class Sent:
    """A kind of send says how it begins, whether it is settled and what came of it."""

    def __dealloc__(self):
        if self._state == NEW:
            warn("coroutine 'Producer.send' was never awaited", RuntimeWarning)

    cdef object begin(self):
        """None if the message is on its way; else a coroutine that sends it otherwise."""
        raise NotImplementedError

    cdef bint is_settled(self):
        raise NotImplementedError

    cdef object outcome(self):
        """The result; with `otherwise`, a coroutine that continues, there is none yet."""
        raise NotImplementedError

    cdef int give_up(self) except -1:
        """The result is no longer awaited."""
        return 0

    cdef int resume(self, object value, PyObject **result) except -1:
        cdef State was = self._state
        cdef int how
        if was == CANCELLED:
            self._state = OVER
            self.give_up()
            raise self._cancellation()
        if was == OVER:
            raise RuntimeError("cannot reuse already awaited coroutine")
        if was == NEW and value is not None:
            raise TypeError("can't send non-None value to a just-started coroutine")
        if was == NEW:
            self._state = OVER
            self.otherwise = self.begin()
            if self.otherwise is None:
                was = self._state = WAITING
        if was == WAITING or was == TOLD:
            if not self.is_settled():
                self._is_blocking = True
                return _give(PYGEN_NEXT, self, result)
            self._state = OVER
            outcome = self.outcome()
            if self.otherwise is None:
                return _give(PYGEN_RETURN, outcome, result)
        self._state = OVER
        how = PyIter_Send(self.otherwise, value, result)
        if how == PYGEN_NEXT:
            self._state = ELSEWHERE
        return how

    # The coroutine

    def __await__(self):
        return self

    def __iter__(self):
        return self

    def __next__(self):
        return self.send(None)

    def send(self, value):
        cdef PyObject *result = NULL
        cdef int how = self.resume(value, &result)
        given = <object>result
        Py_DECREF(given)
        if how == PYGEN_NEXT:
            return given
        raise StopIteration(given)

    def throw(self, kind, problem=None, traceback=None):
        cdef State was = self._state
        if problem is None:
            problem = kind
        if not isinstance(problem, BaseException):
            problem = kind() if problem is kind else kind(problem)
        if traceback is not None:
            problem = problem.with_traceback(traceback)
        self._state = OVER
        if was == ELSEWHERE:
            yielded = self.otherwise.throw(problem)
            self._state = ELSEWHERE
            return yielded
        if was != NEW and was != OVER:
            self.give_up()
        raise problem

    def close(self):
        cdef State was = self._state
        self._state = OVER
        if was == ELSEWHERE:
            self.otherwise.close()
        elif was != NEW and was != OVER:
            self.give_up()

    # The future

    @property
    def _asyncio_future_blocking(self):
        """None, and to asyncio no future, before the send has begun and after it is over."""
        return self._is_blocking if self._state == WAITING else None

    @_asyncio_future_blocking.setter
    def _asyncio_future_blocking(self, bint is_blocking):
        self._is_blocking = is_blocking

    def get_loop(self):
        return self.loop

    cpdef bint done(self):
        return self._state != WAITING or self.is_settled()

    def cancelled(self):
        return self._state == CANCELLED

    def result(self):
        """Asked by the task, before it resumes the coroutine, which returns the real one."""
        if self._state == CANCELLED:
            raise self._cancellation()

    cdef object _cancellation(self):
        return CancelledError() if self._reason is None else CancelledError(self._reason)

    def add_done_callback(self, callback, *, context=None):
        if self._callback is not None:
            raise RuntimeError("a send is awaited by one task")
        if self.done():
            self.loop.call_soon(callback, self, context=context)
        else:
            self._callback = callback
            self._context = context

    def cancel(self, msg=None):
        if self.done():
            return False
        self._state = CANCELLED
        self._reason = msg
        callback, self._callback = self._callback, None
        if callback is not None:
            self.loop.call_soon(callback, self, context=self._context)
        self._context = None
        return True

    cdef int tell(self) except -1:
        """It is settled: wake the task that awaits it, in the task's context."""
        callback, self._callback = self._callback, None
        context, self._context = self._context, None
        if self._state != WAITING:
            return 0
        self._state = TOLD
        if callback is None:
            return 0
        try:
            PyContext_Enter(context)
        except (RuntimeError, TypeError):  # a context of the caller's own, or none
            self.loop.call_soon(callback, self, context=context)
            return 0
        try:
            callback(self)
        finally:
            PyContext_Exit(context)
        return 0


cdef class PlainSends:
    """The `send` of a producer that takes plain messages itself, and hands others to the general path."""

    def close(self):
        """From now on the general path takes every message."""
        self.is_closed = True

    def send(
        self,
        message,
        *,
        queue=None,
        selector=None,
        sharding_key=None,
        timeout_s=None,
        delay=None,
        deliver_at=None,
    ):
        """A coroutine with the result of a message."""
        if (
            queue is not None
            or selector is not None
            or sharding_key is not None
            or timeout_s is not None
            or delay is not None
            or deliver_at is not None
        ):
            return self.generally(
                message,
                queue=queue,
                selector=selector,
                sharding_key=sharding_key,
                timeout_s=timeout_s,
                delay=delay,
                deliver_at=deliver_at,
            )
        return self.new(message)

    cdef Sent new(self, message):
        raise NotImplementedError


cdef class Wakeup:
    """Wakes the tasks that await results, many in one callback, for as long as one callback may take."""

    def __init__(self, loop, after=None):
        """`after` is called at the end of such a callback."""
        self._loop = loop
        self._nowhere = copy_context()  # one that no task has: from it, tasks can be woken in theirs
        self._after = after
        self._sends = []

    cdef int wake(self, list sends) except -1:
        self._sends += sends
        return self._plan()

    cdef int wake_one(self, Sent sent) except -1:
        self._sends.append(sent)
        return self._plan()

    cdef int _plan(self) except -1:
        if not self._is_planned:
            self._is_planned = True
            self._loop.call_soon(self._run, context=self._nowhere)
        return 0

    def _run(self):
        cdef list sends = self._sends
        cdef int64_t turn_ends = monotonic_us() + TURN_US
        cdef Sent sent
        self.is_running = True
        try:
            while self._told < len(sends):
                sent = sends[self._told]
                sends[self._told] = None
                self._told += 1
                sent.tell()
                if not self._told % WOKEN_AT_ONCE and monotonic_us() > turn_ends:
                    break
        finally:
            self.is_running = self._is_planned = False
            if self._told < len(sends):
                self._plan()
            else:
                self._sends = []
                self._told = 0
            if self._after is not None:
                self._after()
