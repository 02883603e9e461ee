"""A reminder that comes later, and one that is taken back: `python examples/timed.py [name server]`.

The broker must allow that: `recallMessageEnable=true`.

Prints `tea, 3 s after it was sent`.
"""

import sys
from datetime import UTC, datetime, timedelta

from pyromq import Message, Producer, PullConsumer


def main(namesrv: str = "127.0.0.1:9876") -> None:
    with (
        Producer("reminders", namesrv=namesrv) as producer,
        PullConsumer("calendar", namesrv=namesrv, start_from="first") as consumer,
    ):
        soon = datetime.now(UTC) + timedelta(seconds=2)
        meeting = producer.send(Message("Reminders", b"meeting"), deliver_at=soon)
        producer.send(Message("Reminders", b"tea"), delay=timedelta(seconds=3))
        producer.recall(meeting)
        consumer.subscribe("Reminders")
        for message in consumer.poll(timeout_s=60):
            late_s = (message.stored_ms - message.born_ms) / 1000
            print(f"{message.body.decode()}, {late_s:.0f} s after it was sent")


if __name__ == "__main__":
    main(*sys.argv[1:])
