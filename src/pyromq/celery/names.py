"""How queues and exchanges of AMQP are called at brokers.

A queue is a topic with its own group: workers consume different sets of queues, and members of a group
must subscribe alike. A queue with a UUID in its name is private to a process (replies, results, monitors):
thousands of them share one topic for each exchange, and everyone knows that from the name alone.
"""

import re

from pyromq.tasks.names import legal

_UUID = re.compile(r"[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}")


def is_private(queue: str) -> bool:
    return _UUID.search(queue) is not None


def topic_of(queue: str) -> str:
    return legal(queue)


def group_of(queue: str) -> str:
    return f"CELERY_{legal(queue)}"


def exchange_topic_of(exchange: str) -> str:
    """The topic of what goes to private queues."""
    return f"CELERY-EXCHANGE_{legal(exchange)}" if exchange else "CELERY-REPLIES"
