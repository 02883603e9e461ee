"""Commands at the end of which nobody should see a traceback: a signal, or a reader who has seen enough.

The exit code is the one that a shell gives to a program that died of the signal.
"""

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

import click

_OF_A_SIGNAL = 128


@contextmanager
def quiet_endings() -> Iterator[None]:
    """Inside, SIGTERM raises KeyboardInterrupt as Ctrl-C does: whoever has something to finish can."""
    number = signal.SIGINT

    def terminate(received: int, frame: FrameType | None) -> None:
        nonlocal number
        number = signal.Signals(received)
        raise KeyboardInterrupt

    former = signal.signal(signal.SIGTERM, terminate)
    try:
        yield
    except KeyboardInterrupt:
        raise click.exceptions.Exit(_OF_A_SIGNAL + number) from None
    except BrokenPipeError:
        _let_nothing_out()
        raise click.exceptions.Exit(_OF_A_SIGNAL + signal.SIGPIPE) from None
    finally:
        signal.signal(signal.SIGTERM, former)


def _let_nothing_out() -> None:
    """What is still buffered would fail once more at the end of the process, and be complained about."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
