"""How old something is."""

from pyromq.clock import Clock


def age_ms(clock: Clock, since_ms: int) -> int:
    """0 for what does not exist."""
    return max(clock.now_ms() - since_ms, 0) if since_ms > 0 else 0
