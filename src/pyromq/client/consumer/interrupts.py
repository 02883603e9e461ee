"""Ctrl-C and SIGTERM, for scripts: the first asks for a clean stop, the second ends the process at once.

The former signal handlers are restored afterwards. Only the main thread gets signals.
"""

import asyncio
import signal
import threading
from collections.abc import Callable, Coroutine, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

_STOPPING = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def signals_to_handle() -> Iterator[tuple[int, ...]]:
    is_main = threading.current_thread() is threading.main_thread()
    former = {number: signal.getsignal(number) for number in _STOPPING} if is_main else {}
    try:
        yield tuple(former)
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)


def let_end_the_process(signals: Iterable[int]) -> None:
    for number in signals:
        signal.signal(number, signal.SIG_DFL)


async def started_before(interrupted: asyncio.Event, start: Callable[[], Coroutine[Any, Any, None]]) -> bool:
    """Start, unless the event is set first: a start may wait long for its cluster."""
    starting, waiting = asyncio.create_task(start()), asyncio.create_task(interrupted.wait())
    try:
        await asyncio.wait((starting, waiting), return_when=asyncio.FIRST_COMPLETED)
    finally:
        waiting.cancel()
        starting.cancel()
        await asyncio.wait((starting,))
    if starting.cancelled():
        return False
    starting.result()
    return True


class RunningConsumer(Protocol):
    async def run_until_closed(self) -> None: ...
    async def close(self) -> None: ...


def run_until_interrupted(work: RunningConsumer, interrupted: asyncio.Event) -> None:
    """Run `work` on a new event loop until a signal, which sets the event, comes or it is closed."""

    async def run(signals: Iterable[int]) -> None:
        loop = asyncio.get_running_loop()

        def interrupt() -> None:
            for number in signals:
                loop.remove_signal_handler(number)
            let_end_the_process(signals)
            interrupted.set()

        for number in signals:
            loop.add_signal_handler(number, interrupt)
        try:
            await work.run_until_closed()
        finally:
            await work.close()

    with signals_to_handle() as signals:
        asyncio.run(run(signals))
