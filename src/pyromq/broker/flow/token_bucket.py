"""How much of a rate is used up. Pure: the caller knows the time.

A bucket holds what may be taken at once: a second's worth at most. It may go into debt, so that a message
larger than a second's worth passes, too; then those after it wait until the debt is paid.
"""


class TokenBucket:
    __slots__ = ("_at_s", "_level", "rate")

    def __init__(self, rate: int, now_s: float) -> None:
        """`rate`: how much comes back in a second, more than 0."""
        self.rate = rate
        self._level = float(rate)
        self._at_s = now_s

    def __repr__(self) -> str:
        return f"<TokenBucket rate={self.rate} level={self._level:.1f}>"

    def level(self, now_s: float) -> float:
        """The amount that may be taken now; below 0, the debt."""
        if now_s > self._at_s:
            self._level = min(self._level + (now_s - self._at_s) * self.rate, float(self.rate))
            self._at_s = now_s
        return self._level

    def take(self, amount: int, now_s: float) -> None:
        self._level = self.level(now_s) - amount

    def debt_s(self, now_s: float) -> float:
        """How long it takes until the debt is paid; 0 without one."""
        return max(-self.level(now_s) / self.rate, 0.0)
