"""Access control 2.0: users, and policies that allow or deny actions on resources.

Of a user's Custom policy the entries that match decide, and only if none matches those of the Default
policy. Among several the most specific resource decides: its own type before any type, then a name before a
prefix, a longer prefix before a shorter one, a prefix before all names. Nothing is allowed that no entry
allows, except to reply to a request.
"""

from collections.abc import Mapping
from enum import StrEnum
from hmac import compare_digest
from typing import TypeAlias, TypeVar

import msgspec

from pyromq.errors import ConfigError
from pyromq.protocol import quotas
from pyromq.protocol.needs import Action, Need, ResourceType
from pyromq.protocol.requests.access import AclInfo, PolicyEntryInfo, PolicyInfo, UserInfo
from pyromq.security.address_patterns import is_in_network
from pyromq.security.decision import Decision, described, is_to_read_as_tool, is_to_reply

SUBJECT_PREFIX = "User:"
ALL = "All"
NO_ACL = "The acl is not exist."  # java: the text
_ANY = "*"


class UserType(StrEnum):
    SUPER = "Super"
    NORMAL = "Normal"


class UserStatus(StrEnum):
    ENABLE = "enable"
    DISABLE = "disable"


class PolicyType(StrEnum):
    CUSTOM = "Custom"
    DEFAULT = "Default"


class User(msgspec.Struct, frozen=True):
    name: str
    password: str
    type: UserType = UserType.NORMAL
    status: UserStatus = UserStatus.ENABLE
    old_password: str = ""
    """Accepted as well, so that programs can change to the new one after each other; empty: none is."""
    attributes: dict[str, str] = {}
    """Its quotas."""

    def __repr__(self) -> str:
        return f"<User {self.name} {self.type} {self.status}>"


class PolicyEntry(msgspec.Struct, frozen=True):
    """Allow or deny some actions on a resource, perhaps only from some addresses."""

    kind: str
    """A type of resource, or `*`: any type."""
    name: str
    """A name, a prefix with `*` at its end, or `*` alone."""
    actions: frozenset[str]
    networks: tuple[str, ...]
    is_allowed: bool

    @property
    def resource(self) -> str:
        return _ANY if self.kind == _ANY else f"{self.kind}:{self.name}"

    def __str__(self) -> str:
        word = "Allow" if self.is_allowed else "Deny"
        where = f" from {', '.join(self.networks)}" if self.networks else ""
        return f"{word} {','.join(sorted(self.actions))} on {self.resource}{where}"

    def matches(self, need: Need, name: str, host: str) -> bool:
        if self.kind != _ANY:
            if self.kind != need.resource_type:
                return False
            if self.name != _ANY:
                # An unnamed resource is all of its type: a right to some of them is not enough.
                if self.name.endswith(_ANY):
                    if not name or not name.startswith(self.name[:-1]):
                        return False
                elif name != self.name:
                    return False
        if ALL not in self.actions and self.actions.isdisjoint(need.actions):
            return False
        return not self.networks or any(is_in_network(host, network) for network in self.networks)

    @property
    def rank(self) -> tuple[bool, int, int, bool]:
        """The smallest decides."""
        pattern = 2 if self.name == _ANY else 1 if self.name.endswith(_ANY) else 0
        return self.kind == _ANY, pattern, -len(self.name), self.is_allowed


Policies: TypeAlias = Mapping[PolicyType, tuple[PolicyEntry, ...]]


class UserRules(msgspec.Struct, frozen=True):
    """All users with their policies. Without `decides` every user may do everything."""

    users: dict[str, User] = {}
    policies: dict[str, Policies] = {}
    cluster: str = ""
    decides: bool = True

    def free_pass(self, who: str, address: str) -> str:
        return ""

    def secrets_of(self, who: str) -> tuple[str, ...]:
        user = self.users.get(who)
        if user is None or user.status is not UserStatus.ENABLE:
            return ()
        return (user.password, user.old_password) if user.old_password else (user.password,)

    def is_administrator(self, who: str) -> bool:
        user = self.users.get(who)
        return user is not None and user.status is UserStatus.ENABLE and user.type is UserType.SUPER

    def has_quota(self, who: str) -> bool:
        user = self.users.get(who)
        return user is not None and bool(user.attributes)

    def decide(self, who: str, need: Need, address: str) -> Decision:
        user = self.users.get(who)
        if user is None:
            return Decision(False, f"there is no user {who}")
        if user.status is not UserStatus.ENABLE:
            return Decision(False, f"user {who} is disabled")
        if user.type is UserType.SUPER:
            return Decision(True, f"user {who} is a super user")
        if not self.decides:
            return Decision(True, "authorizationEnabled is false: every user may do everything")
        name = need.name or (self.cluster if need.resource_type is ResourceType.CLUSTER else "")
        of_user = self.policies.get(who, {})
        for policy_type in PolicyType:
            found = [each for each in of_user.get(policy_type, ()) if each.matches(need, name, address)]
            if found:
                best = min(found, key=lambda entry: entry.rank)
                return Decision(best.is_allowed, f"{SUBJECT_PREFIX}{who}, {policy_type} policy: {best}")
        if is_to_reply(need, self.cluster):
            return Decision(True, "every user may reply to requests")
        if is_to_read_as_tool(need):
            return Decision(True, "every user may read as a tool, if the topic allows it")
        return Decision(False, f"no policy of user {who} allows {described(need)} from {address}")


# What requests and files contain

E = TypeVar("E", bound=StrEnum)


def user_of(info: UserInfo, name: str) -> User:
    """A new user; raises ConfigError."""
    if not info.password or not info.password.strip():
        raise ConfigError("password", "", "a text that is not blank")
    return User(
        name,
        info.password,
        _member(UserType, info.user_type, "userType") or UserType.NORMAL,
        _member(UserStatus, info.user_status, "userStatus") or UserStatus.ENABLE,
        info.old_password or "",
        quotas.checked_rates(info.attributes or {}, quotas.OF_USERS),
    )


def changed_user(user: User, info: UserInfo) -> User:
    """A new password alone ends the old ones."""
    password = info.password if info.password and info.password.strip() else ""
    return User(
        user.name,
        password or user.password,
        _member(UserType, info.user_type, "userType") or user.type,
        _member(UserStatus, info.user_status, "userStatus") or user.status,
        info.old_password if info.old_password is not None else "" if password else user.old_password,
        quotas.checked_rates(user.attributes | (info.attributes or {}), quotas.OF_USERS),
    )


def user_info(user: User, *, shows_passwords: bool) -> UserInfo:
    return UserInfo(
        username=user.name,
        password=user.password if shows_passwords else None,
        old_password=(user.old_password or None) if shows_passwords else None,
        user_type=user.type.value,
        user_status=user.status.value,
        attributes=user.attributes or None,
    )


def change_between(before: UserRules, after: UserRules) -> str:
    """For the audit log: what each user that differs had before, and what is new. Passwords are not in it."""
    changes = []
    for name in sorted(before.users.keys() | after.users.keys()):
        was, becomes = before.users.get(name), after.users.get(name)
        if was == becomes and before.policies.get(name) == after.policies.get(name):
            continue
        old, new = _described_user(before, name), _described_user(after, name)
        gone = [each for each in old if each not in new]
        come = [each for each in new if each not in old]
        if was and becomes and not compare_digest(was.password.encode(), becomes.password.encode()):
            come.append("another password")
        changes.append(f"{SUBJECT_PREFIX}{name}: {'; '.join(gone) or '-'} -> {'; '.join(come) or '-'}")
    return ", ".join(changes)


def _described_user(rules: UserRules, name: str) -> list[str]:
    user = rules.users.get(name)
    if user is None:
        return []
    return [
        *(user.type, user.status),
        *(f"{key}={value}" for key, value in user.attributes.items()),
        *(["an old password"] if user.old_password else []),
        *(
            f"{policy_type} policy: {entry}"
            for policy_type, entries in rules.policies.get(name, {}).items()
            for entry in entries
        ),
    ]


def policies_of(info: AclInfo) -> Policies:
    """Raises ConfigError."""
    if not info.policies:
        raise ConfigError("policies", "", "at least one policy")
    found: dict[PolicyType, tuple[PolicyEntry, ...]] = {}
    for policy in info.policies:
        policy_type = _member(PolicyType, policy.policy_type, "policyType") or PolicyType.CUSTOM
        if not policy.entries:
            raise ConfigError("entries", "", "at least one entry")
        found[policy_type] = (*found.get(policy_type, ()), *map(entry_of, policy.entries))
    return found


def acl_info(name: str, policies: Policies) -> AclInfo:
    return AclInfo(
        subject=SUBJECT_PREFIX + name,
        policies=[
            PolicyInfo(policy_type=policy_type.value, entries=[_entry_info(entry) for entry in entries])
            for policy_type, entries in policies.items()
        ],
    )


def merged(old: Policies, new: Policies) -> Policies:
    """A new entry replaces the old ones of the same resource."""
    result = dict(old)
    for policy_type, entries in new.items():
        replaced = {entry.resource for entry in entries}
        kept = (entry for entry in old.get(policy_type, ()) if entry.resource not in replaced)
        result[policy_type] = (*kept, *entries)
    return result


def without(old: Policies, policy_type: PolicyType, resource: str) -> Policies:
    kept = tuple(entry for entry in old.get(policy_type, ()) if entry.resource != resource)
    result = {each: entries for each, entries in old.items() if each is not policy_type}
    return result | {policy_type: kept} if kept else result


def subject_name(subject: str | None) -> str:
    """The user in `User:name`; raises ConfigError."""
    kind, separator, name = (subject or "").partition(":")
    if not separator or kind.lower() != "user" or not name.strip():
        raise ConfigError("subject", subject or "", "User:name")
    return name


def parse_resource(text: str | None) -> tuple[str, str]:
    """The type and the name of `Topic:orders*` or `*`; raises ConfigError."""
    text = (text or "").strip()
    if text == _ANY:
        return _ANY, _ANY
    kind, separator, name = text.partition(":")
    by_name = {each.lower(): each.value for each in ResourceType} | {"namespace": "Namespace"}
    if not separator or not name or kind.lower() not in by_name:
        raise ConfigError("resource", text, "*, or Topic:, Group: or Cluster: with a name, prefix* or *")
    if _ANY in name[:-1]:
        raise ConfigError("resource", text, "* only at the end of a name")
    return by_name[kind.lower()], name


def entry_of(info: PolicyEntryInfo) -> PolicyEntry:
    kind, name = parse_resource(info.resource)
    by_name = {action.lower(): action.value for action in Action} | {"all": ALL}
    actions = [action.strip().lower() for action in info.actions or ()]
    if not actions or any(action not in by_name for action in actions):
        names = ", ".join(by_name.values())
        raise ConfigError("actions", ",".join(info.actions or ()), f"some of {names}")
    networks = tuple(network.strip() for network in info.source_ips or ())
    for network in networks:
        if not is_in_network(network.partition("/")[0], network):
            raise ConfigError("sourceIps", network, "an address or a network such as 10.0.0.0/8")
    decision = (info.decision or "").lower()
    if decision not in ("allow", "deny"):
        raise ConfigError("decision", info.decision or "", "Allow or Deny")
    return PolicyEntry(
        kind, name, frozenset(by_name[action] for action in actions), networks, decision == "allow"
    )


def _entry_info(entry: PolicyEntry) -> PolicyEntryInfo:
    return PolicyEntryInfo(
        resource=entry.resource,
        actions=sorted(entry.actions),
        source_ips=list(entry.networks) or None,
        decision="Allow" if entry.is_allowed else "Deny",
    )


def _member(type_: type[E], text: str | None, key: str) -> E | None:
    if not text:
        return None
    for member in type_:
        if member.value.lower() == text.strip().lower():
            return member
    raise ConfigError(key, text, " or ".join(type_))
