"""The server's part of a client's settings: retries, limits and times."""

from typing import Any

from pyromq.protocol.lite import DEFAULT_QUOTA, lite_group
from pyromq.protocol.requests.groups import (
    CustomizedRetryPolicy,
    ExponentialRetryPolicy,
    GroupRetryPolicyType,
    SubscriptionGroupConfig,
)
from pyromq.proxy.messages import message
from pyromq.proxy.settings import ProxySettings

Settings = message("Settings")
_RetryPolicy = message("RetryPolicy")

_LAST_POWER = 32
"""java: waits stop growing after this many retries."""


def for_producer(sent: Any, settings: ProxySettings) -> Any:
    answer = _copy(sent)
    policy = _RetryPolicy(max_attempts=settings.producer_max_attempts)
    policy.exponential_backoff.initial.FromMilliseconds(settings.producer_backoff_initial_ms)
    policy.exponential_backoff.max.FromMilliseconds(settings.producer_backoff_max_ms)
    policy.exponential_backoff.multiplier = settings.producer_backoff_multiplier
    answer.backoff_policy.CopyFrom(policy)
    answer.publishing.max_body_size = settings.max_message_bytes
    answer.publishing.validate_message_type = settings.checks_message_types
    return answer


def for_consumer(sent: Any, group: SubscriptionGroupConfig, settings: ProxySettings) -> Any:
    answer = _copy(sent)
    answer.backoff_policy.CopyFrom(_policy_of(group))
    answer.subscription.fifo = group.consume_message_orderly
    answer.subscription.receive_batch_size = settings.max_receive_batch
    answer.subscription.long_polling_timeout.FromMilliseconds(settings.max_polling_ms)
    lite = lite_group(group.attributes)
    answer.subscription.lite_subscription_quota = DEFAULT_QUOTA if lite is None else lite.quota
    answer.subscription.max_lite_topic_size = settings.max_lite_topic_bytes
    return answer


def _copy(sent: Any) -> Any:
    answer = Settings()
    answer.CopyFrom(sent)
    # Older clients read settings only if this is there.
    answer.metric.on = False
    return answer


def _policy_of(group: SubscriptionGroupConfig) -> Any:
    policy = _RetryPolicy(max_attempts=group.retry_max_times + 1)
    if (growing := _growing(group)) is not None:
        policy.exponential_backoff.initial.FromMilliseconds(growing.initial)
        policy.exponential_backoff.max.FromMilliseconds(growing.max)
        policy.exponential_backoff.multiplier = growing.multiplier
    else:
        for delay_ms in delays_of(group):
            policy.customized_backoff.next.add().FromMilliseconds(delay_ms)
    return policy


def _growing(group: SubscriptionGroupConfig) -> ExponentialRetryPolicy | None:
    """The numbers of waits that grow; None if the group has a list of them."""
    retries = group.group_retry_policy
    if retries.type != GroupRetryPolicyType.EXPONENTIAL:
        return None
    return retries.exponential_retry_policy or ExponentialRetryPolicy()


def delays_of(group: SubscriptionGroupConfig) -> list[int]:
    """The wait before each further attempt, in milliseconds; the last one stays."""
    customized = group.group_retry_policy.customized_retry_policy or CustomizedRetryPolicy()
    return customized.next or CustomizedRetryPolicy().next


def next_delay_ms(group: SubscriptionGroupConfig, attempt: int) -> int:
    """How long a message stays hidden after an attempt without a result; the first attempt is 1."""
    if (growing := _growing(group)) is not None:
        factor: int = growing.multiplier ** min(attempt - 1, _LAST_POWER)
        return min(growing.max, growing.initial * factor)
    delays = delays_of(group)
    # java: the first retry of a group waits for the third of the delays
    return delays[min(attempt + 1, len(delays) - 1)]
