"""Settings that Spark's Python processes need once.

They collect garbage after every step, and need not scan imported modules each time. Spark hangs up on workers
when it has rows enough, as for `show()`, and when a query ends; they would print a traceback each time.
"""

import gc
import sys
import traceback
from types import ModuleType

_FREEZES = 3
"""The first things a process does still import something."""

_frozen = 0

HUNG_UP = (EOFError, BrokenPipeError, ConnectionResetError)
"""The errors that a worker sees then."""


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
    if getattr(main.__spec__, "name", None) == "pyspark.daemon":
        vars(main)["traceback"] = TracebacksOfDaemon


# Not later: Spark may hang up before a worker does anything.
quieten(sys.modules["__main__"])
