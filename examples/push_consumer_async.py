"""Read messages in a loop, with asyncio: `python examples/push_consumer_async.py [name server] [count]`.

Asking for the next message says that the one before is done. A loop left by an exception has its last message
again.

Prints `queue/offset: body` for each message.
"""

import asyncio
import sys

from pyromq import aio


async def main(namesrv: str = "127.0.0.1:9876", count: str = "10") -> None:
    async with aio.PushConsumer("billing-async", namesrv=namesrv, start_from="first") as consumer:
        left = int(count)
        async for message in consumer.subscribe("Orders", "Created || Paid"):
            print(f"{message.queue.queue_id}/{message.queue_offset}: {message.body.decode()}", flush=True)
            left -= 1
            if left == 0:
                break


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
