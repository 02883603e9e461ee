"""Which rights a request needs follows from its declaration and from what it says."""

from tests.support.example_requests import example_request
from tests.support.many_cases import for_each

import pyromq.protocol.requests  # noqa: F401  (fills the catalogue)
from pyromq.protocol.catalogue import CATALOGUE, CLIENT, Declaration, declaration_of
from pyromq.protocol.needs import GET, PUB, SUB, UPDATE, Need, ResourceType
from pyromq.protocol.requests.inspection import GetConsumeStats
from pyromq.protocol.requests.membership import (
    ConsumerData,
    HeartbeatData,
    SendHeartbeat,
    SubscriptionData,
    UnregisterClient,
)
from pyromq.protocol.requests.pulling import PullMessage
from pyromq.protocol.requests.routes import GetRoute
from pyromq.protocol.requests.settings import UpdateBrokerConfig
from pyromq.protocol.requests.transactions import ResumeTransactionCheck

DECLARATIONS = for_each(
    "declaration",
    [each for each in CATALOGUE.values() if each.code < 31_000],
    named=lambda each: each.name,
)


def needs_of(request: object) -> list[Need]:
    return declaration_of(type(request)).needs_of(request)  # type: ignore[arg-type]


@DECLARATIONS
def test_every_request_to_a_server_needs_something(declaration: Declaration) -> None:
    assert bool(declaration.needs_of(example_request(declaration))) == (declaration.to != CLIENT)


@DECLARATIONS
def test_the_needs_of_a_full_request_name_what_it_names(declaration: Declaration) -> None:
    needs = declaration.needs_of(example_request(declaration))
    assert {need.resource_type for need in needs} == {rule.resource_type for rule in declaration.needs}
    assert all(
        need.name.endswith(" é") for need, rule in zip(needs, declaration.needs, strict=False) if rule.path
    )


def test_a_pull_needs_its_topic_and_its_group() -> None:
    pull = PullMessage(
        consumer_group="billing",
        topic="Orders",
        queue_id=0,
        queue_offset=0,
        max_msg_nums=32,
        sys_flag=0,
        commit_offset=0,
        suspend_timeout_millis=0,
        sub_version=0,
    )
    assert needs_of(pull) == [
        Need((SUB,), ResourceType.TOPIC, "Orders"),
        Need((SUB,), ResourceType.GROUP, "billing"),
    ]


def test_the_retry_topic_of_a_group_belongs_to_the_group() -> None:
    assert needs_of(GetRoute(topic="%RETRY%billing")) == [
        Need((PUB, SUB, GET), ResourceType.GROUP, "billing")
    ]


def test_a_heartbeat_needs_every_group_and_topic_in_its_body() -> None:
    def consumer(group: str, *topics: str) -> ConsumerData:
        return ConsumerData(
            group_name=group, subscription_data_set=[SubscriptionData(topic=topic) for topic in topics]
        )

    body = HeartbeatData(client_id="c", consumer_data_set=[consumer("a", "X", "Y"), consumer("b", "X")])
    assert needs_of(SendHeartbeat(body=body)) == [
        Need((SUB,), ResourceType.GROUP, "a"),
        Need((SUB,), ResourceType.GROUP, "b"),
        Need((SUB,), ResourceType.TOPIC, "X"),
        Need((SUB,), ResourceType.TOPIC, "Y"),
    ]
    assert needs_of(SendHeartbeat(body=HeartbeatData(client_id="c"))) == []


def test_a_missing_name_needs_the_right_to_all_of_them_unless_it_may_be_missing() -> None:
    assert needs_of(ResumeTransactionCheck(msg_id="m")) == [Need((UPDATE,), ResourceType.TOPIC, "")]
    assert needs_of(UnregisterClient(client_id="c", producer_group="p")) == []


def test_a_list_of_names_in_one_field_needs_each_of_them() -> None:
    assert needs_of(GetConsumeStats(consumer_group="g", topic_list="A;B")) == [
        Need((GET,), ResourceType.GROUP, "g"),
        Need((GET,), ResourceType.TOPIC, "A"),
        Need((GET,), ResourceType.TOPIC, "B"),
    ]


def test_what_changes_a_server_needs_the_cluster() -> None:
    assert needs_of(UpdateBrokerConfig(body="a=b")) == [Need((UPDATE,), ResourceType.CLUSTER)]
