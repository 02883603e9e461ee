"""Ctrl-C and SIGTERM, for scripts: the first asks for a clean stop, the second ends the process at once.

The former signal handlers are restored afterwards. Only the main thread gets signals.
"""

import asyncio
import signal
import threading
from collections.abc import Iterable, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager

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


def run_until_interrupted(work: AbstractAsyncContextManager[object], interrupted: asyncio.Event) -> None:
    """Run `work` on a new event loop until a signal comes or the event is set elsewhere."""

    async def run(signals: Iterable[int]) -> None:
        loop = asyncio.get_running_loop()

        def interrupt() -> None:
            for number in signals:
                loop.remove_signal_handler(number)
            let_end_the_process(signals)
            interrupted.set()

        for number in signals:
            loop.add_signal_handler(number, interrupt)
        async with work:
            await interrupted.wait()

    with signals_to_handle() as signals:
        asyncio.run(run(signals))
