"""The readers of private queues, by process: where one begins is fixed when its queue is first bound.

`rpc://` declares its queue on one connection and consumes it on another. Results may come in between.
"""

import os
from collections import OrderedDict

from pyromq.celery.names import exchange_topic_of
from pyromq.celery.options import ClusterTarget
from pyromq.client.reader import Reader

_MAX_WAITING = 256

_Key = tuple[int, ClusterTarget, str]
_waiting: "OrderedDict[_Key, dict[str, Reader]]" = OrderedDict()
"""Readers that no connection consumes yet, by exchange."""
_taken: set[tuple[_Key, str]] = set()


def _key(target: ClusterTarget, queue: str) -> _Key:
    return os.getpid(), target, queue


def is_known(target: ClusterTarget, queue: str, exchange: str) -> bool:
    key = _key(target, queue)
    return exchange in _waiting.get(key, {}) or (key, exchange) in _taken


async def prepare(target: ClusterTarget, queue: str, exchange: str, tag: str) -> None:
    settings = target.settings
    reader = Reader(
        exchange_topic_of(exchange),
        tag,
        settings.namesrv,
        namespace=settings.namespace,
        credentials=settings.credentials,
        tls=settings.tls,
    )
    await reader.start()
    _waiting.setdefault(_key(target, queue), {})[exchange] = reader
    while len(_waiting) > _MAX_WAITING:
        _, forgotten = _waiting.popitem(last=False)
        for each in forgotten.values():
            await each.close()


def take(target: ClusterTarget, queue: str) -> dict[str, Reader]:
    """For the connection that consumes the queue; it closes them."""
    key = _key(target, queue)
    found = _waiting.pop(key, {})
    _taken.update((key, exchange) for exchange in found)
    return found


def closed(target: ClusterTarget, queue: str, exchange: str) -> None:
    _taken.discard((_key(target, queue), exchange))
