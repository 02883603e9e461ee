"""Ask and be answered, through a topic: `python examples/request_reply.py [name server]`.

Prints `20 + 22 = 42`.
"""

import asyncio
import sys

from pyromq import Message, ReceivedMessage, aio


async def main(namesrv: str = "127.0.0.1:9876") -> None:
    consumer = aio.PushConsumer("adders", namesrv=namesrv, start_from="first")
    async with (
        aio.Producer("askers", namesrv=namesrv) as asker,
        aio.Producer("answerers", namesrv=namesrv) as answerer,
    ):

        @consumer.on("Sums")
        async def add(message: ReceivedMessage) -> None:
            total = sum(map(int, message.body.split()))
            await answerer.reply(message, b"%d" % total)

        async with consumer:
            reply = await asker.request(Message("Sums", b"20 22"), timeout_s=30)
            print(f"20 + 22 = {reply.body.decode()}")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
