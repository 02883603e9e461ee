"""Messages that will not come again are told of, once."""

import logging

import pytest
from tests.support.fake_network import FakeNetwork
from tests.support.held_messages import QUEUE, tagged

from pyromq.client.consumer.handling.retry_limit import RetryLimit
from pyromq.client.values import ReceivedMessage
from pyromq.clock import ManualClock
from pyromq.errors import CallTimeout
from pyromq.protocol.catalogue import BodyAnswer
from pyromq.protocol.requests.groups import GetGroupConfig, SubscriptionGroupConfig


def failed_message(earlier_failures: int) -> ReceivedMessage:
    stored = tagged(1, "a", UNIQ_KEY="the-id")
    stored.reconsume_times = earlier_failures
    return ReceivedMessage(stored, QUEUE)


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]


async def test_the_last_failure_is_told_as_a_dead_letter(
    network: FakeNetwork, caplog: pytest.LogCaptureFixture
) -> None:
    dead_letters = RetryLimit(network, "billing", ManualClock(), max_times=2)
    for earlier_failures in (0, 1):
        await dead_letters.tell_if_dead(failed_message(earlier_failures), 0, "no stock")
    assert warnings(caplog) == []
    await dead_letters.tell_if_dead(failed_message(2), 0, "no stock")
    assert warnings(caplog) == [
        "message became a dead letter topic=Orders id=the-id group=billing times=3: no stock"
    ]
    assert network.calls == []


async def test_a_message_that_was_given_up_is_a_dead_letter_at_once(
    network: FakeNetwork, caplog: pytest.LogCaptureFixture
) -> None:
    await RetryLimit(network, "billing", ManualClock(), max_times=None).tell_if_dead(
        failed_message(0), -1, "unreadable"
    )
    assert warnings(caplog) == [
        "message became a dead letter topic=Orders id=the-id group=billing times=1: unreadable"
    ]
    assert network.calls == []


async def test_the_limit_of_the_group_is_asked_for_once_a_minute(
    network: FakeNetwork, caplog: pytest.LogCaptureFixture
) -> None:
    clock = ManualClock()
    dead_letters = RetryLimit(network, "billing", clock, max_times=None)
    network.answers[GetGroupConfig] = BodyAnswer(
        body=SubscriptionGroupConfig(group_name="billing", retry_max_times=1)
    )
    await dead_letters.tell_if_dead(failed_message(0), 0, "no stock")
    assert warnings(caplog) == []
    await dead_letters.tell_if_dead(failed_message(1), 0, "no stock")
    assert len(warnings(caplog)) == len(network.calls) == 1
    clock.advance(61)
    await dead_letters.tell_if_dead(failed_message(0), 0, "no stock")
    assert len(network.calls) == 2


async def test_the_usual_limit_is_assumed_of_a_group_whose_broker_does_not_say(
    network: FakeNetwork, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    network.answers[GetGroupConfig] = CallTimeout("no answer")
    dead_letters = RetryLimit(network, "billing", ManualClock(), max_times=None)
    await dead_letters.tell_if_dead(failed_message(15), 0, "no stock")
    assert "16 assumed group=billing" in caplog.text
    assert warnings(caplog) == []
    await dead_letters.tell_if_dead(failed_message(16), 0, "no stock")
    assert len(warnings(caplog)) == 1


async def test_a_limit_that_is_only_assumed_buries_nothing(network: FakeNetwork) -> None:
    clock = ManualClock()
    network.answers[GetGroupConfig] = CallTimeout("no answer")
    dead_letters = RetryLimit(network, "billing", clock, max_times=None)
    assert not await dead_letters.is_surely_dead(failed_message(16), 0)
    assert await dead_letters.is_surely_dead(failed_message(0), -1)
    assert await RetryLimit(network, "billing", clock, max_times=2).is_surely_dead(failed_message(2), 0)
    network.answers[GetGroupConfig] = BodyAnswer(body=SubscriptionGroupConfig(group_name="billing"))
    clock.advance(61)
    assert await dead_letters.is_surely_dead(failed_message(16), 0)
