"""Keep what belongs together in order: `python examples/ordered.py [name server]`.

All messages with one sharding key go to one queue, and a queue keeps its order. Wait for each result before
sending the next with the same key: a message that is tried again must not be overtaken.

Prints `order-0 created: 3/0` and so on: the queue and the offset of each step.
"""

import asyncio
import sys

from pyromq import Message, aio

STEPS = ("created", "paid", "shipped")


async def follow(producer: aio.Producer, order: str) -> None:
    for step in STEPS:
        message = Message("Orders", step.encode(), tags=step, keys=[order])
        result = await producer.send(message, sharding_key=order)
        print(f"{order} {step}: {result.queue.queue_id}/{result.queue_offset}")


async def main(namesrv: str = "127.0.0.1:9876") -> None:
    async with aio.Producer("orders", namesrv=namesrv) as producer:
        await asyncio.gather(*(follow(producer, f"order-{number}") for number in range(3)))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
