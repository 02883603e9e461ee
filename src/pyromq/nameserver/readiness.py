"""Whether brokers have had time to register since the start; until then a route may be missing."""

from pyromq.clock import Clock
from pyromq.nameserver.settings import NameServerSettings


class Readiness:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._started = clock.monotonic()
        self._ready_at = 0.0

    def __repr__(self) -> str:
        return f"<Readiness {'ready' if self.is_ready else f'in {self.remaining_s:.0f} s'}>"

    def apply_settings(self, settings: NameServerSettings) -> None:
        self._ready_at = 0.0
        if settings.need_wait_for_service:
            self._ready_at = self._started + settings.wait_seconds_for_service

    @property
    def is_ready(self) -> bool:
        if self._ready_at and self.remaining_s <= 0:
            self._ready_at = 0.0  # From now on the clock is not read.
        return not self._ready_at

    @property
    def remaining_s(self) -> float:
        return max(0.0, self._ready_at - self._clock.monotonic())
