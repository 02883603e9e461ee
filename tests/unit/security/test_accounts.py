"""Access control 1.0: what the accounts of `plain_acl.yml` may do."""

from typing import Any

import pytest

from pyromq.errors import ConfigError
from pyromq.protocol.needs import CREATE, DELETE, GET, LIST, PUB, SUB, UPDATE, Need, ResourceType
from pyromq.security.accounts import AccountRules, read_accounts

TOPIC, GROUP, CLUSTER = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER
FILE: dict[str, Any] = {
    "globalWhiteRemoteAddresses": ["10.10.103.*", "192.168.0.7"],
    "accounts": [
        {
            "accessKey": "RocketMQ",
            "secretKey": "12345678",
            "admin": False,
            "defaultTopicPerm": "DENY",
            "defaultGroupPerm": "SUB",
            "topicPerms": ["topicA=DENY", "topicB=PUB|SUB", "topicC=SUB"],
            "groupPerms": ["groupA=DENY", "groupB=PUB|SUB"],
        },
        {
            "accessKey": "rocketmq2",
            "secretKey": "12345678",
            "whiteRemoteAddress": "192.168.1.*",
            "admin": True,
        },
    ],
}
ELSEWHERE = "8.8.8.8"


@pytest.fixture
def rules() -> AccountRules:
    return read_accounts([("plain_acl.yml", FILE)])


@pytest.mark.parametrize(
    ("need", "is_allowed", "rule"),
    [
        (Need((PUB,), TOPIC, "topicA"), False, "topicPerms: topicA=DENY"),
        (Need((PUB,), TOPIC, "topicB"), True, "topicPerms: topicB=PUB|SUB"),
        (Need((PUB,), TOPIC, "topicC"), False, "topicPerms: topicC=SUB"),
        (Need((SUB,), TOPIC, "topicC"), True, "topicPerms: topicC=SUB"),
        (Need((PUB,), TOPIC, "other"), False, "defaultTopicPerm: DENY"),
        (Need((SUB,), GROUP, "groupA"), False, "groupPerms: groupA=DENY"),
        (Need((SUB,), GROUP, "other"), True, "defaultGroupPerm: SUB"),
        (Need((SUB, GET), TOPIC, "topicC"), True, "topicPerms"),
        (Need((GET,), TOPIC, "topicC"), True, "topicPerms"),
        (Need((GET,), TOPIC, "other"), False, "defaultTopicPerm"),
        (Need((CREATE,), TOPIC, "topicB"), False, "not an admin"),
        (Need((DELETE,), GROUP, "groupB"), False, "not an admin"),
        (Need((UPDATE,), CLUSTER), False, "not an admin"),
        (Need((GET,), CLUSTER), True, "every account may read"),
        (Need((LIST,), TOPIC), True, "every account may read"),
        (Need((SUB,), TOPIC), False, "not an admin"),
        (Need((PUB,), TOPIC, "RMQ_SYS_TRACE_TOPIC"), True, "traces"),
        (Need((SUB,), TOPIC, "RMQ_SYS_TRACE_TOPIC"), False, "defaultTopicPerm"),
        (Need((PUB,), TOPIC, "DefaultCluster_REPLY_TOPIC"), True, "may reply"),
        (Need((SUB,), TOPIC, "DefaultCluster_REPLY_TOPIC"), False, "defaultTopicPerm"),
    ],
)
def test_permissions_decide_and_name_themselves(
    rules: AccountRules, need: Need, is_allowed: bool, rule: str
) -> None:
    decision = rules.decide("RocketMQ", need, ELSEWHERE)
    assert (decision.is_allowed, rule in decision.rule) == (is_allowed, True), decision


def test_an_administrator_may_do_everything(rules: AccountRules) -> None:
    assert rules.decide("rocketmq2", Need((UPDATE,), CLUSTER), ELSEWHERE).is_allowed
    assert rules.is_administrator("rocketmq2")
    assert not rules.is_administrator("RocketMQ")


def test_trusted_addresses_need_neither_account_nor_right(rules: AccountRules) -> None:
    for address in ("10.10.103.9", "192.168.0.7"):
        decision = rules.decide("", Need((UPDATE,), CLUSTER), address)
        assert decision.is_allowed
        assert "globalWhiteRemoteAddresses" in decision.rule
    assert rules.free_pass("rocketmq2", "192.168.1.4") == "account rocketmq2, whiteRemoteAddress: 192.168.1.*"
    assert rules.free_pass("RocketMQ", "192.168.1.4") == ""


def test_without_an_account_everything_is_refused(rules: AccountRules) -> None:
    assert not rules.decide("nobody", Need((GET,), CLUSTER), ELSEWHERE).is_allowed
    assert rules.secrets_of("nobody") == ()


def test_the_first_file_with_an_account_wins() -> None:
    other = {"accounts": [{"accessKey": "RocketMQ", "secretKey": "somethingelse", "admin": True}]}
    rules = read_accounts([("a.yml", FILE), ("b.yml", other), ("empty.yml", None)])
    assert rules.secrets_of("RocketMQ") == ("12345678",)


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ([], "a mapping with accounts"),
        ({"accounts": {}}, "a list"),
        ({"accounts": [7]}, "a mapping with accessKey"),
        ({"accounts": [{"accessKey": "short", "secretKey": "12345678"}]}, "longer than 6"),
        ({"accounts": [{"accessKey": "longenough", "secretKey": "hush"}]}, "longer than 6"),
        ({"accounts": [{**FILE["accounts"][0], "topicPerms": ["topicA"]}]}, "name=PERMISSION"),
        ({"accounts": [{**FILE["accounts"][0], "topicPerms": ["topicA=ALL"]}]}, "DENY, PUB, SUB"),
        ({"accounts": [{**FILE["accounts"][0], "admin": "perhaps"}]}, "true or false"),
        ({"globalWhiteRemoteAddresses": ["1.2.3"]}, "globalWhiteRemoteAddresses"),
    ],
)
def test_a_bad_file_is_refused_and_shows_no_secret(content: Any, told: str) -> None:
    with pytest.raises(ConfigError, match=told.replace("|", r"\|")) as refused:
        read_accounts([("plain_acl.yml", content)])
    assert "hush" not in str(refused.value)
    assert "12345678" not in str(refused.value)
