"""A store with lite topics moves between Apache's broker and ours: both build them from the commit log."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.apache import ApacheBroker
from tests.support.apache_releases import APACHE_NEWEST, Release
from tests.support.broker_cluster import BrokerClient
from tests.support.own_broker import OwnBroker
from tests.support.own_nameserver import OwnNameServer

from pyromq.errors import Refused
from pyromq.protocol.names import lite_queue
from pyromq.protocol.properties import LITE_TOPIC
from pyromq.remoting.addresses import parse_address

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]

PARENT = "Sessions"
SETTINGS = {
    "enableLmq": "true",
    "enableMultiDispatch": "true",
    "mappedFileSizeCommitLog": str(1 << 20),
    "mappedFileSizeConsumeQueue": str(20 * 1000),
    "mappedFileSizeTimerLog": str(4096),
    "maxHashSlotNum": "100",
    "maxIndexNum": "400",
}


@contextlib.contextmanager
def running(kind: Release | None, root: Path, name_server: str) -> Iterator[ApacheBroker | OwnBroker]:
    if kind is not None:
        with ApacheBroker(kind, name_server, root, settings=SETTINGS) as broker:
            yield broker
    else:
        with OwnBroker(name_server, settings={**SETTINGS, "storePathRootDir": str(root)}) as broker:
            yield broker


async def send(client: BrokerClient, number: int, lite_topic: str) -> None:
    properties = {"UNIQ_KEY": f"{number:032X}", LITE_TOPIC: lite_topic}
    await client.send(b"m%d" % number, PARENT, properties=properties)


async def read(client: BrokerClient, lite_topic: str, count: int) -> list[bytes]:
    """The messages of a lite topic, once its queue has so many."""
    found: list[bytes] = []
    async with asyncio.timeout(120):
        while len(found) < count:
            with contextlib.suppress(Refused):  # the broker does not know the queue yet
                pulled = await client.pull(len(found), lite_queue(PARENT, lite_topic))
                found += [each.body for each in pulled.messages]
            await asyncio.sleep(0.1)
    return found


@pytest.mark.parametrize(
    ("first", "second"),
    [
        pytest.param(APACHE_NEWEST, None, id="5.5.0-to-ours"),
        pytest.param(None, APACHE_NEWEST, id="ours-to-5.5.0"),
    ],
)
async def test_lite_topics_move_with_the_commit_log(
    tmp_path: Path, first: Release | None, second: Release | None
) -> None:
    root = tmp_path / "store"
    with OwnNameServer() as names:
        with running(first, root, names.address) as broker:
            async with BrokerClient(parse_address(broker.address)) as client:
                await client.create_topic(PARENT, 1, attributes="+message.type=LITE")
                for number, name in enumerate(("a", "b", "a")):
                    await send(client, number, name)
                assert await read(client, "a", 2) == [b"m0", b"m2"]
            broker.terminate()
        if second is not None:
            # Apache's broker builds light queues only while it builds all queues.
            shutil.rmtree(root / "consumequeue")
        with running(second, root, names.address) as broker:
            async with BrokerClient(parse_address(broker.address)) as client:
                assert await read(client, "a", 2) == [b"m0", b"m2"]
                assert await read(client, "b", 1) == [b"m1"]
                await send(client, 3, "a")
                # It has the next offset: nothing was counted twice or forgotten.
                assert await read(client, "a", 3) == [b"m0", b"m2", b"m3"]
