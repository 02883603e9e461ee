"""Commands about access control: users and policies of 2.0, accounts of 1.0."""

import os
import sys
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Annotated, Any, TypeAlias

import click

from pyromq.admin import access
from pyromq.admin.cluster import Cluster
from pyromq.admin.failures import NotFound
from pyromq.cli.mqadmin.options import Broker, ClusterName, attribute_changes, option
from pyromq.cli.mqadmin.output import Output
from pyromq.cli.mqadmin.report import Column, Report, Table, done
from pyromq.cli.mqadmin.running import address_of, addresses_of, admin_command
from pyromq.protocol.requests.access import AclInfo, PutAccessConfig, UserInfo

User = Annotated[str, option("-u --username", "The user.")]
Subject = Annotated[str, option("-s --subject", "The user, as User:name.")]
Password = Annotated[
    str | None,
    option("-p --password", "The password; - asks for it. Default: PYROMQ_PASSWORD, the terminal or stdin."),
]
UserType = Annotated[str | None, option("-t --userType", "Super or Normal.")]
Resources = Annotated[
    str,
    option(
        "-r --resources", "Resources, separated by commas: Topic:orders, Topic:o*, Group:*, Cluster:*, *."
    ),
]
Actions = Annotated[
    str,
    option("-a --actions", "Actions, separated by commas: Pub, Sub, Create, Update, Delete, Get, List, All."),
]
Decision = Annotated[str, option("-d --decision", "Allow or Deny.")]
SourceIps = Annotated[
    str | None,
    option("-i --sourceIp", "Addresses and networks to which the entry is limited, separated by commas."),
]
FromBroker = Annotated[str, option("-f --fromBroker", "The broker to copy from.")]
ToBroker = Annotated[str, option("-t --toBroker", "The broker to copy to.")]
AccessKey = Annotated[str, option("-a --accessKey", "The access key of the account.")]

Servers = Annotated[
    str | None,
    option(
        "-b --brokerAddr",
        "These servers, separated by `;`: brokers, name servers, controllers, gRPC proxies.",
    ),
]
WholeCluster = Annotated[
    str | None,
    option(
        "-c --clusterName --cluster", "All masters of this cluster, its name servers and its controllers."
    ),
]
OldPassword = Annotated[
    str | None,
    option(
        "-o --oldPassword",
        "keep: accept the present password as well, until programs use the new one. drop: no longer.",
        click.Choice(["keep", "drop"]),
    ),
]

UserAttributes = Annotated[
    str | None,
    option(
        "--attributes",
        "Quotas to set and remove: +quota.send.messages=100,-quota.read.bytes; see docs/howto/quotas.md.",
    ),
]

PutAcl: TypeAlias = Callable[[Cluster, Collection[str], str, AclInfo], Awaitable[Collection[str]]]


async def _servers_of(cluster: Cluster, servers: str | None, cluster_name: str | None) -> list[str]:
    """The servers that -b and -c select; both may be given."""
    if servers is None and cluster_name is None:
        raise click.UsageError("give -b SERVER or -c CLUSTER, or both; `mqadmin clusterList` shows both")
    found = await access.servers(cluster, cluster_name) if cluster_name is not None else []
    found += [await address_of(cluster, each.strip()) for each in (servers or "").split(";") if each.strip()]
    if not found:
        raise NotFound(f"no server of {cluster_name} has access control; see docs/concepts/security.md")
    return list(dict.fromkeys(found))


def _secret(given: str | None, what: str) -> str:
    """A secret from a place that other people on this machine cannot see; the command line is none.

    `given`: None or - asks for it.
    """
    if given is not None and given != "-":
        return given
    if (known := os.environ.get("PYROMQ_PASSWORD")) is not None:
        return known
    if sys.stdin.isatty():
        typed: str = click.prompt(what, hide_input=True, confirmation_prompt=True)
        return typed
    return sys.stdin.readline().rstrip("\n")


def _listed(attributes: dict[str, str]) -> str:
    return ",".join(f"{name}={value}" for name, value in attributes.items())


def _users(found: Sequence[UserInfo]) -> Report:
    columns = (
        Column("#UserName", "username"),
        Column("#Password", "password"),
        Column("#UserType", "userType"),
        Column("#UserStatus", "userStatus"),
        Column("#Attributes", "attributes", _listed),
    )
    rows = [
        (
            user.username,
            "*, old *" if user.old_password else "*" if user.password else "",
            user.user_type,
            user.user_status,
            user.attributes or {},
        )
        for user in found
    ]
    return Report.of(Table("users", columns, rows))


def _acls(found: Sequence[AclInfo]) -> Report:
    columns = (
        Column("#Subject", "subject"),
        Column("#PolicyType", "policyType"),
        Column("#Resource", "resource"),
        Column("#Actions", "actions"),
        Column("#SourceIp", "sourceIps"),
        Column("#Decision", "decision"),
    )
    rows = [
        (
            acl.subject,
            policy.policy_type,
            entry.resource,
            ",".join(entry.actions or ()),
            ",".join(entry.source_ips or ()),
            entry.decision,
        )
        for acl in found
        for policy in acl.policies or ()
        for entry in policy.entries or ()
    ]
    return Report.of(Table("acls", columns, rows))


def _split(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _rates(changes: str | None) -> dict[str, str] | None:
    """A quota that is removed is 0."""
    found = attribute_changes(changes)
    return {key[1:]: value if key[0] == "+" else "0" for key, value in found.items()} or None


# Users


@admin_command("createUser")
async def create_user(
    cluster: Cluster,
    out: Output,
    user: User,
    password: Password = None,
    user_type: UserType = None,
    attributes: UserAttributes = None,
    servers: Servers = None,
    cluster_name: WholeCluster = None,
) -> None:
    """Create a user; only a super user may."""
    info = UserInfo(password=_secret(password, f"Password of {user}"), user_type=user_type)
    info.attributes = _rates(attributes)
    addresses = await _servers_of(cluster, servers, cluster_name)
    for address in await access.create_user(cluster, addresses, user, info):
        out.show(done(f"create user to {address} success.", broker=address, user=user))


@admin_command("updateUser")
async def update_user(
    cluster: Cluster,
    out: Output,
    user: User,
    password: Annotated[str | None, option("-p --password", "The new password; - asks for it.")] = None,
    old_password: OldPassword = None,
    user_type: UserType = None,
    status: Annotated[str | None, option("-s --userStatus", "enable or disable.")] = None,
    attributes: UserAttributes = None,
    servers: Servers = None,
    cluster_name: WholeCluster = None,
) -> None:
    """Change the password, the type, the status or the quotas of a user; only a super user may."""
    secret = None if password is None else _secret(password, f"New password of {user}")
    if old_password == "keep" and secret is None:
        raise click.UsageError("--oldPassword keep needs a new password: -p")
    info = UserInfo(password=secret, user_type=user_type, user_status=status)
    info.attributes = _rates(attributes)
    if old_password == "drop":
        info.old_password = ""
    addresses = await _servers_of(cluster, servers, cluster_name)
    for address in await access.update_user(cluster, addresses, user, info, keeps_old=old_password == "keep"):
        out.show(done(f"update user to {address} success.", broker=address, user=user))


@admin_command("deleteUser")
async def delete_user(
    cluster: Cluster, out: Output, user: User, servers: Servers = None, cluster_name: WholeCluster = None
) -> None:
    """Delete a user and its policies; only a super user may."""
    addresses = await _servers_of(cluster, servers, cluster_name)
    for address in await access.delete_user(cluster, addresses, user):
        out.show(done(f"delete user to {address} success.", broker=address, user=user))


@admin_command("getUser")
async def get_user(
    cluster: Cluster, out: Output, user: User, broker: Broker = None, cluster_name: ClusterName = None
) -> None:
    """Show a user. The password is not shown."""
    (address, *_) = await addresses_of(cluster, broker, cluster_name)
    out.show(_users([await access.user(cluster, address, user)]))


@admin_command("listUser")
async def list_user(
    cluster: Cluster,
    out: Output,
    filter: Annotated[str, option("-f --filter", "Only users whose name contains this.")] = "",
    broker: Broker = None,
    cluster_name: ClusterName = None,
) -> None:
    """List the users."""
    (address, *_) = await addresses_of(cluster, broker, cluster_name)
    out.show(_users(await access.users(cluster, address, filter)))


@admin_command("copyUser")
async def copy_user(
    cluster: Cluster,
    out: Output,
    source: FromBroker,
    target: ToBroker,
    user: Annotated[str | None, option("-u --usernames", "Only these users, separated by commas.")] = None,
) -> None:
    """Copy users from one broker to another. Existing users are overwritten."""
    source, target = await address_of(cluster, source), await address_of(cluster, target)
    copied = await access.copy_users(cluster, source, target, _split(user or ""))
    out.show(done(f"copied {len(copied)} users from {source} to {target}", users=copied))


# Policies


def _acl_command(name: str, word: str, put: PutAcl, help: str) -> click.Command:
    async def command(
        cluster: Cluster,
        out: Output,
        subject: Subject,
        resources: Resources,
        actions: Actions,
        decision: Decision,
        source_ips: SourceIps = None,
        servers: Servers = None,
        cluster_name: WholeCluster = None,
    ) -> None:
        info = access.acl(_split(resources), _split(actions), decision, _split(source_ips or ""))
        addresses = await _servers_of(cluster, servers, cluster_name)
        for address in await put(cluster, addresses, subject, info):
            out.show(done(f"{word} acl to {address} success.", broker=address, subject=subject))

    command.__doc__ = help
    return admin_command(name)(command)


create_acl = _acl_command(
    "createAcl",
    "create",
    access.create_acl,
    "Allow or deny actions on resources; only a super user may.",
)
update_acl = _acl_command(
    "updateAcl",
    "update",
    access.update_acl,
    "Change what is allowed or denied on resources; only a super user may.",
)


@admin_command("deleteAcl")
async def delete_acl(
    cluster: Cluster,
    out: Output,
    subject: Subject,
    resource: Annotated[str | None, option("-r --resources", "Only the entry of this resource.")] = None,
    servers: Servers = None,
    cluster_name: WholeCluster = None,
) -> None:
    """Delete the policies of a user; only a super user may."""
    addresses = await _servers_of(cluster, servers, cluster_name)
    for address in await access.delete_acl(cluster, addresses, subject, resource):
        out.show(done(f"delete acl to {address} success.", broker=address, subject=subject))


@admin_command("getAcl")
async def get_acl(
    cluster: Cluster,
    out: Output,
    subject: Subject,
    broker: Broker = None,
    cluster_name: ClusterName = None,
) -> None:
    """Show the policies of a user."""
    (address, *_) = await addresses_of(cluster, broker, cluster_name)
    out.show(_acls(await access.acls_of(cluster, address, subject)))


@admin_command("listAcl")
async def list_acl(
    cluster: Cluster,
    out: Output,
    subject: Annotated[str, option("-s --subject", "Only subjects that contain this.")] = "",
    resource: Annotated[str, option("-r --resource", "Only resources that contain this.")] = "",
    broker: Broker = None,
    cluster_name: ClusterName = None,
) -> None:
    """List the policies of all users."""
    (address, *_) = await addresses_of(cluster, broker, cluster_name)
    out.show(_acls(await access.acls(cluster, address, subject, resource)))


@admin_command("copyAcl")
async def copy_acl(
    cluster: Cluster,
    out: Output,
    source: FromBroker,
    target: ToBroker,
    subject: Annotated[str | None, option("-s --subjects", "Only these, as User:a,User:b.")] = None,
) -> None:
    """Copy the policies of users from one broker to another."""
    source, target = await address_of(cluster, source), await address_of(cluster, target)
    copied = await access.copy_acls(cluster, source, target, _split(subject or ""))
    out.show(done(f"copied the policies of {len(copied)} users from {source} to {target}", subjects=copied))


# Accounts of 1.0


@admin_command("updateAclConfig")
async def update_acl_config(
    cluster: Cluster,
    out: Output,
    access_key: AccessKey,
    secret_key: Annotated[str | None, option("-s --secretKey", "Its secret; - asks for it.")] = None,
    white_address: Annotated[
        str | None, option("-w --whiteRemoteAddress", "Address that needs no signature.")
    ] = None,
    topic_default: Annotated[
        str | None, option("-i --defaultTopicPerm", "DENY, PUB, SUB or PUB|SUB.")
    ] = None,
    group_default: Annotated[
        str | None, option("-u --defaultGroupPerm", "DENY, PUB, SUB or PUB|SUB.")
    ] = None,
    topic_perms: Annotated[str | None, option("-t --topicPerms", "topicA=PUB,topicB=SUB")] = None,
    group_perms: Annotated[str | None, option("-g --groupPerms", "groupA=SUB,groupB=DENY")] = None,
    admin: Annotated[str, option("-m --admin", "true makes it an administrator.")] = "false",
    broker: Broker = None,
    cluster_name: ClusterName = None,
) -> None:
    """Create or change an account of access control 1.0; only an administrator may."""
    request = PutAccessConfig(
        access_key=access_key,
        secret_key=None if secret_key is None else _secret(secret_key, f"Secret key of {access_key}"),
        white_remote_address=white_address,
        admin=admin.lower() == "true",
        default_topic_perm=topic_default,
        default_group_perm=group_default,
        topic_perms=topic_perms,
        group_perms=group_perms,
    )
    for address in await addresses_of(cluster, broker, cluster_name, replicas=True):
        await cluster.ask(address, request)
        text = f"create or update plain access config to {address} success."
        out.show(done(text, broker=address, accessKey=access_key))


@admin_command("deleteAclConfig")
async def delete_acl_config(
    cluster: Cluster,
    out: Output,
    access_key: AccessKey,
    broker: Broker = None,
    cluster_name: ClusterName = None,
) -> None:
    """Delete an account of access control 1.0; only an administrator may."""
    for address in await addresses_of(cluster, broker, cluster_name, replicas=True):
        await access.delete_account(cluster, address, access_key)
        text = f"delete plain access config account from {address} success."
        out.show(done(text, broker=address, accessKey=access_key))


@admin_command("clusterAclConfigVersion")
async def cluster_acl_config_version(
    cluster: Cluster, out: Output, broker: Broker = None, cluster_name: ClusterName = None
) -> None:
    """Show the version of the account files of access control 1.0."""
    columns = (
        Column("#Cluster Name", "clusterName"),
        Column("#Broker Name", "brokerName"),
        Column("#Broker Addr", "brokerAddr"),
        Column("#AclFileVersions", "versions"),
    )
    rows: list[tuple[Any, ...]] = []
    for address in await addresses_of(cluster, broker, cluster_name, replicas=True):
        found = await access.account_versions(cluster, address)
        rows.append((found.cluster_name, found.broker_name, found.broker_addr, found.all_acl_file_version))
    out.show(Report.of(Table("brokers", columns, rows)))


@admin_command("updateGlobalWhiteAddr")
async def update_global_white_addr(
    cluster: Cluster,
    out: Output,
    addresses: Annotated[str, option("-g --globalWhiteRemoteAddresses", "Addresses, separated by commas.")],
    path: Annotated[
        str | None, option("-p --aclFileFullPath", "The account file. Default: the main file.")
    ] = None,
    broker: Broker = None,
    cluster_name: ClusterName = None,
) -> None:
    """Set the addresses that need no account under access control 1.0; only an administrator may."""
    for address in await addresses_of(cluster, broker, cluster_name, replicas=True):
        await access.set_trusted_addresses(cluster, address, addresses, path)
        text = f"update global white remote addresses to {address} success."
        out.show(done(text, broker=address, addresses=_split(addresses)))
