"""Ask for messages when there is time for them: `python examples/pull_consumer.py [name server]`.

Prints how many there were: `111 orders in 4 queues`.
"""

import sys

from pyromq import PullConsumer


def main(namesrv: str = "127.0.0.1:9876") -> None:
    with PullConsumer("reports", namesrv=namesrv, auto_commit=False) as consumer:
        # By hand: all queues of a topic, from the start. `consumer.subscribe` would share them with a group.
        consumer.assign(consumer.queues("Orders"))
        consumer.seek_to_begin()
        total = 0
        while messages := consumer.poll(timeout_s=5):
            total += len(messages)
            # What was polled is done when it is committed, and comes again if this program dies before.
            consumer.commit()
        print(f"{total} orders in {len(consumer.assigned)} queues")


if __name__ == "__main__":
    main(*sys.argv[1:])
