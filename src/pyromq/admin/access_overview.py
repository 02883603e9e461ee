"""Users and policies of all brokers in one table: each broker group keeps its own, so they may differ.

Passwords are omitted, even if a broker sends them.
"""

import asyncio
from collections.abc import Iterable, Iterator

import msgspec

from pyromq.admin import access
from pyromq.admin.cluster import BrokerMember, Cluster
from pyromq.errors import PyroError
from pyromq.protocol.needs import Need
from pyromq.protocol.requests.access import AclInfo, UserInfo


class UserRow(msgspec.Struct, frozen=True, order=True, rename="camel"):
    name: str
    type: str
    status: str
    quotas: tuple[tuple[str, str], ...] = ()


class PolicyRow(msgspec.Struct, frozen=True, order=True, rename="camel"):
    """One entry of a policy; `subject` is written `User:name`."""

    subject: str
    policy_type: str
    resource: str
    actions: tuple[str, ...]
    source_ips: tuple[str, ...]
    decision: str


class AccessOverview(msgspec.Struct, frozen=True, rename="camel"):
    """Every row with the names of the brokers that have it; `untold`: the brokers that did not answer, and
    why."""

    told: list[str]
    untold: dict[str, str]
    users: dict[UserRow, list[str]]
    policies: dict[PolicyRow, list[str]]


class AccessCheck(msgspec.Struct, frozen=True, rename="camel"):
    """One broker's decision, and the rule behind it; or the problem with asking it."""

    broker: str
    is_allowed: bool | None
    rule: str


async def of_cluster(cluster: Cluster) -> AccessOverview:
    masters = await cluster.masters()
    answers = await asyncio.gather(*(_of_broker(cluster, each) for each in masters))
    overview = AccessOverview([], {}, {}, {})
    for member, answer in zip(masters, answers, strict=True):
        if isinstance(answer, PyroError):
            overview.untold[member.broker_name] = str(answer)
            continue
        overview.told.append(member.broker_name)
        for user in answer[0]:
            quotas = tuple(sorted((user.attributes or {}).items()))
            row = UserRow(user.username or "", user.user_type or "", user.user_status or "", quotas)
            overview.users.setdefault(row, []).append(member.broker_name)
        for policy in _policy_rows(answer[1]):
            overview.policies.setdefault(policy, []).append(member.broker_name)
    return overview


async def _of_broker(
    cluster: Cluster, member: BrokerMember
) -> tuple[list[UserInfo], list[AclInfo]] | PyroError:
    try:
        return await access.users(cluster, member.address), await access.acls(cluster, member.address)
    except PyroError as problem:
        return problem


def _policy_rows(acls: Iterable[AclInfo]) -> Iterator[PolicyRow]:
    for acl in acls:
        for policy in acl.policies or ():
            for entry in policy.entries or ():
                yield PolicyRow(
                    acl.subject or "",
                    policy.policy_type or "",
                    entry.resource or "",
                    tuple(entry.actions or ()),
                    tuple(entry.source_ips or ()),
                    entry.decision or "",
                )


async def check(cluster: Cluster, name: str, need: Need, source_ip: str) -> list[AccessCheck]:
    """Each broker's decision about a user."""

    async def ask(member: BrokerMember) -> AccessCheck:
        try:
            decision = await access.check(cluster, member.address, name, need, source_ip)
        except PyroError as problem:
            return AccessCheck(member.broker_name, None, str(problem))
        return AccessCheck(member.broker_name, decision.is_allowed, decision.rule)

    return await asyncio.gather(*map(ask, await cluster.masters()))
