"""Call a function for every message: `python examples/push_consumer.py [name server]`, until Ctrl-C.

A handler that returns is done with its message; one that raises gets it again, a little later each time.

Prints a line for each message.
"""

import sys

from pyromq import PushConsumer, ReceivedMessage


def main(namesrv: str = "127.0.0.1:9876") -> None:
    consumer = PushConsumer("billing", namesrv=namesrv, start_from="first", concurrency=8)

    @consumer.on("Orders", "Created || Paid")
    def bill(message: ReceivedMessage) -> None:
        # Eight threads print: a line is written in one piece.
        line = f"{message.tags} {message.body.decode()} (attempt {message.reconsume_times + 1})\n"
        print(line, end="", flush=True)

    # Ctrl-C and SIGTERM end it cleanly: what is being handled is finished and committed.
    consumer.run()


if __name__ == "__main__":
    main(*sys.argv[1:])
