"""A command that is interrupted, or whose reader closes the pipe, ends without a traceback.

The exit code is the one that a shell reports for a program killed by the signal.
"""

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

import click

_SIGNAL_EXIT_BASE = 128


@contextmanager
def exit_on_signals() -> Iterator[None]:
    """Inside, SIGTERM raises KeyboardInterrupt as Ctrl-C does, so that `finally` blocks run."""
    number = signal.SIGINT

    def terminate(received: int, frame: FrameType | None) -> None:
        nonlocal number
        number = signal.Signals(received)
        raise KeyboardInterrupt

    former = signal.signal(signal.SIGTERM, terminate)
    try:
        yield
    except KeyboardInterrupt:
        raise click.exceptions.Exit(_SIGNAL_EXIT_BASE + number) from None
    except BrokenPipeError:
        _discard_stdout()
        raise click.exceptions.Exit(_SIGNAL_EXIT_BASE + signal.SIGPIPE) from None
    finally:
        signal.signal(signal.SIGTERM, former)


def _discard_stdout() -> None:
    """Python would flush the rest of the buffer at exit, fail again and print a complaint."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
