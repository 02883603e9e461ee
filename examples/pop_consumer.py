"""Let brokers divide the messages: `python examples/pop_consumer.py [name server]`, until Ctrl-C.

Any member of the group gets messages of any queue: a slow message holds nothing up, and there may be more
members than queues.

Prints `body (attempt 1)` for each message.
"""

import sys

from pyromq import PushConsumer, ReceivedMessage


def main(namesrv: str = "127.0.0.1:9876") -> None:
    # A message is hidden from the other members for a minute, and for longer while its handler runs.
    consumer = PushConsumer("packing", namesrv=namesrv, mode="pop", start_from="first", invisible_s=60)

    @consumer.on("Orders", "*")
    async def pack(message: ReceivedMessage) -> None:
        print(f"{message.body.decode()} (attempt {message.reconsume_times + 1})", flush=True)

    consumer.run()


if __name__ == "__main__":
    main(*sys.argv[1:])
