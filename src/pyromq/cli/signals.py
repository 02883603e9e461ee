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
    """Inside, SIGTERM raises KeyboardInterrupt as Ctrl-C does, so that `finally` blocks run.

    Their failures are not reported: a signal to the whole group also ends the processes that they need.
    """
    number: signal.Signals | None = None

    def terminate(received: int, frame: FrameType | None) -> None:
        nonlocal number
        number = signal.Signals(received)
        raise KeyboardInterrupt

    former = signal.signal(signal.SIGTERM, terminate)
    try:
        yield
    except BaseException as problem:
        if number is None and _follows_interrupt(problem):
            number = signal.SIGINT
        if number is None and isinstance(problem, BrokenPipeError):
            _discard_stdout()
            number = signal.SIGPIPE
        if number is None:
            raise
        raise click.exceptions.Exit(_SIGNAL_EXIT_BASE + number) from None
    finally:
        signal.signal(signal.SIGTERM, former)


def _follows_interrupt(problem: BaseException | None) -> bool:
    """Whether Ctrl-C is the reason, or the reason of the reason."""
    while problem is not None and not isinstance(problem, KeyboardInterrupt):
        problem = problem.__cause__ or problem.__context__
    return problem is not None


def _discard_stdout() -> None:
    """Python would flush the rest of the buffer at exit, fail again and print a complaint."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
