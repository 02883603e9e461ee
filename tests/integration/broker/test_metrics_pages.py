"""What Prometheus reads of a broker that operators work on: who waits, and how long creations took."""

import asyncio
import re
import urllib.request
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.support.broker_cluster import Bench, topic_creation

from pyromq.protocol.frame import HeaderForm
from pyromq.protocol.requests.groups import CreateOrUpdateGroup, SubscriptionGroupConfig

# java: the processors of Apache's broker, each with a queue of its own
PROCESSORS = {
    "ack",
    "admin",
    "async_put",
    "client_manager",
    "consumer_manager",
    "heartbeat",
    "lite_pull",
    "pull",
    "query_message",
    "reply",
    "send",
    "transaction",
}


@pytest.fixture(params=HeaderForm, ids=lambda form: form.name)
async def bench(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Bench]:
    async with Bench(tmp_path, request.param, metrics_exporter="PROM", metrics_port=0) as running:
        yield running


async def samples(bench: Bench, name: str) -> dict[frozenset[str], float]:
    """The figures of one metric by their labels, without those that all have."""
    host, port = bench.broker.metrics_address

    def scrape() -> str:
        with urllib.request.urlopen(f"http://{host}:{port}/metrics", timeout=60) as answer:
            text: bytes = answer.read()
            return text.decode()

    text = await asyncio.to_thread(scrape)
    found = re.findall(rf"^{name}\{{(.*)\}} (\S+)$", text, re.MULTILINE)
    return {
        frozenset(label for label in labels.split(",") if not label.startswith(("cluster=", "node_"))): float(
            figure
        )
        for labels, figure in found
    }


async def test_every_processor_of_apaches_is_told_of(bench: Bench) -> None:
    waiting = await samples(bench, "rocketmq_processor_watermark")
    assert waiting == {frozenset({f'processor="{name}"'}): 0.0 for name in PROCESSORS}


async def test_creations_are_timed_with_their_outcome(bench: Bench) -> None:
    for request in (topic_creation("One"), topic_creation("Two"), topic_creation("bad name")):
        await asyncio.gather(bench.client.call(request), return_exceptions=True)
    await bench.client.call(CreateOrUpdateGroup(body=SubscriptionGroupConfig(group_name="g")))
    topics = await samples(bench, "rocketmq_topic_create_execution_time_milliseconds_count")
    assert topics == {
        frozenset({'invocation_status="success"', 'is_system="false"'}): 2.0,
        frozenset({'invocation_status="failure"', 'is_system="false"'}): 1.0,
    }
    groups = await samples(bench, "rocketmq_consumer_group_create_execution_time_milliseconds_count")
    assert groups == {frozenset({'invocation_status="success"'}): 1.0}
    buckets = await samples(bench, "rocketmq_consumer_group_create_execution_time_milliseconds_bucket")
    bounds = {label for labels in buckets for label in labels if label.startswith("le=")}
    assert bounds == {f'le="{bound}"' for bound in ("10.0", "100.0", "1000.0", "3000.0", "5000.0", "+Inf")}
