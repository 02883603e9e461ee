"""Metrics of a running broker, scraped over HTTP while clients use it."""

import asyncio
import re
from pathlib import Path
from typing import Literal

import pytest

from pyromq.errors import StateError
from pyromq.protocol.properties import encode_properties
from pyromq.protocol.requests.pulling import PullMessage
from pyromq.protocol.requests.sending import SendMessageV2
from pyromq.remoting.dialer import Dialer
from pyromq.testing import aio_cluster

TIMEOUT_S = 60.0
MESSAGES = 5


async def page(address: tuple[str, int], path: str) -> tuple[int, str]:
    reader, writer = await asyncio.open_connection(*address)
    writer.write(f"GET {path} HTTP/1.1\r\nHost: broker\r\nConnection: close\r\n\r\n".encode())
    head, _, body = (await reader.read()).decode().partition("\r\n\r\n")
    writer.close()
    await writer.wait_closed()
    return int(head.split()[1]), body


def send(number: int) -> SendMessageV2:
    return SendMessageV2(
        producer_group="tills",
        topic="Orders",
        default_topic="TBW102",
        default_topic_queue_nums=1,
        queue_id=0,
        sys_flag=0,
        born_timestamp=0,
        flag=0,
        properties=encode_properties({"UNIQ_KEY": f"{number:032X}"}),
        body=b"x" * 100,
    )


@pytest.mark.parametrize("flush", ["async", "sync"])
async def test_what_clients_do_is_seen_in_the_metrics(
    tmp_path: Path, flush: Literal["async", "sync"]
) -> None:
    async with aio_cluster(tmp_path, flush=flush, metrics_exporter="PROM", metrics_port=0) as cluster:
        address, dialer = cluster.broker.advertised_address, Dialer()
        for number in range(MESSAGES):
            await dialer.call(address, send(number), TIMEOUT_S)
        pull = PullMessage(
            consumer_group="shop",
            topic="Orders",
            queue_id=0,
            queue_offset=0,
            max_msg_nums=32,
            sys_flag=4,
            commit_offset=0,
            suspend_timeout_millis=0,
            subscription="*",
            sub_version=0,
        )
        await dialer.call(address, pull, TIMEOUT_S)
        assert await page(cluster.broker.metrics_address, "/ready") == (200, "ready\n")
        status, text = await page(cluster.broker.metrics_address, "/status")
        assert status == 200
        assert re.search(r"^halfMessageCount +: 0\nhalfMessageOldestAgeMs +: 0\n", text, re.MULTILINE), text
        status, text = await page(cluster.broker.metrics_address, "/metrics")
        await dialer.close()
    assert status == 200
    for name, label in (
        ("rocketmq_messages_in_total", 'topic="Orders"'),
        ("rocketmq_messages_out_total", 'consumer_group="shop"'),
        ("rocketmq_message_size_count", 'topic="Orders"'),
        ("rocketmq_rpc_latency_milliseconds_count", 'request_code="send_message_v2"'),
    ):
        (count,) = re.findall(rf"^{name}\{{[^}}]*{label}[^}}]*\}} (\S+)$", text, re.MULTILINE)
        assert float(count) == MESSAGES, name


async def test_nothing_is_served_unless_asked_for(tmp_path: Path) -> None:
    async with aio_cluster(tmp_path) as cluster:
        with pytest.raises(StateError, match="metrics are off"):
            _ = cluster.broker.metrics_address
