"""Receive, then acknowledge or give back each message: `python examples/simple_consumer.py [name server]`.

A job that fails comes again after a second. Prints each attempt:

    resize cat.png: done at attempt 1
    resize broken.png: failed
    resize broken.png: done at attempt 2
"""

import sys

from pyromq import Message, Producer, SimpleConsumer


def main(namesrv: str = "127.0.0.1:9876") -> None:
    with Producer("uploads", namesrv=namesrv) as producer:
        for name in (b"cat.png", b"broken.png"):
            producer.send(Message("Pictures", b"resize " + name))
    with SimpleConsumer("workers", namesrv=namesrv, start_from="first") as consumer:
        consumer.subscribe("Pictures")
        left = 2
        while left:
            # Other members do not see these messages for a minute; `consumer.renew` makes that longer.
            for message in consumer.receive(wait_s=30, invisible_s=60):
                job, attempt = message.body.decode(), message.reconsume_times + 1
                if "broken" in job and attempt == 1:
                    print(f"{job}: failed")
                    consumer.change_invisible_time(message, 1)
                else:
                    print(f"{job}: done at attempt {attempt}")
                    consumer.ack(message)
                    left -= 1


if __name__ == "__main__":
    main(*sys.argv[1:])
