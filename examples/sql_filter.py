"""Let the broker filter by properties: `python examples/sql_filter.py [name server]`.

The broker must allow it: `enablePropertyFilter=true`.

Prints `large order: 50` and `large order: 500`.
"""

import asyncio
import sys

from pyromq import Message, Sql, aio

PRICES = (5, 50, 500)


async def main(namesrv: str = "127.0.0.1:9876") -> None:
    async with aio.Producer("tills", namesrv=namesrv) as producer:
        for price in PRICES:
            properties = {"price": str(price), "region": "north"}
            await producer.send(Message("PricedOrders", b"%d" % price, properties=properties))
    async with aio.PushConsumer("accounting", namesrv=namesrv, start_from="first") as consumer:
        wanted = Sql("price BETWEEN 10 AND 1000 AND region = 'north'")
        large = sum(price >= 10 for price in PRICES)
        async for message in consumer.subscribe("PricedOrders", wanted):
            print(f"large order: {message.body.decode()}")
            large -= 1
            if large == 0:
                break


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
