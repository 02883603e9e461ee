"""A broker in a process of its own, to be killed: `python -m tests.support.killable_broker DIR FLUSH {}`."""

import asyncio
import json
import sys
from asyncio.subprocess import Process
from pathlib import Path
from typing import Any

from tests.support.broker_cluster import running_broker
from tests.support.killable_process import is_up, start
from tests.support.loop import FASTEST_LOOP


async def start_killable_broker(
    directory: Path, flush: str, **settings: Any
) -> tuple[Process, tuple[str, int]]:
    """`flush` is SYNC_FLUSH or ASYNC_FLUSH, `settings` those of the broker by their names in Python. The same
    directory again recovers what is in it."""
    arguments = (str(directory), flush, json.dumps(settings))
    process, port = await start("tests.support.killable_broker", *arguments)
    return process, ("127.0.0.1", int(port))


async def _main(directory: Path, flush: str, settings: dict[str, Any]) -> None:
    store = {
        "flush_disk_type": flush,
        "log_segment_bytes": 128 * 1024,
        "queue_file_bytes": 4000,
        "flush_interval_ms": 50,
        "queue_flush_interval_ms": 50,
        "timer_log_file_bytes": 16_384,
        "timer_flush_interval_ms": 300,
    }
    async with running_broker(directory, store=store, **settings) as broker:
        is_up(broker.address[1])
        await broker.run_until_stopped()


if __name__ == "__main__":
    (new_loop,) = FASTEST_LOOP.values()
    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(_main(Path(sys.argv[1]), sys.argv[2], json.loads(sys.argv[3])))
