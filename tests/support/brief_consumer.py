"""A consumer for tests: it handles so many messages and is gone, with everything it had to report sent."""

import threading
from collections.abc import Callable

from pyromq import PushConsumer, ReceivedMessage
from pyromq.testing import RunningCluster


def consume_with(
    running: RunningCluster,
    group: str,
    topic: str,
    count: int,
    handle: Callable[[ReceivedMessage], None],
    *,
    trace: bool = False,
) -> list[ReceivedMessage]:
    """Handle `count` different messages; what was received, in order."""
    received: list[ReceivedMessage] = []
    is_done = threading.Event()
    consumer = PushConsumer(group, namesrv=running.namesrv, start_from="first", trace=trace)

    @consumer.on(topic)
    def each(message: ReceivedMessage) -> None:
        received.append(message)
        if len({one.message_id for one in received}) >= count:
            is_done.set()
        handle(message)

    with consumer:
        assert is_done.wait(300), f"only {len(received)} of {count} messages came"
    return received
