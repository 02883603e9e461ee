"""Settings that Spark's Python processes need once.

They collect garbage after every step, and need not scan imported modules each time. Spark hangs up on workers
when it has rows enough, as for `show()`, and when a query ends; they would print a traceback each time.
An error of ours that ends a step on the driver is one line, without a traceback through our code.
"""

import gc
import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType

from pyromq.errors import PyroError

_FREEZES = 3
"""The first things a process does still import something."""

_frozen = 0

HUNG_UP = (EOFError, BrokenPipeError, ConnectionResetError)
"""The errors that a worker sees then."""


@contextmanager
def told_in_a_line() -> Iterator[None]:
    """Spark shows our own errors without a traceback. The worker ends then, so other errors keep theirs."""
    try:
        yield
    except PyroError:
        if _program(sys.modules["__main__"]).startswith("pyspark."):
            os.environ["SPARK_HIDE_TRACEBACK"] = "1"
        raise


def settle_in() -> None:
    global _frozen
    if _frozen < _FREEZES:
        _frozen += 1
        gc.freeze()


class TracebacksOfDaemon:
    """Stands for the module `traceback` in Spark's daemon."""

    format_exc = staticmethod(traceback.format_exc)

    @staticmethod
    def print_exc() -> None:
        if not isinstance(sys.exception(), HUNG_UP):
            traceback.print_exc()


def quieten(main: ModuleType) -> None:
    if _program(main) == "pyspark.daemon":
        vars(main)["traceback"] = TracebacksOfDaemon


def _program(main: ModuleType) -> str:
    """The module that Python was started with; empty if it is none."""
    return str(getattr(main.__spec__, "name", ""))


# Not later: Spark may hang up before a worker does anything.
quieten(sys.modules["__main__"])
