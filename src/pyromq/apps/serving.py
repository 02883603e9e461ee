"""Runs a server until a signal: the first one stops it gracefully, the second at once."""

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

from pyromq.remoting.program import Startable

log = logging.getLogger("pyromq.apps")

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_KEPT_BYTES = 16 * 1024 * 1024
_COLLECT_AT = (5_000, 200, 100)
"""When garbage is collected. Nothing else runs meanwhile: 5,000 new objects, those of a hundred clients that
connect, take one or two milliseconds, 50,000 took up to 40. Objects that have stayed are looked at again only
after 200 times."""
_SWITCH_INTERVAL_S = 0.001
"""How long the loop waits for the interpreter while another thread computes; Python's default is 5 ms."""


def serve(
    server: Startable, announce: Callable[[], None], *, collect_at: tuple[int, int, int] = _COLLECT_AT
) -> None:
    """Run the server on its own event loop; returns after a graceful stop."""
    report_faults()
    _raise_file_limit()
    sys.setswitchinterval(_SWITCH_INTERVAL_S)
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        runner.run(_serve(server, announce, collect_at))


def report_faults() -> None:
    """Print a stack on stderr when a fault kills the process, which would otherwise end silently.

    The likeliest fault is SIGBUS, "Bus error": a mapped file of the store was cut short, or its disk failed.
    """
    with suppress(OSError, ValueError, AttributeError):  # stderr is not a real file: nowhere to print
        faulthandler.enable(sys.stderr)


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:  # uvloop is not available on this platform; asyncio's own loop works too
        return None
    return uvloop.new_event_loop


def _settle_memory(collect_at: tuple[int, int, int]) -> None:
    """Exclude the objects that exist after the start from garbage collection, and collect less often.

    Also keep the memory of large answers instead of returning it to the system each time.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*collect_at)
    with suppress(OSError, AttributeError):  # only glibc has this call
        allocator = ctypes.CDLL(None)
        allocator.mallopt(_M_MMAP_THRESHOLD, _KEPT_BYTES)
        allocator.mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES)


def _raise_file_limit() -> None:
    """Raise the limit of file descriptors, for connections and mapped files, to the system's maximum."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


async def _serve(server: Startable, announce: Callable[[], None], collect_at: tuple[int, int, int]) -> None:
    loop = asyncio.get_running_loop()
    stop_asked = asyncio.Event()

    def on_signal(received: signal.Signals) -> None:
        if stop_asked.is_set():
            log.warning("stopping at once signal=%s", received.name)
            logging.shutdown()
            os._exit(128 + received)
        log.info("stopping signal=%s", received.name)
        stop_asked.set()

    for each in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        if signal.getsignal(each) is not signal.SIG_IGN:  # nohup ignores SIGHUP
            loop.add_signal_handler(each, on_signal, each)
    await server.start()
    _settle_memory(collect_at)
    announce()
    running = asyncio.create_task(server.run_until_stopped(), name="server")
    waiting = asyncio.create_task(stop_asked.wait(), name="signal")
    await asyncio.wait({running, waiting}, return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    await server.stop()
    await asyncio.wait({running})
    # A stop may cancel the run, so cancellation is a normal end; an error is not.
    error = None if running.cancelled() else running.exception()
    if error is not None:
        log.critical("stopped by an internal error", exc_info=error)
        sys.exit(1)
    log.info("stopped")
