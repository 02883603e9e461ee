"""Access control at the gRPC front: signatures as the official clients make them, the servers' rules."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Iterator

import grpc
import grpc.aio
import pytest
from tests.support.access import ALICE, user_creation
from tests.support.front import SharedFront, front_in_thread, user
from tests.support.front_user import CLIENT_TYPES, RPCS, FrontUser, Resource, Settings, TelemetryCommand

from pyromq.cluster.signing import signers
from pyromq.errors import Refused
from pyromq.proxy.messages import SERVICE
from pyromq.remoting.dialer import Dialer
from pyromq.security.signature import Credentials


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


async def test_a_signed_call_is_served(running: SharedFront, client: FrontUser) -> None:
    await running.create_topic("Guarded")
    client.sign("root", "rootsecret")
    assert await client.code("QueryRoute", topic=Resource(name="Guarded")) == "OK"
    assert (await client.publish("Guarded")).publishing.max_body_size > 0
    assert await client.code("SendMessage", messages=[client.message("Guarded")]) == "OK"


@pytest.mark.parametrize(("name", "secret"), [("root", "wrong"), ("nobody", "rootsecret"), ("", "")])
async def test_a_call_with_a_wrong_signature_is_refused(client: FrontUser, name: str, secret: str) -> None:
    client.sign(name, secret)
    assert await client.code("QueryRoute", topic=Resource(name="Guarded")) == "UNAUTHORIZED"


async def test_users_of_the_front_are_created_at_its_port(running: SharedFront, client: FrontUser) -> None:
    await running.create_topic("Guarded")
    client.sign(ALICE.access_key, ALICE.secret_key)
    assert await client.code("QueryRoute", topic=Resource(name="Guarded")) == "UNAUTHORIZED"
    administrator = Dialer(new_signer=signers(Credentials("root", "rootsecret")))
    for dialer in (nobody := Dialer(), administrator):
        with pytest.raises(Refused) if dialer is nobody else contextlib.nullcontext():
            await dialer.call(running.target, user_creation(ALICE), 5)
        await dialer.close()
    assert await client.code("QueryRoute", topic=Resource(name="Guarded")) == "OK"


async def outcome(client: FrontUser, rpc: str) -> str:
    try:
        return await client.code(rpc)
    except grpc.aio.AioRpcError as problem:
        return str(problem.code().name)


def end_of_stream(target: str) -> grpc.StatusCode:
    """The status of a telemetry stream that nobody signed. `grpc.aio` would not do: it reports INTERNAL,
    whatever the server said, if it had not finished its own write when the end came."""
    settings = Settings(client_type=CLIENT_TYPES["PRODUCER"])
    settings.publishing.SetInParent()
    with grpc.insecure_channel(target) as channel:
        stream = channel.stream_stream(
            f"/{SERVICE}/Telemetry", TelemetryCommand.SerializeToString, TelemetryCommand.FromString
        )(iter([TelemetryCommand(settings=settings)]), timeout=30)
        return stream.code()


async def test_no_rpc_is_served_without_a_signature(running: SharedFront, client: FrontUser) -> None:
    unary = [name for name, rpc in RPCS.items() if not (rpc.has_request_stream or rpc.has_answer_stream)]
    assert len(unary) > 10
    for rpc in unary:
        assert await outcome(client, rpc) in ("UNAUTHORIZED", "UNIMPLEMENTED"), rpc
    assert (await client.receive("g", "Guarded")).code == "UNAUTHORIZED"
    assert await asyncio.to_thread(end_of_stream, running.target) == grpc.StatusCode.UNAUTHENTICATED
