"""What strangers and users with few rights try at a gRPC front, in this process and in a separate one.

The front asks brokers with its own rights, so whatever it passes on must be what its caller may do.
"""

import asyncio
import zlib
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any

import grpc.aio
import pytest
from tests.support.access import ROOT, SECURE, grant, user_creation
from tests.support.broker_cluster import message
from tests.support.front import Front, front, user
from tests.support.front_user import CODES, RPCS, FrontUser, Resource, aged_id
from tests.support.golden_frames import golden_frames
from tests.support.guarded_front import hostile_message
from tests.support.guarded_servers import BOB, RIGHTS
from tests.support.http2_peer import HELLO
from tests.support.replicas import until
from tests.support.server_programs import PROXY, Running
from tests.support.small_stores import read_queue
from tests.support.wire_client import WireClient

from pyromq.broker.broker import Broker
from pyromq.cluster.signing import signers
from pyromq.protocol.names import dlq_topic
from pyromq.protocol.record import StoredMessage, SysFlag
from pyromq.proxy.messages import SERVICE
from pyromq.remoting.dialer import Dialer
from pyromq.security.signature import Credentials
from pyromq.testing.clusters import aio_cluster

SECRET = b"what only others may read"
REFUSALS = {"UNAUTHORIZED", "UNAUTHENTICATED", "UNIMPLEMENTED"}


async def ask_as_root(address: str, *requests: Any) -> None:
    dialer = Dialer(new_signer=signers(ROOT))
    for request in requests:
        await dialer.call(address, request, 30)
    await dialer.close()


def stored(broker: Broker, topic: str) -> list[StoredMessage]:
    store = broker.store
    while store.has_dispatch_work:
        store.dispatch()
    return [each for queue_id in store.queues.ids(topic) for each in read_queue(store, topic, queue_id)]


@pytest.fixture
async def running(tmp_path: Path) -> AsyncIterator[Front]:
    """The front knows root, and Bob, a customer of the topic Orders."""
    settings = {**SECURE, "auth_config_path": tmp_path / "front", "min_polling_ms": 1}
    async with front(settings=settings, **SECURE) as started:
        await ask_as_root(started.target, user_creation(BOB), grant(BOB, *RIGHTS))
        for topic in ("Orders", "Secrets"):
            await started.create_topic(topic, queues=1)
        for group in ("shop", "vault"):
            await started.create_group(group)
        yield started


@asynccontextmanager
async def caller(target: str, who: Credentials, group: str, topic: str) -> AsyncIterator[FrontUser]:
    async with user(target, f"client of {who.access_key} in {group}") as joined:
        joined.sign(who.access_key, who.secret_key)
        await joined.subscribe(group, topic)
        yield joined


async def refusal(work: Any) -> str:
    answer = await work
    return CODES[answer.status.code]


async def test_handles_of_other_groups_are_of_no_use(running: Front) -> None:
    async with (
        caller(running.target, ROOT, "vault", "Secrets") as root,
        caller(running.target, BOB, "shop", "Orders") as bob,
    ):
        await root.send(root.message("Secrets", SECRET))
        (secret,) = (await root.receive("vault", "Secrets")).messages
        handle = {
            "receipt_handle": secret.system_properties.receipt_handle,
            "message_id": secret.system_properties.message_id,
        }
        named = {"group": Resource(name="vault"), "topic": Resource(name="Secrets")}
        for group, topic in (("vault", "Secrets"), ("vault", "Orders"), ("shop", "Secrets")):
            assert await refusal(bob.change(group, topic, secret, 10)) == "UNAUTHORIZED"
            of = {"group": Resource(name=group), "topic": Resource(name=topic)}
            assert await bob.code("AckMessage", **of, entries=[handle]) == "UNAUTHORIZED"
            assert await bob.code("ForwardMessageToDeadLetterQueue", **of, **handle) == "UNAUTHORIZED"
        assert await root.code("AckMessage", **named, entries=[handle]) == "OK"


async def test_a_handle_with_a_forged_offset_buries_no_message_of_another_topic(running: Front) -> None:
    """A dead letter of one's own group is readable: so would be any message of the log."""
    async with (
        caller(running.target, ROOT, "vault", "Secrets") as root,
        caller(running.target, BOB, "shop", "Orders") as bob,
    ):
        await root.send(root.message("Secrets", SECRET))
        await bob.send(bob.message("Orders", b"own"))
        (own,) = (await bob.receive("shop", "Orders")).messages
        broker = running.cluster.broker
        (secret,) = stored(broker, "Secrets")
        words = own.system_properties.receipt_handle.split(" ")

        async def bury(offset: int) -> str:
            return await bob.code(
                "ForwardMessageToDeadLetterQueue",
                group=Resource(name="shop"),
                topic=Resource(name="Orders"),
                receipt_handle=" ".join((*words[:-1], str(offset))),
                message_id=own.system_properties.message_id,
            )

        assert await bury(secret.log_offset) == "INVALID_RECEIPT_HANDLE"
        assert stored(broker, dlq_topic("shop")) == []
        assert await bury(int(words[-1])) == "OK"
        assert [each.body for each in stored(broker, dlq_topic("shop"))] == [b"own"]


async def test_a_body_that_is_not_what_its_flag_says_keeps_no_other_message_from_its_consumer(
    running: Front,
) -> None:
    """Who may send to a topic could stop all who read it."""
    bomb = zlib.compress(bytes(65 * 1024 * 1024), 9)
    bodies = (b"first", b"not compressed", bomb, b"last")
    async with caller(running.target, ROOT, "shop", "Orders") as reader:
        assert (await reader.receive("shop", "Orders", wait_s=0.01)).messages == []
        for body in bodies:
            is_odd = body in bodies[1:3]
            await running.ask_broker(message(body, "Orders", sys_flag=SysFlag.COMPRESSED if is_odd else 0))
        found: list[bytes] = []
        while len(found) < len(bodies):
            found += (await reader.receive("shop", "Orders")).bodies
    assert found == list(bodies)


# Many streams


def open_streams(started: Front) -> int:
    assert started.proxy._grpc is not None
    return started.proxy._grpc.open_calls()["Telemetry"]


async def end_of(client: FrontUser) -> str:
    """The status of a stream that the front has refused. It says why before anything is written."""
    stream = client._channel.stream_stream(f"/{SERVICE}/Telemetry")(metadata=client.metadata)
    with pytest.raises(grpc.aio.AioRpcError) as ended:
        await stream.read()
    return str(ended.value.code().name)


async def test_an_address_has_a_limited_number_of_streams_that_prove_nothing() -> None:
    exporter = {"metrics_exporter": "PROM", "metrics_port": 0}
    async with (
        front(settings={"max_streams_per_address": 2, **exporter}) as started,
        AsyncExitStack() as stack,
    ):
        joined = [
            await stack.enter_async_context(user(started.target, f"id-{number}")) for number in range(4)
        ]
        for client in joined[:2]:
            await client.publish()
        for _ in range(3):
            assert await end_of(joined[2]) == "RESOURCE_EXHAUSTED"
        joined[0].stream.cancel()
        await until(lambda: open_streams(started) == 1)
        await joined[3].publish()
        reader, writer = await asyncio.open_connection(*started.proxy.metrics_address)
        writer.write(b"GET /metrics HTTP/1.0\r\n\r\n")
        page = (await reader.read()).decode()
        writer.close()
        (line,) = [each for each in page.splitlines() if "Telemetry" in each and "RESOURCE_EXHAUSTED" in each]
        assert float(line.rpartition(" ")[2]) == 3


async def test_clients_that_prove_who_they_are_have_as_many_streams_as_they_want(tmp_path: Path) -> None:
    settings = {**SECURE, "auth_config_path": tmp_path / "front", "max_streams_per_address": 1}
    async with front(settings=settings, **SECURE) as started, AsyncExitStack() as stack:
        for number in range(3):
            client = await stack.enter_async_context(user(started.target, f"id-{number}"))
            client.sign(ROOT.access_key, ROOT.secret_key)
            await client.publish()
        assert open_streams(started) == 3


# A separate process


@asynccontextmanager
async def separate(home: Path, namesrv: str) -> AsyncIterator[Running]:
    """`mqproxy` under access control; this process has the name server and the broker."""
    keys = {
        "denyByDefault": "true",
        "initAuthenticationUser": SECURE["first_user"],
        "innerClientAuthenticationCredentials": SECURE["inner_credentials"],
        "authConfigPath": str(home / "access"),
        "bindAddress": "127.0.0.1",
    }
    options = [word for key, value in keys.items() for word in ("-o", f"{key}={value}")]
    manager = PROXY.running(home, "-n", namesrv, "--port", "0", "--log-dir", "", *options)
    proxy = await asyncio.to_thread(manager.__enter__)
    try:
        yield proxy
    finally:
        await asyncio.to_thread(manager.__exit__, None, None, None)


async def outcome(client: FrontUser, rpc: str, request: Any) -> str:
    fields = {field.name: value for field, value in request.ListFields()}
    try:
        return await client.code(rpc, **fields)
    except grpc.aio.AioRpcError as problem:
        return str(problem.code().name)


async def test_a_separate_proxy_under_attack_refuses_and_goes_on_serving(tmp_path: Path) -> None:
    random = Random(7)
    async with aio_cluster(**SECURE) as cluster, separate(tmp_path, cluster.namesrv) as proxy:
        target = proxy.boot["address"]
        await ask_as_root(target, user_creation(BOB), grant(BOB, *RIGHTS))
        address = proxy.boot["host"], int(proxy.boot["port"])
        before = cluster.broker.store.log.end
        # Strangers, thieves, and Bob where he has no rights.
        unary = [name for name, rpc in RPCS.items() if not (rpc.has_request_stream or rpc.has_answer_stream)]
        for who in (None, Credentials("bob", "a guess"), Credentials("nobody", "x"), BOB):
            async with user(target, aged_id(60)) as client:
                if who is not None:
                    client.sign(who.access_key, who.secret_key)
                if who is BOB:
                    sent = client.message("Secrets", SECRET)
                    assert await client.code("SendMessage", messages=[sent]) == "UNAUTHORIZED"
                    assert (await client.receive("vault", "Secrets")).code == "UNAUTHORIZED"
                    for rpc in (
                        "QueryRoute",
                        "RecallMessage",
                    ):  # there is no such topic: not even that is said
                        assert await client.code(rpc, topic=Resource(name="Secrets")) == "UNAUTHORIZED"
                    continue
                for rpc in unary:
                    request = hostile_message(RPCS[rpc].request_type, random)
                    assert await outcome(client, rpc, request) in REFUSALS, rpc
        # Bytes of the other protocol, of none, and of HTTP/2 that went wrong.
        recorded = [each.data for each in golden_frames() if each.to_server and not each.answer]
        for data in (*random.sample(recorded, 20), random.randbytes(4096), HELLO + random.randbytes(4096)):
            async with await WireClient.connect(address) as wire:
                wire.write(data)
                wire.end()
                await wire.wait_closed()
        assert cluster.broker.store.log.end == before
        assert proxy.process.poll() is None
        async with user(target, "id-2") as client:
            client.sign(ROOT.access_key, ROOT.secret_key)
            code = await client.code("QueryRoute", topic=Resource(name="Absent"))
            assert code == "TOPIC_NOT_FOUND"
        assert await asyncio.to_thread(proxy.stop) == 0
        assert "Traceback" not in proxy.stderr()
