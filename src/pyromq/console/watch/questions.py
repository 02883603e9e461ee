"""Questions to servers, each at its own pace: a silent server delays no other."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from heapq import nsmallest
from typing import Final
from zlib import crc32

from pyromq.clock import Clock
from pyromq.errors import PyroError

_log = logging.getLogger(__name__)

_AT_ONCE: Final = 32
_STARTED_AT_ONCE: Final = 2
"""Number of questions that are started in a turn: answers that arrive together block the loop together."""
_LARGE_AT_ONCE: Final = 6
"""The first answer of a broker has everything, and takes milliseconds to digest."""


class Question:
    """One question to one server, asked again and again; the first wait differs from server to server, so
    that they are not all asked at the same time."""

    def __init__(
        self,
        key: tuple[str, str],
        ask: Callable[[], Awaitable[None]],
        every_s: float,
        is_large: Callable[[], bool],
        is_aside: bool,
    ) -> None:
        self.key = key
        self.ask = ask
        self.is_large = is_large
        self.is_aside = is_aside
        self.every_s = every_s
        self.due_s = 0.0
        self.failures = 0
        self.task: asyncio.Task[None] | None = None
        self._share = 0.5 + crc32(key[0].encode()) / 2**33

    def wait(self, now_s: float, silent_max_s: float) -> None:
        """It was asked: when again?"""
        wait_s = self.every_s * 2 ** min(self.failures, 10)
        self.due_s = now_s + min(wait_s, max(self.every_s, silent_max_s)) * self._share
        self._share = 1.0


class Questions:
    """A server that does not answer is asked less and less often, down to every `silent_max_s`."""

    def __init__(self, clock: Clock, silent_max_s: float) -> None:
        self._clock = clock
        self._silent_max_s = silent_max_s
        self._questions: dict[tuple[str, str], Question] = {}
        self._places = asyncio.Semaphore(_AT_ONCE)
        self.asked = 0
        """How many were asked so far."""
        self.has_news = False
        """Whether one was answered, or failed, since somebody last set it back."""

    def __repr__(self) -> str:
        return f"<Questions {len(self._questions)} asked={self.asked}>"

    def __contains__(self, key: tuple[str, str]) -> bool:
        return key in self._questions

    def add(
        self,
        address: str,
        what: str,
        ask: Callable[[], Awaitable[None]],
        every_s: float,
        *,
        is_large: Callable[[], bool] = lambda: False,
        is_aside: bool = False,
    ) -> None:
        """`is_aside`: it waits for others of its kind, and must not make the rest wait."""
        key = address, what
        if key not in self._questions:
            self._questions[key] = Question(key, ask, every_s, is_large, is_aside)

    def drop(self, address: str, *what: str) -> None:
        for key in [each for each in self._questions if each[0] == address and (not what or each[1] in what)]:
            question = self._questions.pop(key)
            if question.task is not None:
                question.task.cancel()

    def set_pace(self, address: str, what: str, every_s: float) -> None:
        self._questions[address, what].every_s = every_s

    def ask_again(self, address: str | None = None) -> None:
        """Ask all servers, or one, again soon."""
        for question in self._questions.values():
            if address is None or question.key[0] == address:
                question.due_s = 0.0

    def start_due(self) -> "list[asyncio.Task[None]]":
        now_s = self._clock.monotonic()
        started: list[asyncio.Task[None]] = []
        due = [each for each in self._questions.values() if each.due_s <= now_s and each.task is None]
        running = sum(each.task is not None and each.is_large() for each in self._questions.values())
        if running >= _LARGE_AT_ONCE:
            due = [each for each in due if not each.is_large()]
        for question in nsmallest(_STARTED_AT_ONCE, due, key=lambda each: each.due_s):
            question.task = asyncio.create_task(self._ask(question), name=f"console {question.key}")
            started.append(question.task)
        return started

    def running(self) -> "list[asyncio.Task[None]]":
        return [each.task for each in self._questions.values() if each.task is not None]

    async def _ask(self, question: Question) -> None:
        async with nullcontext() if question.is_aside else self._places:
            self.asked += 1
            try:
                await question.ask()
            except PyroError:
                question.failures += 1
            except Exception:
                question.failures += 1
                _log.exception("the console failed question=%s", question.key)
            else:
                question.failures = 0
            finally:
                question.wait(self._clock.monotonic(), self._silent_max_s)
                question.task = None
                self.has_news = True

    async def stop(self) -> None:
        tasks = self.running()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
