"""Access control 1.0: accounts with a key and with rights to topics and groups, from `plain_acl.yml`.

It knows two rights, PUB and SUB. Requests that are about a topic or group need PUB, SUB or either of them
there; to change topics, groups or the cluster takes an administrator. Apache's broker lets every account do
what its list of requests forgets; here every request needs something.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from pyromq.errors import ConfigError
from pyromq.protocol.needs import GET, LIST, PUB, SUB, Action, Need, ResourceType
from pyromq.security.address_patterns import AddressPattern
from pyromq.security.decision import Decision, described, is_to_read_as_tool, is_to_reply

TRACE_TOPIC = "RMQ_SYS_TRACE_TOPIC"
_MIN_KEY_CHARS = 7
_READING = frozenset({GET, LIST})

PERMISSIONS: Mapping[str, frozenset[Action]] = {
    "DENY": frozenset(),
    "PUB": frozenset({PUB}),
    "SUB": frozenset({SUB}),
    "PUB|SUB": frozenset({PUB, SUB}),
    "SUB|PUB": frozenset({PUB, SUB}),
}


class Account(msgspec.Struct, frozen=True):
    access_key: str
    secret_key: str
    trusted_addresses: AddressPattern
    is_administrator: bool
    defaults: dict[ResourceType, str]
    permissions: dict[tuple[ResourceType, str], str]

    def __repr__(self) -> str:
        return f"<Account {self.access_key}{' administrator' if self.is_administrator else ''}>"

    def decide(self, need: Need) -> Decision:
        if self.is_administrator:
            return Decision(True, f"account {self.access_key}: admin")
        kind, name = need.resource_type, need.name
        if need.actions == (PUB,) and kind is ResourceType.TOPIC and name == TRACE_TOPIC:
            return Decision(True, "every account may send traces")
        if kind is ResourceType.CLUSTER or not name:
            if _READING.intersection(need.actions):
                return Decision(True, f"account {self.access_key}: every account may read about the cluster")
            return Decision(False, f"account {self.access_key}: not an admin")
        wanted = frozenset({PUB, SUB}.intersection(need.actions))
        if not wanted:
            if not _READING.intersection(need.actions):
                return Decision(False, f"account {self.access_key}: not an admin")
            wanted = frozenset({PUB, SUB})
        own = self.permissions.get((kind, name))
        if own is None and is_to_reply(need):
            return Decision(True, "every account may reply to requests")
        if own is None and is_to_read_as_tool(need):
            return Decision(True, "every account may read as a tool, if the topic allows it")
        word = self.defaults[kind] if own is None else own
        lower = kind.lower()
        rule = f"default{kind}Perm: {word}" if own is None else f"{lower}Perms: {name}={word}"
        return Decision(bool(wanted & PERMISSIONS[word]), f"account {self.access_key}, {rule}")


class AccountRules(msgspec.Struct, frozen=True):
    """The accounts of all files together."""

    accounts: dict[str, Account] = {}
    trusted_addresses: tuple[AddressPattern, ...] = ()

    def free_pass(self, who: str, address: str) -> str:
        for pattern in self.trusted_addresses:
            if pattern.matches(address):
                return f"globalWhiteRemoteAddresses: {pattern.text}"
        account = self.accounts.get(who)
        if account is not None and account.trusted_addresses.matches(address):
            return f"account {who}, whiteRemoteAddress: {account.trusted_addresses.text}"
        return ""

    def secrets_of(self, who: str) -> tuple[str, ...]:
        account = self.accounts.get(who)
        return () if account is None else (account.secret_key,)

    def is_administrator(self, who: str) -> bool:
        account = self.accounts.get(who)
        return account is not None and account.is_administrator

    def has_quota(self, who: str) -> bool:
        return False

    def decide(self, who: str, need: Need, address: str) -> Decision:
        if rule := self.free_pass(who, address):
            return Decision(True, rule)
        account = self.accounts.get(who)
        if account is None:
            return Decision(False, f"there is no account {who}: {described(need)} is refused")
        return account.decide(need)


def read_accounts(contents: Iterable[tuple[str, Any]]) -> AccountRules:
    """The rules in the values of YAML files, each with its name; raises ConfigError.

    java: an account that an earlier file has already is omitted
    """
    accounts: dict[str, Account] = {}
    trusted: list[AddressPattern] = []
    for name, content in contents:
        if content is None:
            continue
        if not isinstance(content, dict):
            raise ConfigError(name, type(content).__name__, "a mapping with accounts")
        trusted += (
            AddressPattern.parse(str(text), key=f"{name}: globalWhiteRemoteAddresses")
            for text in _list(content, "globalWhiteRemoteAddresses", name)
        )
        for position, value in enumerate(_list(content, "accounts", name)):
            account = read_account(value, f"{name}: accounts[{position}]")
            accounts.setdefault(account.access_key, account)
    return AccountRules(accounts, tuple(trusted))


def read_account(value: Any, where: str) -> Account:
    if not isinstance(value, dict):
        raise ConfigError(where, type(value).__name__, "a mapping with accessKey and secretKey")
    for key in ("accessKey", "secretKey"):
        if len(str(value.get(key) or "")) < _MIN_KEY_CHARS:
            shown = str(value.get(key) or "") if key == "accessKey" else "(hidden)"
            raise ConfigError(f"{where}.{key}", shown, "longer than 6 characters")
    permissions: dict[tuple[ResourceType, str], str] = {}
    for key, kind in (("topicPerms", ResourceType.TOPIC), ("groupPerms", ResourceType.GROUP)):
        for line in _list(value, key, where):
            resource, separator, word = str(line).partition("=")
            if not separator or not resource.strip():
                raise ConfigError(f"{where}.{key}", line, "name=PERMISSION")
            permissions[kind, resource.strip()] = _permission(word, f"{where}.{key}")
    return Account(
        access_key=str(value["accessKey"]),
        secret_key=str(value["secretKey"]),
        trusted_addresses=AddressPattern.parse(
            str(value.get("whiteRemoteAddress") or ""), key=f"{where}.whiteRemoteAddress"
        ),
        is_administrator=_truth(value.get("admin"), f"{where}.admin"),
        defaults={
            kind: _permission(value.get(f"default{kind}Perm") or "DENY", f"{where}.default{kind}Perm")
            for kind in (ResourceType.TOPIC, ResourceType.GROUP)
        },
        permissions=permissions,
    )


def _permission(word: Any, where: str) -> str:
    text = str(word).strip()
    if text not in PERMISSIONS:
        raise ConfigError(where, text, "DENY, PUB, SUB or PUB|SUB")
    return text


def _truth(value: Any, where: str) -> bool:
    if value is None or isinstance(value, bool):
        return bool(value)
    if str(value).lower() in ("true", "false"):
        return str(value).lower() == "true"
    raise ConfigError(where, value, "true or false")


def _list(content: dict[Any, Any], key: str, where: str) -> list[Any]:
    value = content.get(key)
    if value is None:
        return []
    if not isinstance(value, list):
        raise ConfigError(f"{where}.{key}", type(value).__name__, "a list")
    return value
