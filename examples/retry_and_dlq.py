"""What becomes of messages that fail: `python examples/retry_and_dlq.py [name server]`.

One comes again after a second and succeeds; the other is hopeless, and goes to the dead letters of the group.

Prints `paid at attempt 2: …` and `dead letter from …`.
"""

import asyncio
import sys

from pyromq import GiveUp, Message, ReceivedMessage, RetryLater, aio


async def main(namesrv: str = "127.0.0.1:9876") -> None:
    async with aio.Producer("tills", namesrv=namesrv) as producer:
        await producer.send(Message("Payments", b"slow bank"))
        await producer.send(Message("Payments", b"not a payment"))
    paid = asyncio.Event()
    consumer = aio.PushConsumer("payments", namesrv=namesrv, start_from="first")

    @consumer.on("Payments")
    async def pay(message: ReceivedMessage) -> None:
        if message.body == b"not a payment":
            raise GiveUp("it will never be one")
        if message.reconsume_times == 0:
            # Any exception asks for a retry; this one also says when: level 1 is one second.
            raise RetryLater("the bank does not answer", delay_level=1)
        print(f"paid at attempt {message.reconsume_times + 1}: {message.body.decode()}")
        paid.set()

    async with consumer:
        await paid.wait()
    async with aio.PushConsumer("undertaker", namesrv=namesrv, start_from="first") as undertaker:
        async for message in undertaker.subscribe("%DLQ%payments"):
            print(f"dead letter from {message.get('DLQ_ORIGIN_TOPIC')}: {message.body.decode()}")
            break


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
