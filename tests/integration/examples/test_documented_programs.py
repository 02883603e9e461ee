"""Every Python block of the README and the how-to pages is a program that runs as written.

Those with Spark, and the tutorial, are tried in tests/spark; those of RocketMQ's clients in tests/interop.
"""

import asyncio
import os
import re
import signal
import sys
from asyncio.subprocess import PIPE, create_subprocess_exec
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.filter_server import module_filter

from pyromq import Message, Producer, PullConsumer, aio
from pyromq.protocol.requests.groups import CreateOrUpdateGroup, SubscriptionGroupConfig
from pyromq.protocol.requests.topics import CreateOrUpdateTopic
from pyromq.remoting.dialer import Dialer
from pyromq.testing import RunningCluster, cluster

ROOT = Path(__file__).resolve().parents[3]
PAGES = [
    ROOT / "README.md",
    *sorted((ROOT / "docs").glob("howto/*.md")),
]
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
DOCUMENTED_NAMESRV = "127.0.0.1:9876"
RUNS_ON = re.compile(r"\.run\(\)|async for|for message in reader|add_signal_handler")
ELSEWHERE = re.compile(r"^from (?:rocketmq|pyspark|pyromq\.spark)\b", re.MULTILINE)
TIMEOUT_S = 60
PROGRAMS = [
    pytest.param(program, id=f"{page.stem}-{number}")
    for page in PAGES
    for number, program in enumerate(BLOCK.findall(page.read_text()), 1)
    if "from rocketmq import" not in program
    and not re.search(r"py(romq\.)?spark import|from pyspark", program)
]


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    """The pages speak of the topic Orders, and of a group that has read from it before; of the topic Sessions
    with lite topics, and of its group; of the compacted topic prices."""
    store = tmp_path_factory.mktemp("cluster")
    with cluster(store, recalls=True, light_queues=True, multi_dispatch=True) as found:
        send_an_order(found)
        asyncio.run(make_lite_group(found))
        asyncio.run(make_compacted_topic(found))
        with PullConsumer("billing", namesrv=found.namesrv, start_from="first") as consumer:
            consumer.subscribe("Orders")
            assert consumer.poll(timeout_s=TIMEOUT_S)
        yield found


async def make_lite_group(running: RunningCluster) -> None:
    async with aio.Producer("chat", namesrv=running.namesrv) as producer:
        await producer.declare_topic("Sessions", message_type="LITE")
    group = SubscriptionGroupConfig(group_name="agents", attributes={"+lite.bind.topic": "Sessions"})
    dialer = Dialer()
    await dialer.call(running.broker_address, CreateOrUpdateGroup(body=group), TIMEOUT_S)
    await dialer.close()


async def make_compacted_topic(running: RunningCluster) -> None:
    creation = CreateOrUpdateTopic(
        topic="prices",
        default_topic="",
        read_queue_nums=4,
        write_queue_nums=4,
        perm=6,
        topic_filter_type="SINGLE_TAG",
        order=False,
        attributes="+cleanup.policy=COMPACTION",
    )
    dialer = Dialer()
    await dialer.call(running.broker_address, creation, TIMEOUT_S)
    await dialer.close()


def send_an_order(running: RunningCluster) -> None:
    with Producer("tills", namesrv=running.namesrv) as producer:
        producer.send(Message("Orders", b"one more", tags="Created"))


@pytest.mark.parametrize("program", PROGRAMS)
async def test_it_runs_as_it_is_written(program: str, running: RunningCluster, tmp_path: Path) -> None:
    await asyncio.to_thread(send_an_order, running)
    (tmp_path / "is_large.wasm").write_bytes(module_filter("(i32.const 1)"))
    script = tmp_path / "test_program.py"
    script.write_text(program.replace(DOCUMENTED_NAMESRV, running.namesrv))
    command = ["-m", "pytest", "-c", os.devnull, "-W", "ignore"] if "def test_" in program else ["-u"]
    process = await create_subprocess_exec(
        sys.executable, *command, str(script), stdout=PIPE, stderr=PIPE, cwd=tmp_path
    )
    try:
        async with asyncio.timeout(TIMEOUT_S):
            if RUNS_ON.search(program):
                assert process.stdout is not None
                assert await process.stdout.readline(), "it ended, or has nothing to show"
                process.send_signal(signal.SIGINT)
            output, problems = (part.decode() for part in await process.communicate())
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if "async for" in program or "for message in reader" in program:
        assert problems.endswith("KeyboardInterrupt\n"), problems
    else:
        assert process.returncode == 0, output + problems
