"""The readers of private queues, by process: where one begins is fixed when its queue is first bound.

`rpc://` declares its queue on one connection and consumes it on another. Results may come in between.
"""

import os
from collections import OrderedDict, deque
from typing import Any, Protocol

from pyromq.celery.names import exchange_topic_of
from pyromq.celery.options import ClusterTarget
from pyromq.client.reader import Reader

_MAX_WAITING = 256


class Consuming(Protocol):
    """A connection that consumes a private queue."""

    @property
    def arrived(self) -> deque[Any]:
        """Messages that were not delivered yet."""
        ...


_Key = tuple[int, ClusterTarget, str]
_waiting: "OrderedDict[_Key, dict[str, Reader]]" = OrderedDict()
"""Readers that no connection consumes yet, by exchange."""
_taken: dict[_Key, dict[str, Consuming]] = {}
"""The connections that consume a queue."""
_returned: dict[_Key, deque[dict[str, Any]]] = {}
"""Messages that were asked for and given back."""


def _key(target: ClusterTarget, queue: str) -> _Key:
    return os.getpid(), target, queue


def is_known(target: ClusterTarget, queue: str, exchange: str) -> bool:
    key = _key(target, queue)
    return exchange in _waiting.get(key, {}) or exchange in _taken.get(key, {})


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


def take(target: ClusterTarget, queue: str, connection: Consuming) -> dict[str, Reader]:
    """For the connection that consumes the queue; it closes them."""
    key = _key(target, queue)
    found = _waiting.pop(key, {})
    _taken.setdefault(key, {}).update(dict.fromkeys(found, connection))
    return found


def waiting(target: ClusterTarget, queue: str) -> dict[str, Reader]:
    return _waiting.get(_key(target, queue), {})


def consuming(target: ClusterTarget, queue: str) -> set[Consuming]:
    return set(_taken.get(_key(target, queue), {}).values())


def returned(target: ClusterTarget, queue: str) -> deque[dict[str, Any]]:
    return _returned.setdefault(_key(target, queue), deque())


def closed(target: ClusterTarget, queue: str, exchange: str) -> None:
    taken = _taken.get(_key(target, queue), {})
    taken.pop(exchange, None)
    if not taken:
        _taken.pop(_key(target, queue), None)
        _returned.pop(_key(target, queue), None)
