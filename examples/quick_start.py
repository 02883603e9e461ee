"""Send a message and receive it: `python examples/quick_start.py [name server]`.

Prints `hello, world`.
"""

import sys

from pyromq import Message, Producer, SimpleConsumer


def main(namesrv: str = "127.0.0.1:9876") -> None:
    with Producer("greeters", namesrv=namesrv) as producer:
        producer.send(Message("Greetings", b"hello, world"))
    with SimpleConsumer("guests", namesrv=namesrv, start_from="first") as consumer:
        consumer.subscribe("Greetings")
        for message in consumer.receive(wait_s=30):
            print(message.body.decode())
            consumer.ack(message)


if __name__ == "__main__":
    main(*sys.argv[1:])
