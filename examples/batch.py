"""Send a list of messages in as few requests as hold them: `python examples/batch.py [name server]`.

Prints `100 messages, Orders@broker-a/2 0 to 99`: the queue, and the first and last offset in it.
"""

import sys

from pyromq import Message, Producer


def main(namesrv: str = "127.0.0.1:9876") -> None:
    # All messages of a batch go to one topic; what does not fit into a request goes into the next.
    with Producer("orders", namesrv=namesrv) as producer:
        messages = [Message("Orders", b"line %d" % number, keys=[f"o-{number}"]) for number in range(100)]
        results = producer.send(messages)
        first, last = results[0], results[-1]
        print(f"{len(results)} messages, {first.queue} {first.queue_offset} to {last.queue_offset}")


if __name__ == "__main__":
    main(*sys.argv[1:])
