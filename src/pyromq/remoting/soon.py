"""Callbacks for the end of this turn of the event loop; what they cause comes in the same go.

A message between two parts of one process passes several hands: an outbox, the other end, its answer, the
socket of a client. With `call_soon` each of them would wait for a turn of the loop, and each turn asks the
system for events. Every callback still starts from an empty stack.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from weakref import WeakValueDictionary

from pyromq.chance import process_id

_MAX_AT_ONCE = 1000
"""Then others have a turn."""


class Soon:
    __slots__ = ("__weakref__", "_is_planned", "_loop", "_waiting")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: deque[Callable[[], object]] = deque()
        self._is_planned = False

    def __repr__(self) -> str:
        return f"<Soon waiting={len(self._waiting)}>"

    def call(self, callback: Callable[[], object]) -> None:
        self._waiting.append(callback)
        if not self._is_planned:
            self._is_planned = True
            self._loop.call_soon(self._run)

    def _run(self) -> None:
        waiting = self._waiting
        try:
            for _ in range(_MAX_AT_ONCE):
                if not waiting:
                    break
                callback = waiting.popleft()
                try:
                    callback()
                except Exception as problem:
                    self._loop.call_exception_handler(
                        {"message": f"a callback failed: {callback!r}", "exception": problem}
                    )
        finally:
            self._is_planned = bool(waiting)
            if waiting:
                self._loop.call_soon(self._run)


_of_loops: "WeakValueDictionary[tuple[int, int], Soon]" = WeakValueDictionary()
"""By the loop's id, because a loop that was a key would be kept by its own value, and by the process: a
simulation has many on one loop, and none may run the callbacks of another."""


def soon_of(loop: asyncio.AbstractEventLoop) -> Soon:
    key = id(loop), process_id()
    found = _of_loops.get(key)
    if found is None:
        found = _of_loops[key] = Soon(loop)
    return found
