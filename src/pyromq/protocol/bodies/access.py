"""Users and access lists."""

from pyromq.protocol.bodies.body import Body


class UserInfo(Body):
    """A user: `Super` or `Normal`, `enable` or `disable`."""

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
