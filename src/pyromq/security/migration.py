"""The accounts of access control 1.0 as users and policies of 2.0."""

from pyromq.protocol.needs import ResourceType
from pyromq.security.accounts import PERMISSIONS, Account, AccountRules
from pyromq.security.users import ALL, Policies, PolicyEntry, PolicyType, User, UserRules, UserType


def migrated(accounts: AccountRules, rules: UserRules) -> UserRules:
    """The rules with a user for each account that has none yet.

    Addresses that needed no signature are not taken over: 2.0 has nothing like them.
    """
    users, policies = dict(rules.users), dict(rules.policies)
    for name, account in accounts.accounts.items():
        if name not in users:
            user_type = UserType.SUPER if account.is_administrator else UserType.NORMAL
            users[name] = User(name, account.secret_key, user_type)
            policies[name] = _policies(account)
    return UserRules(users, policies, rules.cluster, rules.decides)


def _policies(account: Account) -> Policies:
    custom = tuple(_entry(kind, name, word) for (kind, name), word in account.permissions.items())
    default = tuple(_entry(kind, "*", word) for kind, word in account.defaults.items())
    return (
        {PolicyType.CUSTOM: custom, PolicyType.DEFAULT: default} if custom else {PolicyType.DEFAULT: default}
    )


def _entry(kind: ResourceType, name: str, word: str) -> PolicyEntry:
    actions = frozenset(action.value for action in PERMISSIONS[word]) or frozenset({ALL})
    return PolicyEntry(kind.value, name, actions, (), is_allowed=bool(PERMISSIONS[word]))
