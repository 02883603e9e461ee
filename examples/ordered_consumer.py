"""Handle the messages of each queue in their order: `python examples/ordered_consumer.py [name server]`.

Each queue is locked for one member of the group, and a message that fails holds up its queue: what follows is
not handled before it. `examples/ordered.py` sends messages whose order matters.

Prints `queue 3: body` for each message, until Ctrl-C.
"""

import sys

from pyromq import PushConsumer, ReceivedMessage


def main(namesrv: str = "127.0.0.1:9876") -> None:
    consumer = PushConsumer(
        "shipping",
        namesrv=namesrv,
        ordered=True,
        start_from="first",
        # After three failures a message goes to the dead letters, and its queue goes on.
        max_retries=3,
    )

    @consumer.on("Orders")
    def ship(message: ReceivedMessage) -> None:
        print(f"queue {message.queue.queue_id}: {message.body.decode()}\n", end="", flush=True)

    consumer.run()


if __name__ == "__main__":
    main(*sys.argv[1:])
