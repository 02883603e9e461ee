"""A job that runs on the event loop at an interval."""

import asyncio
from collections.abc import Callable


class Sweep:
    """Runs a plain function at an interval until it is stopped, even if the function raises."""

    def __init__(self, interval_s: float, job: Callable[[], None]) -> None:
        self._interval_s = interval_s
        self._job = job
        self._timer: asyncio.TimerHandle | None = None

    def __repr__(self) -> str:
        state = "running" if self._timer is not None else "stopped"
        return f"<Sweep {self._job.__qualname__} every {self._interval_s} s {state}>"

    def start(self) -> None:
        if self._timer is None:
            self._schedule()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _schedule(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(self._interval_s, self._run)

    def _run(self) -> None:
        self._schedule()
        self._job()
