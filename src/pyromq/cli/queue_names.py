"""Queues on the command line: NUMBER, or BROKER:NUMBER where several brokers have that number."""

from collections.abc import Iterable, Sequence

from pyromq.client.values import MessageQueue
from pyromq.errors import ConfigError, StateError


def check_readable(topic: str, queues: Sequence[MessageQueue]) -> None:
    if not queues:
        raise StateError(f"topic {topic} has no readable queue: `mqadmin updateTopicPerm` changes that")


def named_queues(names: Iterable[str], queues: Sequence[MessageQueue]) -> list[MessageQueue]:
    """Every queue that one of the names means; a number alone means that queue on all brokers."""
    chosen: dict[MessageQueue, None] = {}
    for name in names:
        found = [queue for queue in queues if name in (str(queue.queue_id), short_name(queue))]
        if not found:
            known = ", ".join(short_name(queue) for queue in sorted(queues)) or "none"
            raise ConfigError("queue", name, f"a queue of the topic: {known}")
        chosen.update(dict.fromkeys(found))
    return list(chosen)


def one_queue(name: str, queues: Sequence[MessageQueue]) -> MessageQueue:
    found = named_queues([name], queues)
    if len(found) > 1:
        raise ConfigError("queue", name, f"one of {', '.join(short_name(queue) for queue in sorted(found))}")
    return found[0]


def short_name(queue: MessageQueue) -> str:
    return f"{queue.broker_name}:{queue.queue_id}"
