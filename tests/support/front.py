"""A cluster with a gRPC front, and C-core's client calling it as RocketMQ's own clients do."""

import asyncio
import hashlib
import hmac
import threading
import time
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from typing import Any, NamedTuple

import grpc
import grpc.aio

from pyromq.client.consumer.pull import PullConsumer
from pyromq.cluster.signing import signer
from pyromq.protocol.bodies.groups import SubscriptionGroupConfig
from pyromq.protocol.requests.groups import CreateOrUpdateGroup
from pyromq.protocol.requests.topics import CreateOrUpdateTopic
from pyromq.proxy.messages import SERVICE, enum_values, message, rpc_types
from pyromq.proxy.proxy import Proxy
from pyromq.proxy.settings import ProxySettings
from pyromq.remoting.dialer import Dialer
from pyromq.standalone import Standalone
from pyromq.testing.clusters import aio_cluster

CODES = {number: name for name, number in enum_values("Code").items()}
MESSAGE_TYPES = enum_values("MessageType")
CLIENT_TYPES = enum_values("ClientType")
RPCS = rpc_types()

Resource = message("Resource")
Message = message("Message")
Settings = message("Settings")
TelemetryCommand = message("TelemetryCommand")


class Front:
    def __init__(self, cluster: Standalone, proxy: Proxy) -> None:
        self.cluster = cluster
        self.proxy = proxy
        self._dialer = Dialer(before_send=signer(proxy.settings.credentials))

    @property
    def target(self) -> str:
        return f"127.0.0.1:{self.proxy.address[1]}"

    async def ask_broker(self, request: Any) -> Any:
        return await self._dialer.call(self.cluster.broker.advertised_address, request, 5)

    async def create_topic(self, topic: str, kind: str = "NORMAL", queues: int = 4) -> None:
        await self.ask_broker(
            CreateOrUpdateTopic(
                topic=topic,
                default_topic="TBW102",
                read_queue_nums=queues,
                write_queue_nums=queues,
                perm=6,
                topic_filter_type="SINGLE_TAG",
                attributes=f"+message.type={kind}",
            )
        )

    async def create_group(self, group: str, **settings: Any) -> None:
        body = SubscriptionGroupConfig(group_name=group, **settings)
        await self.ask_broker(CreateOrUpdateGroup(body=body))

    async def restart_broker(self) -> None:
        await self.cluster.stop_broker()
        await self.cluster.start_broker()

    async def restart_proxy(self) -> None:
        """Another front on the same port."""
        settings = replace(self.proxy.settings, listen_port=self.proxy.address[1])
        await self.proxy.stop()
        self.proxy = Proxy(settings, in_process=self.proxy.in_process)
        await self.proxy.start()

    async def close(self) -> None:
        await self._dialer.close()
        await self.proxy.stop()


class SharedFront:
    """What tests on other loops may use of a front."""

    def __init__(self, target: str, namesrv: str, running: Front, loop: asyncio.AbstractEventLoop) -> None:
        self.target = target
        self.namesrv = namesrv
        self._running = running
        self._loop = loop

    async def _there(self, work: Coroutine[Any, Any, Any]) -> Any:
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._loop))

    async def ask_broker(self, request: Any) -> Any:
        return await self._there(self._running.ask_broker(request))

    async def create_topic(self, topic: str, kind: str = "NORMAL", queues: int = 4) -> None:
        await self._there(self._running.create_topic(topic, kind, queues))

    async def restart_broker(self) -> None:
        await self._there(self._running.restart_broker())

    async def restart_proxy(self) -> None:
        await self._there(self._running.restart_proxy())

    async def create_group(self, group: str, **settings: Any) -> None:
        await self._there(self._running.create_group(group, **settings))


@asynccontextmanager
async def front(
    *, settings: dict[str, Any] | None = None, beside: bool = False, **broker: Any
) -> AsyncIterator[Front]:
    """`beside`: the front calls its broker in the process, without a socket."""
    async with aio_cluster(**broker) as cluster:
        chosen: dict[str, Any] = {
            "listen_port": 0,
            "bind_address": "127.0.0.1",
            "namesrv_addr": cluster.namesrv,
            "shutdown_wait_seconds": 1,
            "log_dir": None,
        }
        find = (lambda address: cluster.broker.server_at(address)) if beside else None
        async with Proxy(ProxySettings(**chosen | (settings or {})), in_process=find) as proxy:
            running = Front(cluster, proxy)
            try:
                yield running
            finally:
                await running.close()


@contextmanager
def front_in_thread(*, settings: dict[str, Any] | None = None, **broker: Any) -> Iterator[SharedFront]:
    """A front on a thread of its own, which the tests of a file share."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="front", daemon=True)
    thread.start()

    def run(work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, loop).result(60)

    manager = front(settings=settings, **broker)
    try:
        running = run(manager.__aenter__())
        try:
            yield SharedFront(running.target, running.cluster.namesrv, running, loop)
        finally:
            run(manager.__aexit__(None, None, None))
            run(loop.shutdown_default_executor())
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


class Received(NamedTuple):
    code: str
    messages: list[Any]

    @property
    def bodies(self) -> list[bytes]:
        return [each.body for each in self.messages]


def _of(group: str, topic: str) -> dict[str, Any]:
    return {"group": Resource(name=group), "topic": Resource(name=topic)}


def _entry(received: Any) -> dict[str, str]:
    system = received.system_properties
    return {"message_id": system.message_id, "receipt_handle": system.receipt_handle}


class FrontUser:
    """One client: its id, its stream, its calls."""

    def __init__(self, channel: grpc.aio.Channel, client_id: str) -> None:
        self._channel = channel
        self.client_id = client_id
        self.metadata = [
            ("x-mq-client-id", client_id),
            ("x-mq-language", "PYTHON"),
            ("x-mq-client-version", "5.1.2"),
            ("x-mq-protocol", "v2"),
        ]

    def sign(self, name: str, secret: str, when: str | None = None) -> None:
        """Sign all calls from now on. java: the signature is in upper case, and the time is local."""
        when = when or time.strftime("%Y%m%dT%H%M%SZ")
        signature = hmac.new(secret.encode(), when.encode(), hashlib.sha1).hexdigest().upper()
        parts = f"Credential={name}, SignedHeaders=x-mq-date-time, Signature={signature}"
        self.metadata += [("x-mq-date-time", when), ("authorization", f"MQv2-HMAC-SHA1 {parts}")]

    async def call(self, rpc: str, *, timeout: float = 10, **fields: Any) -> Any:
        types = RPCS[rpc]
        stub = self._channel.unary_unary(
            f"/{SERVICE}/{rpc}", types.request_type.SerializeToString, types.answer_type.FromString
        )
        return await stub(types.request_type(**fields), metadata=self.metadata, timeout=timeout)

    async def code(self, rpc: str, **fields: Any) -> str:
        return CODES[(await self.call(rpc, **fields)).status.code]

    def message(self, topic: str, body: bytes = b"body", **system: Any) -> Any:
        system.setdefault("message_id", f"01{len(body):032X}")
        system.setdefault("message_type", MESSAGE_TYPES["NORMAL"])
        sent = Message(topic=Resource(name=topic), body=body)
        sent.user_properties.update(system.pop("properties", {}))
        deliver_ms = system.pop("deliver_ms", None)
        for name, value in system.items():
            if name == "keys":
                sent.system_properties.keys.extend(value)
            else:
                setattr(sent.system_properties, name, value)
        sent.system_properties.born_timestamp.GetCurrentTime()
        if deliver_ms is not None:
            sent.system_properties.delivery_timestamp.FromMilliseconds(deliver_ms)
        return sent

    async def send(self, *messages: Any) -> Any:
        return await self.call("SendMessage", messages=messages)

    async def receive(self, group: str, topic: str, *, invisible_s: int = 30, **options: Any) -> "Received":
        """One receive; with `wait_s` it waits for so long, else for as long as it must."""
        types = RPCS["ReceiveMessage"]
        wait_s = options.pop("wait_s", 5)
        request = types.request_type(batch_size=options.pop("batch_size", 32))
        request.group.name, request.message_queue.topic.name = group, topic
        request.long_polling_timeout.FromMilliseconds(int(wait_s * 1000))
        expression = options.pop("expression", "*")
        request.filter_expression.type = options.pop("filter_type", 1)
        request.filter_expression.expression = expression
        if options.pop("auto_renew", False):
            request.auto_renew = True
        else:
            request.invisible_duration.seconds = invisible_s
        request.attempt_id = options.pop("attempt_id", "")
        timeout = options.pop("timeout", wait_s + 10)
        stub = self._channel.unary_stream(
            f"/{SERVICE}/ReceiveMessage", types.request_type.SerializeToString, types.answer_type.FromString
        )
        frames = [each async for each in stub(request, metadata=self.metadata, timeout=timeout)]
        kinds = [each.WhichOneof("content") for each in frames]
        if len(frames) > 1:
            assert kinds == ["status", *["message"] * (len(frames) - 2), "delivery_timestamp"], kinds
        return Received(CODES[frames[0].status.code], [each.message for each in frames[1:-1]])

    async def ack(self, group: str, topic: str, *messages: Any) -> Any:
        answer = await self.call(
            "AckMessage", **_of(group, topic), entries=[_entry(each) for each in messages]
        )
        return [CODES[each.status.code] for each in answer.entries]

    async def change(self, group: str, topic: str, message: Any, seconds: int) -> Any:
        """Change the invisible time; returns the answer."""
        return await self.call(
            "ChangeInvisibleDuration",
            **_of(group, topic),
            receipt_handle=message.system_properties.receipt_handle,
            message_id=message.system_properties.message_id,
            invisible_duration={"seconds": seconds},
        )

    # The stream

    async def open_stream(self, settings: Any) -> Any:
        """Send settings and return the answer."""
        self.stream = self._channel.stream_stream(
            f"/{SERVICE}/Telemetry", TelemetryCommand.SerializeToString, TelemetryCommand.FromString
        )(metadata=self.metadata)
        await self.stream.write(TelemetryCommand(settings=settings))
        return (await self.stream.read()).settings

    async def answer(self, nonce: str, *, stack: str) -> None:
        command = TelemetryCommand()
        command.thread_stack_trace.nonce, command.thread_stack_trace.thread_stack_trace = nonce, stack
        await self.stream.write(command)

    async def publish(self, *topics: str) -> Any:
        settings = Settings(client_type=CLIENT_TYPES["PRODUCER"])
        settings.publishing.topics.extend([Resource(name=topic) for topic in topics])
        if not topics:
            settings.publishing.SetInParent()
        return await self.open_stream(settings)

    async def subscribe(
        self, group: str, *topics: str, kind: str = "SIMPLE_CONSUMER", expression: str = "*"
    ) -> Any:
        settings = Settings(client_type=CLIENT_TYPES[kind])
        settings.subscription.group.name = group
        for topic in topics:
            entry = settings.subscription.subscriptions.add()
            entry.topic.name = topic
            entry.expression.type, entry.expression.expression = 1, expression
        return await self.open_stream(settings)


@asynccontextmanager
async def user(
    target: str, client_id: str = "test@1@0@abc", *, trusted: bytes | None = None
) -> AsyncIterator[FrontUser]:
    """With `trusted`, a certificate, it speaks TLS."""
    channel = (
        grpc.aio.insecure_channel(target)
        if trusted is None
        else grpc.aio.secure_channel(target, grpc.ssl_channel_credentials(trusted))
    )
    async with channel:
        yield FrontUser(channel, client_id)


async def read_all(namesrv: str, topic: str, count: int) -> list[Any]:
    """The first messages of a topic, by a client that speaks the other protocol."""
    found: list[Any] = []
    async with PullConsumer("reader", namesrv, start_from="first") as consumer:
        consumer.subscribe(topic)
        while len(found) < count:
            found += await consumer.poll(timeout_s=5)
    return found
