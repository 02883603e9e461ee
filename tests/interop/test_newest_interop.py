"""Everyday work with Apache's newest clients at our servers, by the tests of the other releases."""

import re
from collections.abc import Iterator

import pytest
from tests.interop.test_broker_interop import (  # noqa: F401 (pytest runs them here, too)
    test_a_batch_lands_in_one_queue_in_its_order,
    test_a_delayed_message_comes_later,
    test_a_group_gets_every_message_once,
    test_a_message_is_stored_as_it_was_sent,
    test_a_message_that_failed_once_comes_again,
    test_a_polling_consumer_commits_where_it_is,
    test_a_topic_is_made_by_its_first_message,
    test_messages_are_found_by_key_and_by_both_ids,
    test_sql_chooses_messages,
)
from tests.support.apache import ClientOf
from tests.support.apache_releases import APACHE_NEWEST
from tests.support.java_at_ours import Peers, our_cluster

from pyromq.cli.mqadmin.commands import ABSENT, NOUNS

# A JVM takes its time to start, and longer on a busy machine.
pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]


@pytest.fixture(scope="module", params=["ROCKETMQ"], ids=lambda form: f"{APACHE_NEWEST}-{form}")
def peers(request: pytest.FixtureRequest, client_of: ClientOf) -> Iterator[Peers]:
    with our_cluster(client_of(APACHE_NEWEST, request.param), request.param) as peers:
        yield peers


@pytest.mark.parametrize(
    "command",
    [
        ("clusterList",),
        ("topicList", "-c"),
        ("brokerStatus", "-b", "{broker}"),
        ("topicStatus", "-t", "{topic}"),
        ("topicRoute", "-t", "{topic}"),
        ("consumerProgress",),
        ("getBrokerConfig", "-b", "{broker}"),
        ("statsAll",),
        ("exportPopRecord", "-b", "{broker}"),
    ],
    ids=lambda command: command[0],
)
def test_an_operator_gets_an_answer(peers: Peers, command: tuple[str, ...]) -> None:
    topic = peers.new_topic("Operated")
    words = [word.format(broker=peers.broker.address, topic=topic) for word in command]
    said = peers.mqadmin(*words)
    assert "Exception" not in said, said
    assert said.strip()


def test_every_command_of_its_mqadmin_is_ours_or_said_to_be_absent(peers: Peers) -> None:
    listed = set(re.findall(r"(?m)^   (\w+) ", peers.client.mqadmin()))
    assert {"clusterList", "exportPopRecord"} <= listed
    assert listed - {name for _, commands in NOUNS.values() for name in commands} - ABSENT.keys() == set()
