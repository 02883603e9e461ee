"""What brokers are told of a client: what it is now, and nothing of what it was."""

from types import SimpleNamespace
from typing import Any, cast

from pyromq.clock import SystemClock
from pyromq.proxy.client_settings import Settings
from pyromq.proxy.clients import FrontClient
from pyromq.proxy.membership import ProxyMembership


class Broker:
    """The brokers, the way to them, and the front's own session with them."""

    def __init__(self) -> None:
        self.session = self
        self.new_signer = self.in_process = None
        self.settings = SimpleNamespace(tls=None, connect_timeout_s=1)
        self.producers: set[str] = set()
        self.consumers: set[str] = set()

    async def route(self, topic: str) -> Any:
        return SimpleNamespace(brokers={"broker-a": {0: "a:1"}})

    def add_producer(self, group: str, member: Any) -> None:
        self.producers.add(group)

    async def remove_producer(self, group: str, member: Any) -> None:
        self.producers.discard(group)

    def keep_connected(self, member: Any) -> None:
        pass

    async def heartbeat_now(self) -> None:
        pass

    def dialer(self, *_: object, **__: object) -> Any:
        async def call(address: str, request: Any, timeout_s: float) -> None:
            self.consumers.add(request.body.client_id)

        async def close() -> None:
            self.consumers.clear()

        return SimpleNamespace(call=call, close=close)


def _settings(*, publishes: bool) -> Any:
    settings = Settings()
    if publishes:
        settings.publishing.topics.add(name="Orders")
    else:
        settings.subscription.group.name = "billing"
        settings.subscription.subscriptions.add().topic.name = "Orders"
    return settings


async def test_a_client_is_a_producer_or_a_consumer_and_never_both() -> None:
    broker = Broker()
    membership = ProxyMembership(
        cast(Any, broker),
        cast(Any, None),
        SystemClock(),
        timeout_s=1,
        relay_timeout_s=1,
        new_dialer=cast(Any, broker.dialer),
    )
    metadata = SimpleNamespace(get=lambda name: "client-1")
    client = FrontClient(cast(Any, SimpleNamespace(metadata=metadata, user="", peer_address="")), None)
    for publishes in (True, False, True):
        client.settings = _settings(publishes=publishes)
        membership.join(client)
        await membership.settled()
        assert broker.producers == ({"Orders"} if publishes else set())
        assert broker.consumers == (set() if publishes else {"client-1"})
    await membership.close()
    assert not broker.producers | broker.consumers
