"""A store with popped messages moves between Apache's broker and ours, also from one that was killed; our
consumer works with both."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.support.apache import ApacheBroker
from tests.support.apache_releases import APACHE_5, APACHE_NEWEST, Release
from tests.support.broker_cluster import BrokerClient
from tests.support.own_broker import OwnBroker
from tests.support.own_nameserver import OwnNameServer

from pyromq.cli.mqadmin.tree import mqadmin
from pyromq.client.consumer.reading.popping import PoppedMessage
from pyromq.client.consumer.simple import SimpleConsumer
from pyromq.errors import NoRoute
from pyromq.remoting.addresses import parse_address

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]

TOPIC, GROUP = "Popped", "billing"
SETTINGS = {
    "mappedFileSizeCommitLog": str(1 << 20),
    "mappedFileSizeConsumeQueue": str(20 * 1000),
    "mappedFileSizeTimerLog": str(4096),
    "maxHashSlotNum": "100",
    "maxIndexNum": "400",
    # What a broker popped after it last wrote its offsets, another one pops again if it was killed.
    "flushConsumerOffsetInterval": "1000",
}
IN_ROCKSDB = {"popConsumerKVServiceInit": "true", "popConsumerKVServiceEnable": "true"}
INVISIBLE_S = 25.0
"""Enough for one broker to stop and the other one to start."""


@contextlib.contextmanager
def running(
    kind: Release | None, root: Path, name_server: str, **settings: str
) -> Iterator[ApacheBroker | OwnBroker]:
    if kind is not None:
        with ApacheBroker(kind, name_server, root, settings=SETTINGS | settings) as broker:
            yield broker
    else:
        with OwnBroker(name_server, settings={**SETTINGS, "storePathRootDir": str(root)}) as broker:
            yield broker


async def received(consumer: SimpleConsumer, count: int, timeout_s: float) -> list[PoppedMessage]:
    found: list[PoppedMessage] = []
    async with asyncio.timeout(timeout_s):
        while len(found) < count:
            try:
                found += await consumer.receive(32, wait_s=2.0, invisible_s=INVISIBLE_S)
            except NoRoute:  # the broker runs, but has not registered yet
                await asyncio.sleep(0.2)
    return found


def export_pops(name_server: str, broker: str) -> None:
    words = ["exportPopRecord", "-n", name_server, "-b", broker, "--timeout", "60"]
    done = CliRunner().invoke(mqadmin, words)
    assert done.exit_code == 0, done.output
    assert f"brokerName=broker-a, brokerAddr={broker}, dryRun=false" in done.output


@pytest.mark.parametrize(
    ("first", "second", "settings", "is_killed"),
    [
        pytest.param(APACHE_5, None, {}, True, id="5.3.3-killed-to-ours"),
        pytest.param(None, APACHE_5, {}, False, id="ours-to-5.3.3"),
        pytest.param(APACHE_NEWEST, None, {}, False, id="5.5.0-to-ours"),
        pytest.param(APACHE_NEWEST, None, IN_ROCKSDB, False, id="5.5.0-with-pops-in-RocksDB-to-ours"),
        pytest.param(None, APACHE_NEWEST, {}, True, id="ours-killed-to-5.5.0"),
    ],
)
async def test_the_other_broker_revives_what_was_popped(
    tmp_path: Path,
    first: Release | None,
    second: Release | None,
    settings: Mapping[str, str],
    is_killed: bool,
) -> None:
    root = tmp_path / "store"
    with OwnNameServer() as names:
        with running(first, root, names.address, **settings) as broker:
            async with BrokerClient(parse_address(broker.address)) as client:
                await client.create_topic(TOPIC, 1)
                for number in range(3):
                    key = f"{number:032X}"
                    await client.send(b"m%d" % number, TOPIC, properties={"UNIQ_KEY": key})
            consumer = SimpleConsumer(GROUP, names.address, start_from="first")
            consumer.subscribe(TOPIC)
            async with consumer:
                popped = await received(consumer, 3, 30)
                popped_at = time.monotonic()
                await consumer.ack(popped[1])
                await consumer.change_invisible_time(popped[2], INVISIBLE_S)
            await asyncio.sleep(2.5)  # both write their checkpoints and offsets every second
            if settings:
                await asyncio.to_thread(export_pops, names.address, broker.address)
            if is_killed:
                broker.kill()
            else:
                broker.terminate()
            if settings:
                (root / "kvStore").rename(tmp_path / "kvStore")
        with running(second, root, names.address):
            consumer = SimpleConsumer(GROUP, names.address, start_from="first")
            consumer.subscribe(TOPIC)
            async with consumer:
                revived: list[bytes] = []
                while len(revived) < 2:
                    for message in await received(consumer, 1, INVISIBLE_S + 120):
                        await consumer.ack(message)
                        if message.reconsume_times == 0:
                            # Apache's broker with RocksDB stores the offset where its last pop began.
                            assert settings, message
                            continue
                        assert time.monotonic() - popped_at >= INVISIBLE_S - 1
                        assert message.reconsume_times == 1
                        revived.append(message.body)
                assert sorted(revived) == [b"m0", b"m2"]
