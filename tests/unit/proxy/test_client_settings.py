"""The waits between the attempts of a group."""

from pyromq.protocol.requests.groups import (
    CustomizedRetryPolicy,
    ExponentialRetryPolicy,
    GroupRetryPolicy,
    GroupRetryPolicyType,
    SubscriptionGroupConfig,
)
from pyromq.proxy.client_settings import next_delay_ms


def delays(policy: GroupRetryPolicy, *attempts: int) -> list[int]:
    group = SubscriptionGroupConfig(group_name="g", group_retry_policy=policy)
    return [next_delay_ms(group, attempt) for attempt in attempts]


def test_the_usual_waits_begin_with_the_third_of_the_levels() -> None:
    assert delays(GroupRetryPolicy(), 1, 2, 16, 17, 99) == [10_000, 30_000, 7_200_000, 7_200_000, 7_200_000]


def test_a_short_list_of_waits_ends_with_its_last() -> None:
    policy = GroupRetryPolicy(customized_retry_policy=CustomizedRetryPolicy(next=[100, 200]))
    assert delays(policy, 1, 2) == [200, 200]


def test_growing_waits_end_at_their_limit() -> None:
    growing = ExponentialRetryPolicy(initial=1000, max=60_000, multiplier=3)
    policy = GroupRetryPolicy(exponential_retry_policy=growing, type=GroupRetryPolicyType.EXPONENTIAL)
    assert delays(policy, 1, 2, 3, 50) == [1000, 3000, 9000, 60_000]
    assert delays(GroupRetryPolicy(type=GroupRetryPolicyType.EXPONENTIAL), 1, 2) == [5000, 10_000]
