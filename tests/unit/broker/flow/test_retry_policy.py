"""The retry policy of a group: how often, and how much later."""

import pytest

from pyromq.broker.flow.retry_policy import RetryPolicy
from pyromq.protocol.requests.groups import SubscriptionGroupConfig

GROUP = SubscriptionGroupConfig(group_name="group", retry_max_times=2)
V3_4_9 = 121


def test_a_message_is_retried_as_often_as_its_group_allows() -> None:
    policy = RetryPolicy.of(GROUP, V3_4_9, None)
    assert [policy.has_retries_left(failures) for failures in (1, 2, 3)] == [True, True, False]


@pytest.mark.parametrize(("version", "expected"), [(V3_4_9, 5), (V3_4_9 - 1, 2)])
def test_a_client_since_3_4_9_brings_its_own_maximum(version: int, expected: int) -> None:
    assert RetryPolicy.of(GROUP, version, 5).max_retries == expected


def test_a_maximum_below_zero_leaves_no_retries() -> None:
    assert not RetryPolicy.of(GROUP, V3_4_9, -1).has_retries_left(0)


def test_each_retry_waits_on_the_next_level_from_the_third_on() -> None:
    policy = RetryPolicy.of(GROUP, V3_4_9, None)
    assert [policy.delay_level(failures) for failures in (1, 2, 16)] == [3, 4, 18]
