"""A store with waiting timed messages moves between Apache's broker and ours: each delivers for the other."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from tests.support.apache import ApacheBroker
from tests.support.apache_releases import APACHE_5
from tests.support.broker_cluster import PRODUCERS, BrokerClient
from tests.support.own_broker import OwnBroker
from tests.support.own_nameserver import OwnNameServer

from pyromq.protocol.record import StoredMessage
from pyromq.protocol.requests.inspection import GetBrokerRuntimeInfo
from pyromq.protocol.requests.sending import RecallMessage
from pyromq.remoting.addresses import parse_address

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]

TOPIC = "Later"
SETTINGS = {
    "mappedFileSizeCommitLog": str(1 << 20),
    "mappedFileSizeConsumeQueue": str(20 * 1000),
    "mappedFileSizeTimerLog": str(4096),
    "maxHashSlotNum": "100",
    "maxIndexNum": "400",
    "recallMessageEnable": "true",
}
WAITING = 100
"""More than a file of the timer log has room for."""
AHEAD_S = 45
"""Enough for one broker to stop and the other one to start."""


@contextlib.contextmanager
def running(kind: str, root: Path, name_server: str) -> Iterator[ApacheBroker | OwnBroker]:
    if kind == "apache":
        with ApacheBroker(APACHE_5, name_server, root, settings=SETTINGS) as broker:
            yield broker
    else:
        settings = {**SETTINGS, "storePathRootDir": str(root)}
        with OwnBroker(name_server, settings=settings) as broker:
            yield broker


async def figures(client: BrokerClient) -> Mapping[str, str]:
    return (await client.call(GetBrokerRuntimeInfo())).body.table


async def arrived(client: BrokerClient) -> list[StoredMessage]:
    found: list[StoredMessage] = []
    while len(more := (await client.pull(len(found), TOPIC)).messages):
        found += more
    return found


@pytest.mark.parametrize("stop", ["stopped", "killed"])
@pytest.mark.parametrize(("first", "second"), [("apache", "ours"), ("ours", "apache")])
async def test_the_other_broker_delivers_what_waits(
    tmp_path: Path, first: str, second: str, stop: str
) -> None:
    root = tmp_path / "store"
    with OwnNameServer() as names:
        with running(first, root, names.address) as broker:
            async with BrokerClient(parse_address(broker.address)) as client:
                await client.create_topic(TOPIC, 1)
                begin_ms = time.time_ns() // 1_000_000
                due: dict[bytes, int] = {}
                handles = {}
                for number in range(WAITING):
                    body = b"m%03d" % number
                    due[body] = begin_ms + AHEAD_S * 1000 + 37 * number
                    properties = {"TIMER_DELIVER_MS": str(due[body]), "UNIQ_KEY": f"{number:032X}"}
                    handles[body] = (await client.send(body, TOPIC, properties=properties)).recall_handle
                for body in (b"m010", b"m090"):
                    handle = handles[body]
                    assert handle is not None
                    await client.call(
                        RecallMessage(producer_group=PRODUCERS, topic=TOPIC, recall_handle=handle)
                    )
                    del due[body]
                await client.send(
                    b"early", TOPIC, properties={"TIMER_DELAY_MS": "1500", "UNIQ_KEY": "F" * 32}
                )
                while [message.body for message in await arrived(client)] != [b"early"]:
                    assert time.time_ns() // 1_000_000 < begin_ms + AHEAD_S * 1000, (
                        "the first one took too long"
                    )
                    await asyncio.sleep(0.1)
                while (await figures(client))["timerOffsetBehind"] != "0":  # noqa: ASYNC110
                    await asyncio.sleep(0.1)
                await asyncio.sleep(2.5)  # both write their checkpoints every second
            broker.kill() if stop == "killed" else broker.terminate()
        if first == "apache" and stop == "stopped" and (keep := os.environ.get("KEEP_TIMERS")):
            shutil.copytree(root, keep)
        with running(second, root, names.address) as broker:
            async with BrokerClient(parse_address(broker.address)) as client:
                end_ms = max(due.values()) + 1000
                await asyncio.sleep(max(end_ms + 3000 - time.time_ns() // 1_000_000, 0) / 1000)
                messages = await arrived(client)
                bodies = [message.body for message in messages]
                if (second, stop) == ("apache", "killed"):
                    # Apache's broker takes in the whole queue once more after a crash, its own ones, too.
                    assert set(bodies) == {*due, b"early"}
                    return
                assert sorted(bodies[1:]) == sorted(due)
                for message in messages[1:]:
                    late_ms = message.store_timestamp - due[message.body]
                    assert late_ms >= 0
                    if second == "ours":
                        # In the order of their times, which Apache's broker keeps to the second.
                        assert bodies[1:] == sorted(due)
                    assert message.get("TIMER_OUT_MS") is not None
                    assert message.get("TIMER_DEQUEUE_MS") is not None
                    assert message.get("REAL_TOPIC") == TOPIC
