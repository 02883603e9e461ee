"""Find out what became of a message: `python examples/trace.py [name server]`.

The broker must keep traces: `traceTopicEnable=true`. Prints who sent and who consumed the message:

    sent by shop in 2 ms
    consumed by billing in 0 ms
"""

import asyncio
import sys

from pyromq import Message, ReceivedMessage, aio
from pyromq.admin import traces
from pyromq.admin.cluster import Cluster

KINDS = {traces.SENT: "sent", traces.CONSUMED: "consumed"}


async def main(namesrv: str = "127.0.0.1:9876") -> None:
    async with aio.Producer("shop", namesrv=namesrv, trace=True) as producer:
        result = await producer.send(Message("TracedOrders", b"9.99"))
    consumed = asyncio.Event()

    async def bill(message: ReceivedMessage) -> None:
        consumed.set()

    consumer = aio.PushConsumer("billing", namesrv=namesrv, trace=True, start_from="first")
    consumer.subscribe("TracedOrders", "*", bill)
    async with consumer:
        await consumed.wait()
    # `mqadmin queryMsgTraceById` shows the same.
    async with Cluster(namesrv) as cluster:
        found = await traces.of_message(cluster, result.message_id)
    for trace in found:
        print(f"{KINDS[trace.kind]} by {trace.group} in {trace.cost_ms} ms")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
