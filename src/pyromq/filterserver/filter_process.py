"""The process of one filter, from outside: it is asked, watched, and ended if it takes too much.

Its CPU time and its answers are watched from here, its memory and system calls are limited by the kernel.
Whatever it does, the caller gets verdicts or `FilterFailed`.
"""

import asyncio
import os
import sys
import time
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

import msgspec

from pyromq.errors import PyroError
from pyromq.filterserver.exchange import (
    ERROR,
    EXHAUSTED,
    HEAD,
    LENGTH,
    LOAD,
    MATCH,
    MAX_TEXT_BYTES,
    QUEUE_ID,
    VERDICTS,
    FilterSource,
    packed,
)

_START_S: Final = 30.0
_MAX_ANSWER_BYTES: Final = 64 * 1024
_READ_BYTES: Final = 64 * 1024
_SHORTEST_LOOK_S: Final = 0.001


class FilterFailed(PyroError):
    """A filter gave no verdicts. `is_over`: its process has ended."""

    def __init__(self, what: str, *, is_over: bool) -> None:
        super().__init__(what)
        self.is_over = is_over


@dataclass(frozen=True, slots=True)
class FilterLimits:
    """Limits of a filter: CPU time and time for one question, memory for all its life."""

    cpu_s: float
    wait_s: float
    memory_bytes: int


class FilterProcess:
    """`await FilterProcess.start(limits)`, then `load`, then `match` as often as needed; one at a time."""

    def __init__(self, process: Process, limits: FilterLimits) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._process = process
        self._questions, self._answers = process.stdin, process.stdout
        self._limits = limits
        self._clock_id = ~process.pid << 3 | 2  # the kernel's name for the CPU clock of a process
        self._number = 0
        self._cpu_before_s = 0.0
        """CPU time when it had answered the last question."""
        self._is_ended = False

    def __repr__(self) -> str:
        return f"<FilterProcess {self._process.pid} questions={self._number}>"

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_over(self) -> bool:
        return self._is_ended or self._process.returncode is not None

    @classmethod
    async def start(cls, limits: FilterLimits, *, is_module: bool = False) -> "FilterProcess":
        """Return when the process has confined itself; raises FilterFailed. `is_module`: for WebAssembly."""
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-I", "-B", "-m", "pyromq.filterserver.confined"),
            *("module" if is_module else "python", str(limits.memory_bytes), str(os.getpid())),
            stdin=PIPE,
            stdout=PIPE,
            stderr=DEVNULL,
            cwd="/",
            env={},
        )
        started = cls(process, limits)
        try:
            async with asyncio.timeout(_START_S):
                await started._answer(0)
            started._cpu_before_s = started._cpu_s()
        except BaseException as problem:
            await started.end()
            if isinstance(problem, TimeoutError):
                raise FilterFailed(f"its process has not started in {_START_S:.0f} s", is_over=True) from None
            raise
        return started

    async def load(self, source: FilterSource) -> None:
        """Run the source; raises FilterFailed if it is not a filter."""
        await self._ask(LOAD, msgspec.json.encode(source))

    async def match(self, queue_id: int, records: Sequence[bytes | memoryview]) -> list[bool]:
        """The verdict on each record; raises FilterFailed."""
        verdicts = await self._ask(MATCH, b"".join((QUEUE_ID.pack(queue_id), *records)), len(records))
        return [verdict == 1 for verdict in verdicts]

    @property
    def goes_on(self) -> bool:
        """Whether it has gone on computing after its last answer, for longer than it may for a question."""
        return self._cpu_s() - self._cpu_before_s > self._limits.cpu_s

    async def end(self) -> None:
        self._is_ended = True
        with suppress(ProcessLookupError):
            self._process.kill()
        self._questions.close()
        while await self._answers.read(_READ_BYTES):
            pass  # the end of a process is not seen before the end of its pipe
        await self._process.wait()

    async def _ask(self, kind: bytes, content: bytes, verdicts: int = 0) -> bytes:
        self._number += 1
        asked = asyncio.create_task(self._exchange(packed(self._number, kind, content)))
        try:
            await self._watch(asked)
            answer = asked.result()
            if len(answer) != verdicts or answer.strip(b"\0\1"):
                raise FilterFailed("it wrote over its own answer", is_over=True)
            return answer
        except BaseException as problem:
            if not isinstance(problem, FilterFailed) or problem.is_over:
                asked.cancel()
                await asyncio.wait([asked])
                await self.end()
            raise
        finally:
            self._cpu_before_s = self._cpu_s()

    async def _watch(self, asked: "asyncio.Task[bytes]") -> None:
        limits = self._limits
        cpu_end, end = self._cpu_before_s + limits.cpu_s, time.monotonic() + limits.wait_s
        while not asked.done():
            # It cannot use more CPU time than passes: look again when it could have used all.
            cpu_left, left = cpu_end - self._cpu_s(), end - time.monotonic()
            if cpu_left <= 0:
                took = f"more than {limits.cpu_s * 1000:.0f} ms of CPU time"
            elif left <= 0:
                took = f"longer than {limits.wait_s * 1000:.0f} ms"
            else:
                await asyncio.wait([asked], timeout=max(min(cpu_left, left), _SHORTEST_LOOK_S))
                continue
            raise FilterFailed(f"it took {took}", is_over=True)

    def _cpu_s(self) -> float:
        try:
            return time.clock_gettime(self._clock_id)
        except OSError:  # it has ended: its answer, or the lack of one, says the rest
            return 0.0

    async def _exchange(self, question: bytes) -> bytes:
        with suppress(ConnectionError):  # the missing answer says more
            self._questions.write(question)
            await self._questions.drain()
        return await self._answer(self._number)

    async def _answer(self, wanted: int) -> bytes:
        try:
            length, number, kind = HEAD.unpack(await self._answers.readexactly(HEAD.size))
            size = length - HEAD.size + LENGTH.size
            if number != wanted or not 0 <= size <= _MAX_ANSWER_BYTES:
                raise FilterFailed("it wrote over its own answer", is_over=True)
            content = await self._answers.readexactly(size)
        except asyncio.IncompleteReadError:
            status = await self._process.wait()
            how = f"by signal {-status}" if status < 0 else f"with status {status}"
            raise FilterFailed(f"its process ended {how}", is_over=True) from None
        if kind == VERDICTS:
            return content
        if kind not in (ERROR, EXHAUSTED):
            raise FilterFailed("it wrote over its own answer", is_over=True)
        text = content[:MAX_TEXT_BYTES].decode("utf-8", "replace")
        raise FilterFailed(text, is_over=kind == EXHAUSTED)
