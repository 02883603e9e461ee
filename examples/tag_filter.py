"""Let the broker filter by tags: `python examples/tag_filter.py [name server]`.

Prints `o-1 was Paid` and `o-2 was Cancelled`; the broker sends nothing else.
"""

import asyncio
import sys

from pyromq import Message, aio

EVENTS = (("o-1", "Created"), ("o-1", "Paid"), ("o-2", "Created"), ("o-2", "Cancelled"))


async def main(namesrv: str = "127.0.0.1:9876") -> None:
    async with aio.Producer("shop", namesrv=namesrv) as producer:
        for order, tag in EVENTS:
            await producer.send(Message("OrderEvents", order.encode(), tags=tag))
    async with aio.PushConsumer("outcomes", namesrv=namesrv, start_from="first") as consumer:
        left = 2
        async for message in consumer.subscribe("OrderEvents", "Paid || Cancelled"):
            print(f"{message.body.decode()} was {message.tags}")
            left -= 1
            if left == 0:
                break


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
