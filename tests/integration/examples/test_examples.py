"""Every example runs as it stands, as a process of its own."""

import ast
import asyncio
import json
import re
import signal
import sys
from asyncio.subprocess import PIPE, create_subprocess_exec
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest

from pyromq import aio
from pyromq.testing import RunningCluster, cluster

ROOT = Path(__file__).parents[3]
EXAMPLES = ROOT / "examples"


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    store = tmp_path_factory.mktemp("cluster")
    with cluster(store, recalls=True, trace_topic_enabled=True, sql_filters=True, body_filters=True) as found:
        yield found


async def run(name: str, namesrv: str) -> list[str]:
    """What an example prints."""
    process = await create_subprocess_exec(
        sys.executable, str(EXAMPLES / name), namesrv, stdout=PIPE, stderr=PIPE, cwd=ROOT
    )
    try:
        output, problems = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode == 0, problems.decode()
    return output.decode().splitlines()


async def test_send(running: RunningCluster) -> None:
    first, second = await run("send.py", running.namesrv)
    assert re.search(r"is at offset \d+ of Orders@broker-a", first)
    assert second == "10 more are stored"


async def test_send_async(running: RunningCluster) -> None:
    [line] = await run("send_async.py", running.namesrv)
    assert line.startswith("1000 messages are stored, sent in ")


async def test_batch(running: RunningCluster) -> None:
    [line] = await run("batch.py", running.namesrv)
    assert line.startswith("100 messages, Orders@broker-a")


async def test_ordered(running: RunningCluster) -> None:
    lines = await run("ordered.py", running.namesrv)
    assert len(lines) == 9
    for order in ("order-0", "order-1", "order-2"):
        places = [line.split(": ")[1].split("/") for line in lines if line.startswith(order)]
        assert len({queue for queue, _ in places}) == 1
        offsets = [int(offset) for _, offset in places]
        assert offsets == sorted(offsets)


async def test_logs(running: RunningCluster) -> None:
    lines = await run("logs.py", running.namesrv)
    assert sorted(lines) == ["order 1 failed, c-1", "order 2 failed, c-2"]


async def test_request_reply(running: RunningCluster) -> None:
    assert await run("request_reply.py", running.namesrv) == ["20 + 22 = 42"]


async def test_transaction(running: RunningCluster) -> None:
    assert await run("transaction.py", running.namesrv) == ["o-1: COMMIT", "o-2: ROLLBACK"]
    async with aio.PullConsumer("books", running.namesrv, start_from="first") as consumer:
        consumer.subscribe("Payments")
        assert [message.keys for message in await consumer.poll(timeout_s=60)] == [("o-1",)]


async def test_timed(running: RunningCluster) -> None:
    [line] = await run("timed.py", running.namesrv)
    assert re.fullmatch(r"tea, ([3-9]|\d\d+) s after it was sent", line)


@pytest.mark.parametrize(
    "name", ["quick_start", "simple_consumer", "tag_filter", "body_filter", "namespaces", "access_control"]
)
async def test_an_example_prints_the_lines_that_it_says(running: RunningCluster, name: str) -> None:
    lines = await run(f"{name}.py", running.namesrv)
    said = ast.get_docstring(ast.parse((EXAMPLES / f"{name}.py").read_text())) or ""
    shown = [line.strip() for line in said.splitlines() if line.startswith("    ")]
    shown = shown or re.findall("`([^`]+)`", said.partition("Prints ")[2])
    assert sorted(lines) == sorted(shown)


async def test_a_trace(running: RunningCluster) -> None:
    lines = await run("trace.py", running.namesrv)
    assert [re.sub(r"\d+", "N", line) for line in lines] == [
        "sent by shop in N ms",
        "consumed by billing in N ms",
    ]


def test_every_example_without_spark_says_what_it_prints() -> None:
    names = [path for path in EXAMPLES.glob("*.py") if not path.name.startswith("spark_")]
    assert [path.name for path in names if not re.search(r"\bPrints\b", path.read_text())] == []


def test_every_example_is_run_by_a_test() -> None:
    tests = "".join(path.read_text() for path in Path(__file__).parents[2].rglob("test_*.py"))
    unnamed = [path.name for path in EXAMPLES.glob("*.py") if f'"{path.name}"' not in tests]
    assert [name for name in unnamed if f'"{name.removesuffix(".py")}"' not in tests] == []


async def test_a_job_queue(running: RunningCluster) -> None:
    lines = await run("job_queue.py", running.namesrv)
    assert lines.count("resized cat.png") == lines.count("resized dog.png") == 1
    assert lines.count("mailed ada@example.org at attempt 2") == 1
    assert lines.count("tick") >= 3
    assert lines[-1] == "dead letter: nonsense"


def fetched(url: str, body: bytes | None = None) -> Any:
    request = Request(url, body, {"Content-Type": "application/json"})
    with urlopen(request, timeout=60) as answer:
        return json.load(answer)


async def test_a_web_service_over_http(running: RunningCluster) -> None:
    process = await create_subprocess_exec(
        sys.executable, EXAMPLES / "fastapi_service.py", running.namesrv, "0", stdout=PIPE, stderr=PIPE
    )
    assert process.stderr is not None
    said: list[str] = []
    try:
        while "running on" not in (line := (await process.stderr.readline()).decode()):
            assert line, said
            said.append(line)
        found = re.search(r"http://127\.0\.0\.1:\d+", line)
        assert found is not None
        base = found[0]

        async def fetch(path: str, body: bytes | None = None) -> Any:
            return await asyncio.to_thread(fetched, base + path, body)

        for order in ("o-1", "o-2", "o-1"):  # one of them twice
            answer = await fetch("/orders", json.dumps({"id": order, "price": 12.5}).encode())
            assert answer["message_id"]
        await fetch("/orders", b'{"id": "last", "price": 1}')
        while await fetch("/bills") < 3:
            pass
        assert await fetch("/orders/o-1") == {"id": "o-1", "billed": 12.5}
        process.terminate()
        _, problems = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.communicate()
    assert "Application shutdown complete" in problems.decode()
    assert "Traceback" not in problems.decode()
    assert process.returncode in (0, -signal.SIGTERM)  # uvicorn raises the signal again when it has ended
    async with aio.PullConsumer("web-billing", running.namesrv) as consumer:
        committed = [await consumer.committed(queue) or 0 for queue in await consumer.queues("WebOrders")]
    assert sum(committed) == 4, "it has committed what it handled, and left"
