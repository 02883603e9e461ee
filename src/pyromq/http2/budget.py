"""How much needless work a peer may cause: an initial allowance, more in each second, and more for useful
work.

A busy peer sends many of them without ill will: C-core pings, and grants a few bytes, with every answer.
"""


class Budget:
    __slots__ = ("_at", "_left", "_max", "_per_s")

    def __init__(self, at_once: float, per_s: float) -> None:
        self._max = self._left = at_once
        self._per_s = per_s
        self._at = 0.0

    def earn(self, count: int) -> None:
        left = self._left + count
        self._left = left if left < self._max else self._max

    def spend(self, now: float) -> bool:
        """False if nothing is left."""
        if self._left < 1:
            self._left = min(self._max, self._left + (now - self._at) * self._per_s)
            self._at = now
            if self._left < 1:
                return False
        elif self._left == self._max:
            self._at = now
        self._left -= 1
        return True
