"""Give every message to every member: `python examples/broadcast.py [name server] [name] [count]`.

Each member keeps its own offsets in a file under its name, and goes on from there the next time.

Prints `name: body` for each message, until it has `count` of them.
"""

import asyncio
import sys

from pyromq import aio


async def main(namesrv: str = "127.0.0.1:9876", name: str = "screen-1", count: str = "10") -> None:
    consumer = aio.PushConsumer(
        "screens", namesrv=namesrv, broadcast=True, start_from="first", instance_name=name
    )
    left = int(count)
    async with consumer:
        async for message in consumer.subscribe("Orders"):
            print(f"{name}: {message.body.decode()}\n", end="", flush=True)
            left -= 1
            if left == 0:
                break


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
