"""A consumer to be killed, in a process: `-m tests.support.killable_consumer NAMESRV ORDERED [BODY]`.

Prints the body of each message before it is done with it. It always fails with the BODY, without a word.
"""

import asyncio
import sys
from asyncio.subprocess import Process
from typing import Literal

from tests.support.killable_process import launch
from tests.support.loop import FASTEST_LOOP

from pyromq.client.consumer.handling.outcomes import RetryLater
from pyromq.client.consumer.push import PushConsumer
from pyromq.client.values import ReceivedMessage


async def start_killable_consumer(
    namesrv: str, *, ordered: bool | Literal["key"], failing: str = ""
) -> Process:
    return await launch("tests.support.killable_consumer", namesrv, str(ordered), failing)


async def _main(namesrv: str, ordered: str, failing: str) -> None:
    kind: bool | Literal["key"] = "key" if ordered == "key" else ordered == "True"
    consumer = PushConsumer("billing", namesrv, start_from="first", ordered=kind)

    @consumer.on("Orders")
    async def take(message: ReceivedMessage) -> None:
        if message.body.decode() == failing:
            raise RetryLater
        sys.stdout.write(message.body.decode() + "\n")
        sys.stdout.flush()

    await consumer.run_until_closed()


if __name__ == "__main__":
    (new_loop,) = FASTEST_LOOP.values()
    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(_main(*sys.argv[1:]))
