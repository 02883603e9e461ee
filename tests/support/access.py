"""Servers with access control, and the users who speak to them."""

import json
from collections.abc import Mapping
from typing import Any

from tests.support.broker_cluster import BrokerClient

from pyromq.protocol.catalogue import Request
from pyromq.protocol.codes import ResponseCode
from pyromq.protocol.frame import HeaderForm
from pyromq.protocol.requests.access import (
    AclInfo,
    CreateAcl,
    CreateUser,
    PolicyEntryInfo,
    PolicyInfo,
    UserInfo,
)
from pyromq.security.signature import Credentials

ROOT = Credentials("root", "the password of root")
SERVER = Credentials("server", "the password of servers")
ALICE = Credentials("alice", "the password of alice")
WRONG = Credentials("alice", "not the password of alice")

SECURE: Mapping[str, Any] = {
    "deny_by_default": True,
    "first_user": json.dumps({"username": ROOT.access_key, "password": ROOT.secret_key}),
    "inner_credentials": json.dumps({"accessKey": SERVER.access_key, "secretKey": SERVER.secret_key}),
}
"""Settings of a server that only its users may speak to."""


def client(
    address: tuple[str, int], credentials: Credentials | None = None, form: int = HeaderForm.JSON, **more: Any
) -> BrokerClient:
    return BrokerClient(address, form, credentials=credentials, **more)


def user_creation(user: Credentials, user_type: str = "Normal") -> CreateUser:
    return CreateUser(username=user.access_key, body=UserInfo(password=user.secret_key, user_type=user_type))


def grant(user: Credentials, *rights: str) -> CreateAcl:
    """`Pub,Sub on Topic:orders*`, with `not` in front to deny."""
    entries = []
    for right in rights:
        actions, _, resource = right.removeprefix("not ").partition(" on ")
        decision = "Deny" if right.startswith("not ") else "Allow"
        entries.append(PolicyEntryInfo(resource=resource, actions=actions.split(","), decision=decision))
    policies = [PolicyInfo(policy_type="Custom", entries=entries)]
    return CreateAcl(subject=f"User:{user.access_key}", body=AclInfo(policies=policies))


async def is_refused(asking: BrokerClient, request: Request[Any]) -> bool:
    return (await asking.refusal(request)).code == ResponseCode.NO_PERMISSION
