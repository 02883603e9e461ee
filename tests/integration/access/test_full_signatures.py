"""All clients and servers sign fully: a cluster that requires it, and takes nobody for a neighbour, works."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.support.access import ROOT, SECURE, WRONG
from tests.support.replicas import until

import pyromq
from pyromq import Message, aio
from pyromq.admin import topics
from pyromq.admin.cluster import Cluster
from pyromq.errors import Refused
from pyromq.protocol.frame import HeaderForm
from pyromq.protocol.requests.offsets import GetMaxOffset
from pyromq.remoting.blocking_link import Link
from pyromq.spark.links import link_options
from pyromq.spark.options import Access
from pyromq.standalone import Standalone, StandaloneSettings
from pyromq.testing.clusters import on_held_ports

TOPIC = "Orders"
STRICT: dict[str, Any] = {**SECURE, "require_full_signature": True}


@pytest.fixture(autouse=True)
def _far_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pyromq.remoting.connection.is_loopback", lambda _: False)
    monkeypatch.setattr("pyromq.remoting.connection.host_of", lambda address: address)  # never the same


@asynccontextmanager
async def strict(directory: Path, replicas: int = 1, **more: Any) -> AsyncIterator[Standalone]:
    settings = StandaloneSettings(
        store=directory,
        replicas=replicas,
        servers={**STRICT, **more},
        broker={"auto_create_topics": True},
        store_settings={"log_segment_bytes": 1 << 20, "index_slots": 100, "index_units": 400},
    )
    with on_held_ports(settings) as settled:
        async with Standalone(settled) as running:
            yield running


async def test_servers_work_together(tmp_path: Path) -> None:
    """Registrations, elections, tables and the log: none of it needs another setting."""
    async with strict(tmp_path, replicas=2) as running:
        await running.wait_in_sync()
        replica = running.brokers[1 - running.master_number()]
        async with aio.Producer("shop", running.namesrv, credentials=ROOT) as producer:
            await producer.send(Message(TOPIC, b"paid"))
        await running.kill_master()
        await until(lambda: replica.role.now.is_master)


@pytest.mark.parametrize("form", list(HeaderForm))
async def test_asyncio_clients(tmp_path: Path, form: HeaderForm) -> None:
    options: dict[str, Any] = {"credentials": ROOT, "form": form}
    async with strict(tmp_path) as running:
        async with aio.Producer("shop", running.namesrv, **options) as producer:
            for number in range(20):
                await producer.send(Message(TOPIC, b"%d" % number))
        consumer = aio.PullConsumer("billing", running.namesrv, start_from="first", **options)
        async with consumer:
            consumer.subscribe(TOPIC)
            seen: set[bytes] = set()
            while len(seen) < 20:
                seen |= {message.body for message in await consumer.poll(0.2)}


async def test_blocking_clients_and_those_of_spark(tmp_path: Path) -> None:
    async with strict(tmp_path) as running:

        def work() -> int:
            with pyromq.Producer("shop", running.namesrv, credentials=ROOT) as producer:
                for _ in range(5):
                    found = producer.send(Message(TOPIC, b"paid"))
            access = Access((running.namesrv,), ROOT.access_key, ROOT.secret_key)
            link = Link(running.broker.advertised_address, link_options(access))
            try:
                asked = [GetMaxOffset(topic=TOPIC, queue_id=found.queue.queue_id)] * 5
                return max(each.offset for each in link.call_all(asked) if not isinstance(each, Refused))
            finally:
                link.close()

        assert await asyncio.to_thread(work) > 0


async def test_administrators_if_they_are_allowed_to(tmp_path: Path) -> None:
    async with (
        strict(tmp_path, allow_admin_without_tls=True) as running,
        Cluster(running.namesrv, credentials=ROOT) as cluster,
    ):
        assert await topics.names(cluster)
    async with (
        strict(tmp_path / "2") as running,
        Cluster(running.namesrv, credentials=ROOT) as cluster,
    ):
        with pytest.raises(Refused, match=r"GetAllTopics is refused without TLS.*allowAdminWithoutTls"):
            await topics.names(cluster)


async def test_a_wrong_key_is_still_a_wrong_key(tmp_path: Path) -> None:
    async with (
        strict(tmp_path) as running,
        aio.Producer("shop", running.namesrv, credentials=WRONG) as producer,
    ):
        with pytest.raises(Refused, match="Check signature failed for accessKey=alice"):
            await producer.send(Message(TOPIC, b"paid"))
