"""Access control 2.0: what users with policies may do."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyromq.errors import ConfigError
from pyromq.protocol.needs import GET, LIST, PUB, SUB, UPDATE, Action, Need, ResourceType
from pyromq.protocol.requests.access import AclInfo, PolicyEntryInfo, PolicyInfo, UserInfo
from pyromq.security.accounts import read_accounts
from pyromq.security.migration import migrated
from pyromq.security.users import (
    ALL,
    PolicyEntry,
    PolicyType,
    User,
    UserRules,
    UserStatus,
    UserType,
    acl_info,
    change_between,
    changed_user,
    entry_of,
    merged,
    policies_of,
    subject_name,
    user_of,
    without,
)

TOPIC, GROUP, CLUSTER = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER
HERE = "10.1.2.3"


def entry(resource: str, decision: str = "Allow", actions: str = "All", networks: str = "") -> PolicyEntry:
    return entry_of(
        PolicyEntryInfo(
            resource=resource,
            decision=decision,
            actions=actions.split(","),
            source_ips=networks.split(",") if networks else None,
        )
    )


def rules(*custom: PolicyEntry, default: tuple[PolicyEntry, ...] = (), **of_user: object) -> UserRules:
    user = User("alice", "secret of alice", **of_user)  # type: ignore[arg-type]
    policies = {PolicyType.CUSTOM: custom, PolicyType.DEFAULT: default}
    return UserRules({"alice": user}, {"alice": policies}, cluster="DefaultCluster")


def may(given_rules: UserRules, need: Need, address: str = HERE) -> bool:
    return given_rules.decide("alice", need, address).is_allowed


SEND = Need((PUB,), TOPIC, "orders")


def test_nothing_is_allowed_that_no_entry_allows() -> None:
    assert not may(rules(), SEND)
    assert not may(rules(entry("Topic:orders", actions="Sub")), SEND)
    assert not may(rules(entry("Group:orders")), SEND)
    assert not rules().decide("bob", SEND, HERE).is_allowed


@pytest.mark.parametrize("resource", ["Topic:orders", "Topic:ord*", "Topic:*", "*", "topic:orders"])
def test_names_prefixes_and_stars_match(resource: str) -> None:
    assert may(rules(entry(resource, actions="Pub")), SEND)


def test_the_most_specific_entry_decides() -> None:
    steps = ["*", "Topic:*", "Topic:o*", "Topic:ord*", "Topic:orders"]
    for less, more in pairwise(steps):
        assert not may(rules(entry(less), entry(more, "Deny")), SEND), (less, more)
        assert may(rules(entry(less, "Deny"), entry(more)), SEND), (less, more)


def test_of_two_entries_for_the_same_resource_deny_decides() -> None:
    assert not may(rules(entry("Topic:orders"), entry("Topic:orders", "Deny", networks="10.0.0.0/8")), SEND)


def test_default_policies_are_asked_only_if_no_custom_entry_matches() -> None:
    default = (entry("*"),)
    assert may(rules(default=default), SEND)
    assert not may(rules(entry("Topic:*", "Deny"), default=default), SEND)
    assert may(rules(entry("Group:*", "Deny"), default=default), SEND)


def test_entries_may_be_limited_to_addresses() -> None:
    limited = rules(entry("Topic:orders", networks="10.1.0.0/16,192.168.0.9"))
    assert may(limited, SEND)
    assert may(limited, SEND, "192.168.0.9")
    assert not may(limited, SEND, "192.168.0.10")


def test_one_of_several_actions_is_enough() -> None:
    assert may(rules(entry("Topic:orders", actions="Get")), Need((SUB, GET), TOPIC, "orders"))


def test_all_topics_need_a_right_to_all_topics() -> None:
    everything = Need((LIST,), TOPIC)
    assert not may(rules(entry("Topic:orders"), entry("Topic:o*")), everything)
    assert may(rules(entry("Topic:*")), everything)


def test_the_cluster_is_known_by_its_name() -> None:
    need = Need((UPDATE,), CLUSTER)
    assert may(rules(entry("Cluster:DefaultCluster")), need)
    assert not may(rules(entry("Cluster:other")), need)


def test_every_user_may_reply_to_requests_unless_an_entry_denies_it() -> None:
    replies = "DefaultCluster_REPLY_TOPIC"
    assert may(rules(), Need((PUB,), TOPIC, replies))
    assert not may(rules(), Need((SUB,), TOPIC, replies)), "nobody else reads them"
    assert not may(rules(), Need((PUB,), TOPIC, "Other_REPLY_TOPIC")), "a topic like any other"
    assert not may(rules(entry(f"Topic:{replies}", "Deny")), Need((PUB,), TOPIC, replies))


def test_super_users_may_do_everything_and_disabled_users_nothing() -> None:
    super_user = rules(entry("*", "Deny"), type=UserType.SUPER)
    assert may(super_user, Need((UPDATE,), CLUSTER))
    assert super_user.is_administrator("alice")
    disabled = rules(entry("*"), type=UserType.SUPER, status=UserStatus.DISABLE)
    assert not may(disabled, SEND)
    assert disabled.secrets_of("alice") == ()
    assert not disabled.is_administrator("alice")


def test_without_authorization_every_user_may_do_everything_but_is_no_administrator() -> None:
    open_rules = UserRules({"alice": User("alice", "x")}, decides=False)
    assert may(open_rules, Need((UPDATE,), CLUSTER))
    assert not open_rules.is_administrator("alice")


def test_the_decision_names_its_rule() -> None:
    decided = rules(entry("Topic:ord*", "Deny", "Pub,Sub", "10.0.0.0/8")).decide("alice", SEND, HERE)
    assert decided.rule == "User:alice, Custom policy: Deny Pub,Sub on Topic:ord* from 10.0.0.0/8"
    assert "no policy of user alice allows Pub on Topic:orders" in rules().decide("alice", SEND, HERE).rule


def test_new_entries_replace_those_of_the_same_resource() -> None:
    old = {PolicyType.CUSTOM: (entry("Topic:a", actions="Pub"), entry("Topic:b"))}
    new = merged(old, {PolicyType.CUSTOM: (entry("Topic:a", actions="Sub"),)})
    assert [str(each) for each in new[PolicyType.CUSTOM]] == ["Allow All on Topic:b", "Allow Sub on Topic:a"]
    assert without(new, PolicyType.CUSTOM, "Topic:b") == {
        PolicyType.CUSTOM: (entry("Topic:a", actions="Sub"),)
    }
    assert without(old, PolicyType.DEFAULT, "Topic:a") == old
    assert without({PolicyType.CUSTOM: (entry("*"),)}, PolicyType.CUSTOM, "*") == {}


def test_what_requests_contain_is_checked() -> None:
    assert user_of(UserInfo(password="pass"), "bob") == User("bob", "pass")
    assert changed_user(User("bob", "a"), UserInfo(user_status="DISABLE")).status is UserStatus.DISABLE
    assert changed_user(User("bob", "a"), UserInfo(password=" ")).password == "a"
    assert subject_name("User:bob") == "bob"
    for bad in (UserInfo(), UserInfo(password="x", user_type="King")):
        with pytest.raises(ConfigError):
            user_of(bad, "bob")
    for subject in (None, "bob", "Role:bob", "User:"):
        with pytest.raises(ConfigError):
            subject_name(subject)
    for info in (
        PolicyEntryInfo(resource="Topic", actions=["Pub"], decision="Allow"),
        PolicyEntryInfo(resource="Topic:a*b", actions=["Pub"], decision="Allow"),
        PolicyEntryInfo(resource="Topic:a", actions=["Any"], decision="Allow"),
        PolicyEntryInfo(resource="Topic:a", actions=[], decision="Allow"),
        PolicyEntryInfo(resource="Topic:a", actions=["Pub"], decision="Maybe"),
        PolicyEntryInfo(resource="Topic:a", actions=["Pub"], decision="Allow", source_ips=["10.0.0.0/99"]),
    ):
        with pytest.raises(ConfigError):
            entry_of(info)
    for acl in (AclInfo(), AclInfo(policies=[PolicyInfo(policy_type="Custom")])):
        with pytest.raises(ConfigError):
            policies_of(acl)


def test_the_audit_log_has_each_user_that_differs_without_passwords() -> None:
    first = rules(entry("Topic:orders", actions="Pub,Sub"))
    bob = User("bob", "secret of bob")
    both = UserRules(first.users | {"bob": bob}, first.policies)
    assert change_between(first, both) == "User:bob: - -> Normal; enable"
    assert change_between(both, first) == "User:bob: Normal; enable -> -"
    quota = UserInfo(user_status="disable", attributes={"quota.send.messages": "5"})
    changed = UserRules(both.users | {"bob": changed_user(bob, quota)}, both.policies)
    assert change_between(both, changed) == "User:bob: enable -> disable; quota.send.messages=5"
    renewed = changed_user(bob, UserInfo(password="new of bob", old_password="secret of bob"))
    renewed_rules = UserRules(both.users | {"bob": renewed}, both.policies)
    assert change_between(both, renewed_rules) == "User:bob: - -> an old password; another password"
    refused = rules(entry("Topic:orders", "Deny", actions="Pub"))
    assert change_between(first, refused) == (
        "User:alice: Custom policy: Allow Pub,Sub on Topic:orders -> Custom policy: Deny Pub on Topic:orders"
    )
    assert change_between(both, both) == ""


def test_accounts_of_the_old_file_become_users_who_may_do_the_same() -> None:
    accounts = read_accounts(
        [
            (
                "plain_acl.yml",
                {
                    "accounts": [
                        {
                            "accessKey": "alice01",
                            "secretKey": "1234567",
                            "topicPerms": ["orders=PUB", "no=DENY"],
                        },
                        {"accessKey": "theadmin", "secretKey": "1234567", "admin": True},
                    ]
                },
            )
        ]
    )
    new = migrated(accounts, UserRules())
    for topic in ("orders", "no", "other"):
        for action in (PUB, SUB):
            need = Need((action,), TOPIC, topic)
            old = accounts.decide("alice01", need, HERE).is_allowed
            assert new.decide("alice01", need, HERE).is_allowed == old, need
    assert new.is_administrator("theadmin")
    kept = UserRules({"theadmin": User("theadmin", "own password")})
    assert migrated(accounts, kept).secrets_of("theadmin") == ("own password",)


names = st.text("ab", min_size=1, max_size=3)
kinds = st.sampled_from([each.value for each in ResourceType])
entries = st.builds(
    PolicyEntry,
    kind=st.one_of(st.just("*"), kinds),
    name=st.one_of(st.just("*"), names, names.map(lambda name: name + "*")),
    actions=st.frozensets(st.sampled_from([*(action.value for action in Action), ALL]), min_size=1),
    networks=st.sampled_from([(), ("10.0.0.0/8",), ("11.0.0.0/8",)]),
    is_allowed=st.booleans(),
).map(
    lambda each: (
        PolicyEntry("*", "*", each.actions, each.networks, each.is_allowed) if each.kind == "*" else each
    )
)
needs = st.builds(
    Need,
    actions=st.lists(st.sampled_from(list(Action)), min_size=1, max_size=2).map(tuple),
    resource_type=st.sampled_from(list(ResourceType)),
    name=names,
)


@given(st.lists(entries, max_size=6), needs)
def test_a_denial_is_never_lost_to_a_vaguer_entry_and_order_does_not_matter(
    custom: list[PolicyEntry], need: Need
) -> None:
    decision = may(rules(*custom), need)
    assert may(rules(*reversed(custom)), need) == decision
    matching = [each for each in custom if each.matches(need, need.name, HERE)]
    if not any(each.is_allowed for each in matching):
        assert not decision
    if matching and all(each.is_allowed for each in matching):
        assert decision
    denied = PolicyEntry(need.resource_type.value, need.name, frozenset({ALL}), (), is_allowed=False)
    assert not may(rules(*custom, denied), need)


@given(st.dictionaries(st.sampled_from(PolicyType), st.lists(entries, min_size=1).map(tuple), min_size=1))
def test_policies_survive_the_wire(policies: dict[PolicyType, tuple[PolicyEntry, ...]]) -> None:
    assert policies_of(acl_info("alice", policies)) == policies
