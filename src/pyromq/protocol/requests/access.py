"""Users, their access lists, and the access file of 4.x."""

from pyromq.protocol.body import Body
from pyromq.protocol.catalogue import BROKER, CONTROLLER, NAMESERVER, Answer, BodyAnswer, Request, request
from pyromq.protocol.needs import GET, UPDATE, cluster

_SERVERS = BROKER | NAMESERVER | CONTROLLER
"""java: only brokers; here every server has users"""


class UserInfo(Body):
    """A user: `Super` or `Normal`, `enable` or `disable`."""

    # Quotas; only PyroMQ's servers have them. A change names those that change, 0 ends one.
    attributes: dict[str, str] | None = None
    # Accepted besides the password. Only PyroMQ's servers have it; empty in a change: it ends.
    old_password: str | None = None
    password: str | None = None
    user_status: str | None = None
    user_type: str | None = None
    username: str | None = None


class PolicyEntryInfo(Body):
    """`Allow` or `Deny` for actions on one resource, from some addresses."""

    actions: list[str] | None = None
    decision: str | None = None
    resource: str | None = None
    source_ips: list[str] | None = None


class PolicyInfo(Body):
    """A `Custom` or `Default` policy."""

    entries: list[PolicyEntryInfo] | None = None
    policy_type: str | None = None


class AclInfo(Body):
    """The policies of one subject, which is written `User:name`."""

    policies: list[PolicyInfo] | None = None
    subject: str | None = None


class AccessTable(Body):
    """All users, with their passwords, and all access lists: for the file of a server, and for replicas."""

    acls: list[AclInfo] = []
    # Where the master's file is; a replica that uses the same one has nothing to copy.
    place: str | None = None
    users: list[UserInfo] = []


@request(3001, to=_SERVERS, needs=(cluster(UPDATE),), java_name="auth_create_user")
class CreateUser(Request[Answer]):
    """Create a user."""

    username: str | None = None
    body: UserInfo


@request(3002, to=_SERVERS, needs=(cluster(UPDATE),), java_name="auth_update_user")
class UpdateUser(Request[Answer]):
    """Change a user's password, type or status."""

    username: str | None = None
    body: UserInfo


@request(3003, to=_SERVERS, needs=(cluster(UPDATE),), java_name="auth_delete_user")
class DeleteUser(Request[Answer]):
    """Delete a user."""

    username: str | None = None


@request(3004, to=_SERVERS, needs=(cluster(GET),), java_name="auth_get_user")
class GetUser(Request[BodyAnswer[UserInfo | None]]):
    """Read one user."""

    username: str | None = None


@request(3005, to=_SERVERS, needs=(cluster(GET),), java_name="auth_list_user")
class ListUsers(Request[BodyAnswer[list[UserInfo] | None]]):
    """List the users whose name contains a text."""

    filter: str | None = None


@request(3006, to=_SERVERS, needs=(cluster(UPDATE),), java_name="auth_create_acl")
class CreateAcl(Request[Answer]):
    """Create the access list of a subject."""

    subject: str | None = None
    body: AclInfo


@request(3007, to=_SERVERS, needs=(cluster(UPDATE),), java_name="auth_update_acl")
class UpdateAcl(Request[Answer]):
    """Change the access list of a subject."""

    subject: str | None = None
    body: AclInfo


@request(3008, to=_SERVERS, needs=(cluster(UPDATE),), java_name="auth_delete_acl")
class DeleteAcl(Request[Answer]):
    """Delete the access list of a subject, or one resource of it."""

    subject: str | None = None
    policy_type: str | None = None
    resource: str | None = None


@request(3009, to=_SERVERS, needs=(cluster(GET),), java_name="auth_get_acl")
class GetAcl(Request[BodyAnswer[AclInfo | None]]):
    """Read the access list of a subject."""

    subject: str | None = None


@request(3010, to=_SERVERS, needs=(cluster(GET),), java_name="auth_list_acl")
class ListAcls(Request[BodyAnswer[list[AclInfo] | None]]):
    """List the access lists that match a subject and a resource."""

    subject_filter: str | None = None
    resource_filter: str | None = None


@request(50, to=BROKER, needs=(cluster(UPDATE),), java_name="update_and_create_acl_config")
class PutAccessConfig(Request[Answer]):
    """Create or change an account in the access file of 4.x."""

    access_key: str
    secret_key: str | None = None
    white_remote_address: str | None = None
    admin: bool = False
    default_topic_perm: str | None = None
    default_group_perm: str | None = None
    topic_perms: str | None = None
    group_perms: str | None = None


@request(51, to=BROKER, needs=(cluster(UPDATE),), java_name="delete_acl_config")
class DeleteAccessConfig(Request[Answer]):
    """Delete an account from the access file of 4.x."""

    access_key: str


class GetAccessConfigVersionAnswer(Answer):
    version: str
    all_acl_file_version: str | None = None
    broker_name: str
    broker_addr: str
    cluster_name: str


@request(52, to=BROKER, needs=(cluster(GET),), java_name="get_broker_cluster_acl_info")
class GetAccessConfigVersion(Request[GetAccessConfigVersionAnswer]):
    """Read which version of the access file of 4.x a broker has loaded."""


@request(53, to=BROKER, needs=(cluster(UPDATE),), java_name="update_global_white_addrs_config")
class UpdateTrustedAddresses(Request[Answer]):
    """Change the addresses that need no account in the access file of 4.x."""

    global_white_addrs: str
    # java: mandatory since 4.9.3, unknown before
    acl_file_full_path: str | None = None
