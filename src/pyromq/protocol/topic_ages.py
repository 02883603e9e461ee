"""How long a topic keeps its messages, by its attributes."""

from collections.abc import Mapping
from typing import Final

RESERVE_HOURS: Final = "reserve.time"
TTL_SECONDS: Final = "message.ttl"
_UNITS_MS: Final = {RESERVE_HOURS: 3_600_000, TTL_SECONDS: 1000}


def max_age_ms(attributes: Mapping[str, str]) -> int:
    """The age at which messages of a topic expire; 0 without a limit.

    java: a time of -1 means none."""
    ages_ms = [int(attributes.get(key) or 0) * unit_ms for key, unit_ms in _UNITS_MS.items()]
    return min((age_ms for age_ms in ages_ms if age_ms > 0), default=0)
