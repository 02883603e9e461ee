"""Every example runs as it stands, as a process of its own."""

import re
import sys
from asyncio.subprocess import PIPE, create_subprocess_exec
from collections.abc import Iterator
from pathlib import Path

import pytest

from pyromq import aio
from pyromq.testing import RunningCluster, cluster

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    with cluster(tmp_path_factory.mktemp("cluster"), recalls=True) as found:
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


def test_every_example_is_run_by_a_test() -> None:
    tests = "".join(path.read_text() for path in Path(__file__).parents[1].rglob("test_*.py"))
    assert [path.name for path in EXAMPLES.glob("*.py") if f'"{path.name}"' not in tests] == []
