"""A consumer in a process of its own, to be killed: `-m tests.support.killable_consumer NAMESRV ORDERED`.

Prints the body of each message before it is done with it.
"""

import asyncio
import sys
from asyncio.subprocess import PIPE, Process
from pathlib import Path

from tests.support.loop import FASTEST_LOOP

from pyromq.client.consumer.push import PushConsumer
from pyromq.client.values import ReceivedMessage

ROOT = Path(__file__).parents[2]


async def start_killable_consumer(namesrv: str, *, ordered: bool) -> Process:
    return await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.support.killable_consumer", namesrv, str(ordered), stdout=PIPE, cwd=ROOT
    )


async def _main(namesrv: str, ordered: str) -> None:
    consumer = PushConsumer("billing", namesrv, start_from="first", ordered=ordered == "True")

    @consumer.on("Orders")
    async def take(message: ReceivedMessage) -> None:
        sys.stdout.write(message.body.decode() + "\n")
        sys.stdout.flush()

    await consumer.run_until_closed()


if __name__ == "__main__":
    (new_loop,) = FASTEST_LOOP.values()
    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(_main(sys.argv[1], sys.argv[2]))
