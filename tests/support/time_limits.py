"""One thread watches over the time limits of all tests of a process; pytest-timeout starts one for each."""

import threading
import time
from dataclasses import dataclass

import pytest
import pytest_timeout

_PAUSE_S = 0.5
"""A test is stopped so much too late at most. Nobody has to wake the thread when a test starts or ends."""


@dataclass(frozen=True)
class _Watched:
    item: pytest.Item
    settings: pytest_timeout.Settings
    end: float


class TimeLimits:
    """A plugin in place of the timers of pytest-timeout, whose way to end a process stays."""

    def __init__(self) -> None:
        self._watched: _Watched | None = None
        self._thread: threading.Thread | None = None

    @pytest.hookimpl(tryfirst=True)
    def pytest_timeout_set_timer(self, item: pytest.Item, settings: pytest_timeout.Settings) -> bool | None:
        if settings.method != "thread":
            return None
        self._watched = _Watched(item, settings, time.monotonic() + settings.timeout)
        if self._thread is None:
            self._thread = threading.Thread(target=self._watch, name="time limits of tests", daemon=True)
            self._thread.start()
        return True

    @pytest.hookimpl(tryfirst=True)
    def pytest_timeout_cancel_timer(self) -> None:
        self._watched = None

    def _watch(self) -> None:
        while True:
            time.sleep(_PAUSE_S)
            watched = self._watched
            if watched is not None and time.monotonic() >= watched.end:
                pytest_timeout.timeout_timer(watched.item, watched.settings)
                return  # only a debugger gets here
