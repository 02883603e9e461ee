"""The examples of consumers, each as a process of its own; those that run on are ended as people end them."""

import asyncio
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process, create_subprocess_exec
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.support.consumer_cluster import TIMEOUT_S, ConsumerCluster, consumer_cluster

from pyromq.client.producer import Producer
from pyromq.client.values import Message

ROOT = Path(__file__).parents[3]


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[ConsumerCluster]:
    async with consumer_cluster(tmp_path / "store") as running:
        yield running


@asynccontextmanager
async def example(name: str, *arguments: str, home: Path) -> AsyncIterator[Process]:
    """A running example; `home` stands in for the home directory."""
    process = await create_subprocess_exec(
        sys.executable,
        str(ROOT / "examples" / name),
        *arguments,
        stdout=PIPE,
        stderr=PIPE,
        env={**os.environ, "HOME": str(home)},
        cwd=ROOT,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def output(name: str, *arguments: str, home: Path) -> list[str]:
    async with asyncio.timeout(TIMEOUT_S), example(name, *arguments, home=home) as process:
        lines, problems = await process.communicate()
        assert process.returncode == 0, problems.decode()
        return lines.decode().splitlines()


async def lines_until_interrupted(name: str, namesrv: str, count: int, home: Path) -> list[str]:
    """The first lines of an example that runs until Ctrl-C, which must end it well."""
    async with asyncio.timeout(TIMEOUT_S), example(name, namesrv, home=home) as process:
        assert process.stdout is not None
        lines = [(await process.stdout.readline()).decode().rstrip() for _ in range(count)]
        process.send_signal(signal.SIGINT)
        _, problems = await process.communicate()
        assert process.returncode == 0, problems.decode()
        return lines


async def send(cluster: ConsumerCluster, bodies: Sequence[bytes], tags: str | None = None) -> None:
    async with Producer("tills", cluster.namesrv) as producer:
        for body in bodies:
            await producer.send(Message("Orders", body, tags=tags), sharding_key="one queue")


async def test_push_consumer(cluster: ConsumerCluster, tmp_path: Path) -> None:
    await send(cluster, [b"unwanted"], tags="Cancelled")
    await send(cluster, [b"first", b"second"], tags="Paid")
    lines = await lines_until_interrupted("push_consumer.py", cluster.namesrv, 2, tmp_path)
    assert sorted(lines) == ["Paid first (attempt 1)", "Paid second (attempt 1)"]
    await send(cluster, [b"third"], tags="Created")
    lines = await lines_until_interrupted("push_consumer.py", cluster.namesrv, 1, tmp_path)
    assert lines == ["Created third (attempt 1)"]


async def test_push_consumer_async(cluster: ConsumerCluster, tmp_path: Path) -> None:
    await send(cluster, [b"a", b"b", b"c"], tags="Paid")
    lines = await output("push_consumer_async.py", cluster.namesrv, "3", home=tmp_path)
    assert [line.partition("/")[2] for line in lines] == ["0: a", "1: b", "2: c"]


async def test_pop_consumer(cluster: ConsumerCluster, tmp_path: Path) -> None:
    await send(cluster, [b"a", b"b"])
    lines = await lines_until_interrupted("pop_consumer.py", cluster.namesrv, 2, tmp_path)
    assert sorted(lines) == ["a (attempt 1)", "b (attempt 1)"]


async def test_ordered_consumer(cluster: ConsumerCluster, tmp_path: Path) -> None:
    await send(cluster, [b"created", b"paid", b"shipped"])
    lines = await lines_until_interrupted("ordered_consumer.py", cluster.namesrv, 3, tmp_path)
    assert [line.partition(": ")[2] for line in lines] == ["created", "paid", "shipped"]


async def test_broadcast(cluster: ConsumerCluster, tmp_path: Path) -> None:
    await send(cluster, [b"a", b"b"])
    left, right = await asyncio.gather(
        *(output("broadcast.py", cluster.namesrv, name, "2", home=tmp_path) for name in ("left", "right"))
    )
    assert (left, right) == (["left: a", "left: b"], ["right: a", "right: b"])
    await send(cluster, [b"c"])
    assert await output("broadcast.py", cluster.namesrv, "left", "1", home=tmp_path) == ["left: c"]


async def test_pull_consumer(cluster: ConsumerCluster, tmp_path: Path) -> None:
    queues = await cluster.create_topic("Orders")
    await send(cluster, [b"a", b"b", b"c"])
    lines = await output("pull_consumer.py", cluster.namesrv, home=tmp_path)
    assert lines == [f"3 orders in {len(queues)} queues"]


async def test_sql_filter(cluster: ConsumerCluster, tmp_path: Path) -> None:
    lines = await output("sql_filter.py", cluster.namesrv, home=tmp_path)
    assert sorted(lines) == ["large order: 50", "large order: 500"]


async def test_retry_and_dlq(cluster: ConsumerCluster, tmp_path: Path) -> None:
    lines = await output("retry_and_dlq.py", cluster.namesrv, home=tmp_path)
    assert lines == ["paid at attempt 2: slow bank", "dead letter from Payments: not a payment"]
