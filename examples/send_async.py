"""Send many messages at once with asyncio: `python examples/send_async.py [name server]`.

Prints `1000 messages are stored, sent in 4 requests`, or a similar number.
"""

import asyncio
import sys

from pyromq import Message, SendFailed, aio


async def main(namesrv: str = "127.0.0.1:9876") -> None:
    # linger_ms=1 lets messages that are sent within a millisecond share a request.
    async with aio.Producer("orders", namesrv=namesrv, linger_ms=1) as producer:
        sending = [producer.send(Message("Orders", b"%d" % number)) for number in range(1000)]
        try:
            results = await asyncio.gather(*sending)
        except SendFailed as failure:
            print(f"given up after {len(failure.attempts)} attempts: {failure}")
            raise
        figures = producer.statistics()
        print(f"{len(results)} messages are stored, sent in {figures.batches} requests")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
