"""How queues and exchanges of AMQP are called at brokers.

A queue is a topic with one group of its own: workers consume different sets of queues, and members of a group
must subscribe alike. A queue with a UUID in its name is private to a process (replies, results, monitors):
thousands of them share one topic for each exchange, and everyone knows that from the name alone.
"""

import hashlib
import re
from urllib.parse import quote

_UUID = re.compile(r"[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}")
_OTHER = re.compile(r"[^a-zA-Z0-9_-]")
_MAX_CHARS = 80
_TAG = re.compile(r"[\w.:@#/-]{1,120}")


def is_private(queue: str) -> bool:
    return _UUID.search(queue) is not None


def topic_of(queue: str) -> str:
    return _legal(queue)


def group_of(queue: str) -> str:
    return f"CELERY_{_legal(queue)}"


def exchange_topic_of(exchange: str) -> str:
    """The topic of what goes to private queues."""
    return f"CELERY-EXCHANGE_{_legal(exchange)}" if exchange else "CELERY-REPLIES"


def as_tag(text: str | None) -> str | None:
    """A tag by which brokers can filter; None if the text cannot be one."""
    return text if text and _TAG.fullmatch(text) else None


def _legal(name: str) -> str:
    escaped = _OTHER.sub(lambda each: quote(each[0], safe="").replace(".", "%2E"), name)
    if len(escaped) <= _MAX_CHARS:
        return escaped
    return f"{escaped[: _MAX_CHARS - 17]}-{hashlib.sha256(name.encode()).hexdigest()[:16]}"
