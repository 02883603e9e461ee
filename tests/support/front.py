"""A cluster with a gRPC front, and C-core's client calling it as RocketMQ's own clients do."""

import asyncio
import threading
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from typing import Any

import grpc
import grpc.aio
from tests.support.front_user import FrontUser

from pyromq.client.consumer.pull import PullConsumer
from pyromq.cluster.signing import signers
from pyromq.protocol.requests.groups import CreateOrUpdateGroup, SubscriptionGroupConfig
from pyromq.protocol.requests.topics import CreateOrUpdateTopic
from pyromq.proxy.proxy import Proxy
from pyromq.proxy.settings import ProxySettings
from pyromq.remoting.dialer import Dialer
from pyromq.standalone import Standalone
from pyromq.testing.clusters import aio_cluster


class Front:
    def __init__(self, cluster: Standalone, proxy: Proxy) -> None:
        self.cluster = cluster
        self.proxy = proxy
        self._dialer = Dialer(new_signer=signers(proxy.settings.credentials))

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
