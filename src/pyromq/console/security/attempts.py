"""How often somebody may try to log in: five times, then after a wait that doubles up to five minutes."""

from collections import OrderedDict

from pyromq.clock import Clock

FREE_ATTEMPTS = 5
LONGEST_WAIT_S = 300.0
_MAX_KNOWN = 10_000


class Attempts:
    """Counts failures by name and by address; the table is bounded, the oldest entries are forgotten."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._failures: OrderedDict[str, tuple[int, float]] = OrderedDict()

    def __repr__(self) -> str:
        return f"<Attempts of {len(self._failures)}>"

    def wait_s(self, name: str, address: str) -> float:
        """How long this name at this address has to wait before the next attempt; 0 if not at all."""
        return max(self._wait_s(key) for key in _keys(name, address))

    def failed(self, name: str, address: str) -> None:
        for key in _keys(name, address):
            count, _ = self._failures.pop(key, (0, 0.0))
            self._failures[key] = count + 1, self._clock.monotonic()
        while len(self._failures) > _MAX_KNOWN:
            self._failures.popitem(last=False)

    def succeeded(self, name: str, address: str) -> None:
        for key in _keys(name, address):
            self._failures.pop(key, None)

    def _wait_s(self, key: str) -> float:
        count, last = self._failures.get(key, (0, 0.0))
        if count < FREE_ATTEMPTS:
            return 0.0
        pause = min(LONGEST_WAIT_S, 2.0 ** min(count - FREE_ATTEMPTS, 10))
        return max(0.0, last + pause - self._clock.monotonic())


def _keys(name: str, address: str) -> tuple[str, str]:
    return f"name {name[:64]}", f"address {address}"
