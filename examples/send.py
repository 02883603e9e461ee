"""Send a message and see where it went: `python examples/send.py [name server]`.

Prints the id, offset and queue of the first message, and `10 more are stored`.
"""

import sys

from pyromq import Message, Producer


def main(namesrv: str = "127.0.0.1:9876") -> None:
    with Producer("orders", namesrv=namesrv) as producer:
        message = Message("Orders", b'{"id": 1, "total": "9.99"}', tags="Created", keys=["o-1"])
        result = producer.send(message)
        print(f"{result.message_id} is at offset {result.queue_offset} of {result.queue}")

        # Without waiting for each result before the next is sent:
        futures = [producer.submit(Message("Orders", b"%d" % number)) for number in range(10)]
        print(f"{sum(future.result().is_ok for future in futures)} more are stored")


if __name__ == "__main__":
    main(*sys.argv[1:])
