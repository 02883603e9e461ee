"""Access control at the gRPC front: signatures as the official clients make them, the servers' rules."""

import hashlib
import hmac
import json
from collections.abc import AsyncIterator, Iterator

import grpc
import grpc.aio
import pytest
from tests.support.front import FrontUser, Resource, SharedFront, front_in_thread, user

WHEN = "20261116T040000Z"


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SharedFront]:
    first = json.dumps({"username": "root", "password": "rootsecret"})
    settings = {
        "authentication": True,
        "first_user": first,
        "auth_config_path": tmp_path_factory.mktemp("access"),
    }
    with front_in_thread(settings=settings) as started:
        yield started


@pytest.fixture
async def client(running: SharedFront) -> AsyncIterator[FrontUser]:
    async with user(running.target) as joined:
        yield joined


def signed(client: FrontUser, name: str, secret: str, when: str = WHEN) -> None:
    """java: the signature is in upper case"""
    signature = hmac.new(secret.encode(), when.encode(), hashlib.sha1).hexdigest().upper()
    client.metadata += [
        ("x-mq-date-time", when),
        (
            "authorization",
            f"MQv2-HMAC-SHA1 Credential={name}, SignedHeaders=x-mq-date-time, Signature={signature}",
        ),
    ]


async def test_a_signed_call_is_served(running: SharedFront, client: FrontUser) -> None:
    await running.create_topic("Guarded")
    signed(client, "root", "rootsecret")
    assert await client.code("QueryRoute", topic=Resource(name="Guarded")) == "OK"
    assert (await client.publish("Guarded")).publishing.max_body_size > 0
    assert await client.code("SendMessage", messages=[client.message("Guarded")]) == "OK"


@pytest.mark.parametrize(("name", "secret"), [("root", "wrong"), ("nobody", "rootsecret"), ("", "")])
async def test_a_call_with_a_wrong_signature_is_refused(client: FrontUser, name: str, secret: str) -> None:
    signed(client, name, secret)
    assert await client.code("QueryRoute", topic=Resource(name="Guarded")) == "UNAUTHORIZED"


async def test_no_rpc_is_served_without_a_signature(client: FrontUser) -> None:
    unary = (
        "QueryRoute",
        "Heartbeat",
        "SendMessage",
        "QueryAssignment",
        "AckMessage",
        "ForwardMessageToDeadLetterQueue",
        "EndTransaction",
        "NotifyClientTermination",
        "ChangeInvisibleDuration",
        "RecallMessage",
    )
    for rpc in unary:
        assert await client.code(rpc) == "UNAUTHORIZED", rpc
    assert (await client.receive("g", "Guarded")).code == "UNAUTHORIZED"
    with pytest.raises(grpc.aio.AioRpcError):
        await client.publish("Guarded")
    # What was raised may be that the stream had ended before the settings could be written.
    assert await client.stream.code() == grpc.StatusCode.UNAUTHENTICATED
