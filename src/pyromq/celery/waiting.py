"""Tasks that wait at the broker for their ETA, as records: by them a revoke finds a task and takes it back.

A task that was taken back goes to its queue at once, as one that expired: a worker stores that it is revoked,
and does not run it.
"""

import asyncio
import logging
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec

from pyromq.celery.envelope import Times, packed, unpacked
from pyromq.celery.names import topic_of
from pyromq.celery.options import ClusterTarget
from pyromq.client.values import Message
from pyromq.errors import PyroError
from pyromq.tasks.keyed import KeyedTopic

_log = logging.getLogger(__name__)

TOPIC = "CELERY-WAITING"
_TAG, _HANDLE, _QUEUE = "WAITING", "recall-handle", "queue"
_AT_A_TIME = 32


class WaitingTasks:
    """Of one connection; used on the client's loop."""

    def __init__(self, target: ClusterTarget) -> None:
        self._target = target
        self._records: KeyedTopic | None = None
        self._starting = asyncio.Lock()

    def __repr__(self) -> str:
        return f"<WaitingTasks {self._records!r}>"

    async def _started(self) -> KeyedTopic:
        async with self._starting:
            if self._records is None:
                size = self._target.options.max_message_bytes
                records = KeyedTopic(TOPIC, self._target.client_options, max_message_bytes=size)
                await records.start()
                self._records = records
            return self._records

    async def close(self) -> None:
        if self._records is not None:
            await self._records.close()

    async def note(self, queue: str, message: Message, handle: str) -> None:
        """The message was sent and waits; brokers that cannot take it back give no handle."""
        if not message.keys:
            return
        own = {**message.properties, _HANDLE: handle, _QUEUE: queue}
        await (await self._started()).put(message.keys[0], message.body, _TAG, own)

    async def recall(self, ids: Iterable[str]) -> None:
        wanted = list(ids)
        for first in range(0, len(wanted), _AT_A_TIME):
            await asyncio.gather(*map(self._recall, wanted[first : first + _AT_A_TIME]))

    async def _recall(self, task_id: str) -> None:
        try:
            records = await self._started()
            found = await records.find(task_id)
            if not found or (handle := found[0].get(_HANDLE)) is None:
                return
            await records.producer.recall(handle)
            raw, _ = unpacked(found[0])
            raw["headers"] |= {"eta": None, "expires": datetime.now(UTC).isoformat()}
            await records.producer.send(packed(topic_of(found[0].get(_QUEUE) or ""), raw, Times()))
            await records.forget(task_id)
        except PyroError as problem:
            _log.warning("a revoked task still comes, to workers that know id=%s: %s", task_id, problem)


def revoked_ids(body: Any) -> list[str]:
    """The tasks that a message of Celery's remote control revokes, for all workers."""
    try:
        command = msgspec.json.decode(body)
    except (msgspec.DecodeError, TypeError):
        return []  # in another encoding
    if not isinstance(command, Mapping) or command.get("method") != "revoke":
        return []
    if command.get("destination") or command.get("pattern"):
        return []
    found = (command.get("arguments") or {}).get("task_id")
    return [found] if isinstance(found, str) else [each for each in found or () if isinstance(each, str)]
