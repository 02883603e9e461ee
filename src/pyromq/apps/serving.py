"""Running a server until it is told to stop: the first signal ends it in good order, the second at once."""

import asyncio
import ctypes
import faulthandler
import gc
import logging
import os
import resource
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

log = logging.getLogger("pyromq.apps")

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_KEPT_BYTES = 16 * 1024 * 1024


class Server(Protocol):
    async def start(self) -> None:
        """Listen; raises if that is not possible."""
        ...

    async def run_until_stopped(self) -> None: ...

    async def stop(self) -> None:
        """Accept nothing more, finish what is in flight, close; `run_until_stopped` returns."""
        ...


def serve(server: Server, announce: Callable[[], None]) -> None:
    """Run the server on a loop of its own; returns after it stopped in good order."""
    report_faults()
    _raise_file_limit()
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        runner.run(_serve(server, announce))


def report_faults() -> None:
    """Have the end by a fault told on stderr, with where it happened: otherwise nothing says a word.

    The likeliest one is SIGBUS, "Bus error": a mapped file of the store was cut short, or its disk failed.
    """
    with suppress(OSError, ValueError, AttributeError):  # without a real stderr there is nobody to tell
        faulthandler.enable(sys.stderr)


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:  # not to be had on this platform; asyncio's own loop does
        return None
    return uvloop.new_event_loop


def _settle_memory() -> None:
    """What is here after the start stays: collecting garbage need not look at it again, and not so often.

    Nor is the memory of large answers given back to the system only to be asked for again.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)
    with suppress(OSError, AttributeError):  # other C libraries than glibc have no such call
        allocator = ctypes.CDLL(None)
        allocator.mallopt(_M_MMAP_THRESHOLD, _KEPT_BYTES)
        allocator.mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES)


def _raise_file_limit() -> None:
    """Connections and mapped files are file descriptors: take as many as the system grants."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


async def _serve(server: Server, announce: Callable[[], None]) -> None:
    loop = asyncio.get_running_loop()
    stop_asked = asyncio.Event()

    def on_signal(received: signal.Signals) -> None:
        if stop_asked.is_set():
            log.warning("forced to stop signal=%s", received.name)
            logging.shutdown()
            os._exit(128 + received)
        log.info("asked to stop signal=%s", received.name)
        stop_asked.set()

    for each in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(each, on_signal, each)
    await server.start()
    _settle_memory()
    announce()
    running = asyncio.create_task(server.run_until_stopped(), name="server")
    waiting = asyncio.create_task(stop_asked.wait(), name="signal")
    await asyncio.wait({running, waiting}, return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    await server.stop()
    await asyncio.wait({running})
    # Stopping may be cancelling, so a cancelled run is a good end; an error is not.
    error = None if running.cancelled() else running.exception()
    if error is not None:
        log.critical("ended by an error of its own", exc_info=error)
        sys.exit(1)
    log.info("stopped")
