"""How many bytes a connection carried in the last second."""


class Speed:
    def __init__(self) -> None:
        self.total_bytes = 0
        self.bytes_per_s = 0
        self._sampled_bytes = 0
        self._sampled_at: float | None = None

    def sample(self, now: float) -> None:
        """Call this about once a second, or more often."""
        if self._sampled_at is None:
            self._sampled_at = now
        elif now - self._sampled_at >= 1.0:
            self.bytes_per_s = round((self.total_bytes - self._sampled_bytes) / (now - self._sampled_at))
            self._sampled_at, self._sampled_bytes = now, self.total_bytes
