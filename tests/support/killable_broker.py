"""A broker in a process of its own, to be killed: `python -m tests.support.killable_broker DIR FLUSH {}`."""

import asyncio
import json
import sys
from asyncio.subprocess import PIPE, Process
from pathlib import Path
from typing import Any

from tests.support.broker_cluster import running_broker
from tests.support.loop import FASTEST_LOOP

ROOT = Path(__file__).parents[2]


async def start_killable_broker(
    directory: Path, flush: str, **settings: Any
) -> tuple[Process, tuple[str, int]]:
    """`flush` is SYNC_FLUSH or ASYNC_FLUSH, `settings` those of the broker by their names in Python. The same
    directory again recovers what is in it."""
    command = ("-m", "tests.support.killable_broker", str(directory), flush, json.dumps(settings))
    process = await asyncio.create_subprocess_exec(sys.executable, *command, stdout=PIPE, cwd=ROOT)
    assert process.stdout is not None
    port = await process.stdout.readline()
    if not port:
        raise RuntimeError(f"the broker ended before it was up: exit status {await process.wait()}")
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
        sys.stdout.write(f"{broker.address[1]}\n")
        sys.stdout.flush()
        await broker.run_until_stopped()


if __name__ == "__main__":
    (new_loop,) = FASTEST_LOOP.values()
    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(_main(Path(sys.argv[1]), sys.argv[2], json.loads(sys.argv[3])))
