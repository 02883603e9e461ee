"""Results in a topic: a result is a message with the task's id as its key, and the newest one counts.

A success stays one, whatever a late copy of the task stores. Results are there for `result_expires`, and no
longer than the broker keeps messages. Chords are counted by a task that looks at the results, as in every
backend without counters.
"""

import logging
import threading
import time
from collections.abc import Iterable, Iterator
from typing import Any

from celery import states
from celery.backends.base import KeyValueStoreBackend
from kombu.utils.encoding import bytes_to_str
from kombu.utils.functional import retry_over_time

_TOPIC = "CELERY-RESULTS"
_DELETED = "DELETED"
_QUEUES = 8


_log = logging.getLogger(__name__)


def _away() -> tuple[type[Exception], ...]:
    """The errors of a cluster that is away."""
    # Imported late: every process that names this backend loads the module.
    from pyromq.errors import NoRoute, SendFailed, TransportError

    return NoRoute, SendFailed, TransportError


class RocketBackend(KeyValueStoreBackend):  # type: ignore[misc]
    """`result_backend="rocketmq://key:secret@ns1:9876,ns2:9876/namespace"`."""

    supports_autoexpire = True
    persistent = True

    def __init__(self, url: str | None = None, **kwargs: Any) -> None:
        super().__init__(url=url, **kwargs)
        self._making = threading.Lock()
        self._clients: tuple[int, Any, Any] | None = None
        """Of this process: a producer and a reader."""

    def _connected(self) -> tuple[Any, Any]:
        import os

        with self._making:
            if self._clients is None or self._clients[0] != os.getpid():
                # Imported late: an application may never ask for a result.
                from pyromq.celery.options import SCHEME, target_at
                from pyromq.client.blocking import Producer
                from pyromq.client.blocking_reader import Reader

                target = target_at(self.url or f"{SCHEME}://", {})
                producer = Producer("CELERY-PRODUCERS", **target.client_options)
                reader = Reader(_TOPIC, **target.client_options)
                try:
                    producer.start()
                    producer.declare_topic(_TOPIC, queues=_QUEUES)
                    reader.start()
                except BaseException:
                    producer.close()
                    reader.close()
                    raise
                self._clients = os.getpid(), producer, reader
            return self._clients[1:]

    def as_uri(self, include_password: bool = False) -> str:
        from pyromq.celery.options import masked, without_keys

        url, user, secret = without_keys(self.url or "")
        return masked(url, user, secret if include_password else None)

    def get(self, key: Any) -> bytes | None:
        _, reader = self._connected()
        newest: bytes | None = None
        since_ms = (time.time() - self.expires) * 1000 if self.expires else 0
        for message in reader.find(bytes_to_str(key)):
            if message.tags == _DELETED or message.stored_ms < since_ms:
                break
            if message.tags == states.SUCCESS:
                return bytes(message.body)
            newest = newest if newest is not None else bytes(message.body)
        return newest

    def mget(self, keys: Iterable[Any]) -> list[bytes | None]:
        return [self.get(key) for key in keys]

    def set(self, key: Any, value: Any) -> None:
        self._set_with_state(key, value, "")

    def _set_with_state(self, key: Any, value: Any, state: str) -> None:
        self._send(key, value.encode() if isinstance(value, str) else bytes(value), state)

    def delete(self, key: Any) -> None:
        self._send(key, b"-", _DELETED)

    def _send(self, key: Any, body: bytes, tag: str) -> None:
        from pyromq.client.values import Message

        message = Message(_TOPIC, body, tags=tag or None, keys=bytes_to_str(key))

        def send() -> None:
            producer, _ = self._connected()
            producer.send(message)

        def wait_s(problem: Exception, intervals: Iterator[float], retries: int) -> float:
            if not retries:
                _log.warning("a result is not stored yet, it is tried again key=%s: %s", key, problem)
            return next(intervals)

        # Otherwise Celery would call a task failed that succeeded while the broker was away.
        retry_over_time(send, _away(), errback=wait_s, **self.retry_policy)

    def exception_safe_to_retry(self, exc: Exception) -> bool:
        """For `result_backend_always_retry`, which tries reads again, too."""
        return isinstance(exc, _away())

    def _store_result(
        self,
        task_id: str,
        result: Any,
        state: str,
        traceback: Any = None,
        request: Any = None,
        **kwargs: Any,
    ) -> Any:
        """Without a look at what is there: a read finds the success among later states."""
        meta = self._get_result_meta(result=result, state=state, traceback=traceback, request=request)
        meta["task_id"] = bytes_to_str(task_id)
        self._set_with_state(self.get_key_for_task(task_id), self.encode(meta), state)
        return result

    def __reduce__(self, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None) -> Any:
        return super().__reduce__(args, {**(kwargs or {}), "url": self.url})
