"""Operations on users and policies, and on the accounts of access control 1.0."""

import asyncio
from collections.abc import Collection, Sequence
from hmac import compare_digest

from msgspec.structs import replace

from pyromq.admin.cluster import Cluster
from pyromq.admin.failures import NotFound, PartlyFailed
from pyromq.admin.name_servers import settings_of
from pyromq.errors import ConfigError, PyroError, Refused
from pyromq.protocol.catalogue import Answer
from pyromq.protocol.codes import ResponseCode
from pyromq.protocol.needs import Action, Need, ResourceType
from pyromq.protocol.requests.access import (
    AclInfo,
    CreateAcl,
    CreateUser,
    DeleteAccessConfig,
    DeleteAcl,
    DeleteUser,
    GetAccessConfigVersion,
    GetAccessConfigVersionAnswer,
    GetAcl,
    GetUser,
    ListAcls,
    ListUsers,
    PolicyEntryInfo,
    PolicyInfo,
    UpdateAcl,
    UpdateTrustedAddresses,
    UpdateUser,
    UserInfo,
)
from pyromq.protocol.requests.settings import GetBrokerConfig
from pyromq.security.decision import Decision
from pyromq.security.users import NO_ACL, UserRules, parse_resource, policies_of, subject_name, user_of

# Changes are made on all the servers given; `PartlyFailed` if some refuse or are replicas.


async def servers(cluster: Cluster, cluster_name: str) -> list[str]:
    """The servers of a cluster that keep users: masters, from which replicas copy them, name servers, and the
    controllers that masters name. Servers without access control are omitted."""
    masters = [member.address for member in await cluster.masters(cluster_name)]
    settings = await cluster.ask_each(masters, GetBrokerConfig(), some_will_do=True)
    controllers = {
        address.strip()
        for answer in settings.values()
        for address in settings_of(answer.body).get("controllerAddr", "").split(";")
        if address.strip()
    }
    found = [*masters, *cluster.name_servers, *sorted(controllers)]
    asked = await asyncio.gather(*(keeps_users(cluster, address) for address in found))
    return [address for address, keeps in zip(found, asked, strict=True) if keeps]


async def keeps_users(cluster: Cluster, address: str) -> bool:
    """A server that does not answer may: the change will say why it is not made there."""
    try:
        await cluster.ask(address, ListUsers(filter=""))
    except Refused as refusal:
        return refusal.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED
    except PyroError:
        pass
    return True


async def create_user(
    cluster: Cluster, addresses: Collection[str], name: str, info: UserInfo
) -> dict[str, Answer]:
    """The first server refuses a user that it has. The others may share its file of users and have the user
    by then; one that has another user of this name gives it the new password."""
    first, *others = addresses
    done = await cluster.ask_each([first], CreateUser(username=name, body=info), is_change=True)
    failed: dict[str, PyroError] = {}
    for address in others:
        try:
            is_there = (await cluster.ask(address, GetUser(username=name))).body is not None
            put = UpdateUser if is_there else CreateUser
            done[address] = await cluster.change(address, put(username=name, body=info))
        except PyroError as problem:
            failed[address] = problem
    if failed:
        raise PartlyFailed(done, failed)
    return done


async def update_user(
    cluster: Cluster, addresses: Collection[str], name: str, info: UserInfo, *, keeps_old: bool = False
) -> dict[str, Answer]:
    """With `keeps_old` the present password is accepted as well, until the next change of the password."""
    if not keeps_old:
        return await cluster.ask_each(addresses, UpdateUser(username=name, body=info), is_change=True)
    bodies = {}
    for address in addresses:
        now = await user(cluster, address, name)
        is_changed_already = compare_digest((now.password or "").encode(), (info.password or "").encode())
        bodies[address] = replace(info, old_password=now.old_password if is_changed_already else now.password)
    return await cluster.ask_all(
        {address: UpdateUser(username=name, body=body) for address, body in bodies.items()}, is_change=True
    )


async def delete_user(cluster: Cluster, addresses: Collection[str], name: str) -> dict[str, Answer]:
    return await cluster.ask_each(addresses, DeleteUser(username=name), is_change=True)


async def user(cluster: Cluster, address: str, name: str) -> UserInfo:
    found = (await cluster.ask(address, GetUser(username=name))).body
    if found is None:
        raise NotFound(f"{address} has no user {name}")
    return found


async def users(cluster: Cluster, address: str, filter: str = "") -> list[UserInfo]:
    return (await cluster.ask(address, ListUsers(filter=filter))).body or []


async def copy_users(cluster: Cluster, source: str, target: str, names: Collection[str] = ()) -> list[str]:
    """Copy these users, or all; returns their names. Only a super user of both brokers can."""
    there = {each.username for each in await users(cluster, target)}
    wanted = names or [each.username or "" for each in await users(cluster, source)]
    for name in wanted:
        info = await user(cluster, source, name)
        if not info.password:
            raise NotFound(f"{source} does not show the password of {name}: only super users may copy users")
        await (update_user if name in there else create_user)(cluster, [target], name, info)
    return list(wanted)


def acl(
    resources: Sequence[str],
    actions: Sequence[str],
    decision: str,
    source_ips: Sequence[str] = (),
    policy_type: str = "Custom",
) -> AclInfo:
    entries = [
        PolicyEntryInfo(
            resource=resource, actions=list(actions), source_ips=list(source_ips) or None, decision=decision
        )
        for resource in resources
    ]
    return AclInfo(policies=[PolicyInfo(policy_type=policy_type, entries=entries)])


async def create_acl(
    cluster: Cluster, addresses: Collection[str], subject: str, info: AclInfo
) -> dict[str, Answer]:
    return await cluster.ask_each(addresses, CreateAcl(subject=subject, body=info), is_change=True)


async def update_acl(
    cluster: Cluster, addresses: Collection[str], subject: str, info: AclInfo
) -> dict[str, Answer]:
    return await cluster.ask_each(addresses, UpdateAcl(subject=subject, body=info), is_change=True)


async def delete_acl(
    cluster: Cluster,
    addresses: Collection[str],
    subject: str,
    resource: str | None,
    policy_type: str | None = None,
) -> dict[str, Answer]:
    """Delete the entry of a resource, of the policy Custom unless another one is named; or all policies."""
    request = DeleteAcl(subject=subject, policy_type=policy_type, resource=resource)
    done: dict[str, Answer] = {}
    failed: dict[str, PyroError] = {}
    for address in addresses:
        try:
            done[address] = await cluster.change(address, request)
        except PyroError as problem:
            # A server that shares the file of one before has none any more.
            if not (done and isinstance(problem, Refused) and problem.remark == NO_ACL):
                failed[address] = problem
    if len(failed) == 1 == len(addresses):
        raise failed.popitem()[1]
    if failed:
        raise PartlyFailed(done, failed)
    return done


async def acls_of(cluster: Cluster, address: str, subject: str) -> list[AclInfo]:
    found = (await cluster.ask(address, GetAcl(subject=subject))).body
    return [found] if found is not None else []


async def acls(cluster: Cluster, address: str, subject: str = "", resource: str = "") -> list[AclInfo]:
    answer = await cluster.ask(address, ListAcls(subject_filter=subject, resource_filter=resource))
    return answer.body or []


async def copy_acls(cluster: Cluster, source: str, target: str, subjects: Collection[str] = ()) -> list[str]:
    copied = []
    for each in await acls(cluster, source):
        subject = each.subject or ""
        if not subjects or subject in subjects:
            await create_acl(cluster, [target], subject, each)
            copied.append(subject)
    return copied


async def check(cluster: Cluster, address: str, name: str, need: Need, source_ip: str) -> Decision:
    """The decision that a broker would make, and its rule."""
    info = await user(cluster, address, name)
    info.password = "unknown"  # it is not needed to decide
    own = {
        subject_name(each.subject): policies_of(each)
        for each in await acls_of(cluster, address, f"User:{name}")
    }
    return UserRules({name: user_of(info, name)}, own).decide(name, need, source_ip)


def need_in(action: str, resource: str) -> Need:
    """`Pub` on `Topic:orders`; raises ConfigError."""
    kind, name = parse_resource(resource)
    by_name = {each.lower(): each for each in Action}
    if action.lower() not in by_name or kind == "*":
        raise ConfigError("action", action, f"one of {', '.join(Action)} on Topic:, Group: or Cluster:")
    return Need((by_name[action.lower()],), ResourceType(kind), "" if name == "*" else name)


async def delete_account(cluster: Cluster, address: str, access_key: str) -> None:
    await cluster.ask(address, DeleteAccessConfig(access_key=access_key))


async def account_versions(cluster: Cluster, address: str) -> GetAccessConfigVersionAnswer:
    return await cluster.ask(address, GetAccessConfigVersion())


async def set_trusted_addresses(cluster: Cluster, address: str, addresses: str, path: str | None) -> None:
    await cluster.ask(address, UpdateTrustedAddresses(global_white_addrs=addresses, acl_file_full_path=path))
