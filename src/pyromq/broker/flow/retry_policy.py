"""The retry policy of a consumer group: how often a failed message is delivered again, and how much later.

java: each retry waits on the next higher delay level, unless the consumer asks for its own level. The
group or, since 3.4.9, the consumer limits the number of retries; after that the message is a dead letter.
"""

from typing import NamedTuple, Self

from pyromq.protocol.properties import FIRST_RETRY_LEVEL
from pyromq.protocol.requests.groups import SubscriptionGroupConfig

_V3_4_9 = 121


class RetryPolicy(NamedTuple):
    max_retries: int

    @classmethod
    def of(cls, group: SubscriptionGroupConfig, client_version: int, client_max_retries: int | None) -> Self:
        if client_max_retries is None or client_version < _V3_4_9:
            return cls(group.retry_max_times)
        return cls(client_max_retries)

    def has_retries_left(self, failures: int) -> bool:
        """`failures` counts all failed deliveries, also the first one, which was not a retry."""
        return failures <= self.max_retries

    def delay_level(self, failures: int) -> int:
        """How long the retry after this many failed deliveries waits."""
        return FIRST_RETRY_LEVEL + failures - 1
