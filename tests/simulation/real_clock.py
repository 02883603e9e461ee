"""A run that asks the machine for the time is not repeated by its plan: it fails.

Only our own code is held to that. What the standard library asks for goes into log lines and the like.
"""

import sys
import time
from collections.abc import Callable
from datetime import date, datetime
from types import FrameType
from typing import Any

from pyromq.clock import SystemClock

_OURS = ("pyromq.", "tests.simulation.")
_CLOCK = "pyromq.clock"
_NAMES = ("time", "time_ns", "monotonic", "monotonic_ns", "clock_gettime")


def forbid_real_clock(violation: Callable[[str, str], None]) -> None:
    """From now on, in this process: tell of everyone who asks for the real time. They get it."""

    def watched(real: Callable[..., Any]) -> Callable[..., Any]:
        def tell(*arguments: Any, **named: Any) -> Any:
            asking = _asking(sys._getframe(1))
            if asking is not None:
                violation("the real clock", asking)
            return real(*arguments, **named)

        return tell

    for name in _NAMES:
        setattr(time, name, watched(getattr(time, name)))
    # It has taken this one when it was made.
    SystemClock.monotonic = staticmethod(time.monotonic)
    for kind, names in ((datetime, ("now", "utcnow", "today")), (date, ("today",))):
        _watch_dates(kind, {name: staticmethod(watched(getattr(kind, name))) for name in names})


class _SameInstances(type):
    """A class that stands for its parent: what that one makes counts as made by it."""

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, cls.__mro__[1])


def _watch_dates(kind: type, watched: dict[str, Any]) -> None:
    """Compiled classes cannot be patched: our modules that have imported one get another in its place."""
    stand_in = _SameInstances(kind.__name__, (kind,), watched)
    for name, module in list(sys.modules.items()):
        if name.startswith(_OURS) and getattr(module, kind.__name__, None) is kind:
            setattr(module, kind.__name__, stand_in)


def _asking(frame: FrameType | None) -> str | None:
    """Where in our code that is; None if it is elsewhere."""
    while frame is not None and frame.f_globals["__name__"] == _CLOCK:
        frame = frame.f_back
    if frame is None or not frame.f_globals["__name__"].startswith(_OURS):
        return None
    return f"{frame.f_globals['__name__']}:{frame.f_lineno} in {frame.f_code.co_qualname}"
