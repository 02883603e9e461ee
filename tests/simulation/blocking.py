"""Blocking code in a run: it has a real thread, which runs only while the loop stands still.

Whatever such code waits for is awaited by a task of its process, in virtual time; then it goes on. So there
is one order of everything, as with tasks, and a process that is killed leaves a thread that never goes on.
"""

import asyncio
import contextvars
import socket
import threading
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, TypeVar, cast

from pyromq.remoting.blocking_link import LinkOptions

if TYPE_CHECKING:
    from tests.simulation.loop import SimulatedLoop

T = TypeVar("T")

current_code: "contextvars.ContextVar[BlockingCode | None]" = contextvars.ContextVar("code", default=None)


class BlockingCode:
    """`await BlockingCode().run(work)`; `work` connects by `connect` and waits by `wait`."""

    def __init__(self) -> None:
        self._loop = cast("SimulatedLoop", asyncio.get_running_loop())
        self._code_may_run, self._loop_may_run = threading.Semaphore(0), threading.Semaphore(0)
        self._wanted: Coroutine[Any, Any, Any] | None = None
        self._got: asyncio.Future[Any]
        """What came of that."""

    async def run(self, work: Callable[[], T]) -> T:
        ended: asyncio.Future[T] = self._loop.create_future()

        def code() -> None:
            current_code.set(self)
            self._code_may_run.acquire()
            try:
                ended.set_result(work())
            except BaseException as problem:  # its machine may have lost power
                ended.set_exception(problem)
            self._loop_may_run.release()

        threading.Thread(target=contextvars.copy_context().run, args=(code,), daemon=True).start()
        while True:
            self._code_may_run.release()
            self._loop_may_run.acquire()
            # What a disk took is time of this thread alone.
            if spent_s := self._loop.take_spent():
                await asyncio.sleep(spent_s)
            if ended.done():
                return ended.result()
            assert self._wanted is not None
            self._got = asyncio.ensure_future(self._wanted)
            await asyncio.wait((self._got,))

    # In the thread

    def await_(self, wanted: Coroutine[Any, Any, T]) -> T:
        self._wanted = wanted
        self._loop_may_run.release()
        self._code_may_run.acquire()
        return cast(T, self._got.result())

    def wait(self, seconds: float) -> None:
        self.await_(asyncio.sleep(seconds))

    def link_options(self, timeout_ms: int) -> LinkOptions:
        return LinkOptions(timeout_ms, connect=self._connect, wait=self.wait)

    def _connect(self, address: tuple[str, int], timeout_s: float) -> socket.socket:
        incoming = _Incoming(self._loop)
        opening = self._loop.create_connection(lambda: incoming, *address)
        self.await_(asyncio.wait_for(opening, timeout_s))
        return cast(socket.socket, _Socket(self, incoming, timeout_s))


class _Incoming(asyncio.Protocol):
    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.data = bytearray()
        self.is_over = False
        self.problem: Exception | None = None
        self.transport: asyncio.Transport
        self._news = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self.data += data
        self._news.set()

    def connection_lost(self, problem: Exception | None) -> None:
        self.is_over, self.problem = True, problem
        self._news.set()

    async def come(self, timeout_s: float) -> None:
        async with asyncio.timeout(timeout_s):
            while not self.data and not self.is_over:
                self._news.clear()
                await self._news.wait()


class _Socket:
    """As much of a socket as links use."""

    def __init__(self, code: BlockingCode, incoming: _Incoming, timeout_s: float) -> None:
        self._code, self._incoming, self._timeout_s = code, incoming, timeout_s

    def setsockopt(self, *_: int) -> None:
        """There is nothing to set."""

    def settimeout(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s

    def sendall(self, data: bytes) -> None:
        if self._incoming.is_over:
            raise BrokenPipeError
        self._incoming.transport.write(data)

    def recv(self, size: int, flags: int) -> bytes:
        assert flags == socket.MSG_PEEK
        self._wait_for_data()
        return bytes(self._incoming.data[:size])

    def recv_into(self, buffer: memoryview, size: int) -> int:
        self._wait_for_data()
        data = self._incoming.data[:size]
        buffer[: len(data)] = data
        del self._incoming.data[:size]
        return len(data)

    def _wait_for_data(self) -> None:
        if not self._incoming.data and not self._incoming.is_over:
            if not self._timeout_s:
                raise BlockingIOError
            self._code.await_(self._incoming.come(self._timeout_s))
        if not self._incoming.data and self._incoming.problem is not None:
            raise self._incoming.problem

    def close(self) -> None:
        self._incoming.transport.close()
