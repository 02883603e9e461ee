"""Log records as messages: a handler for Python's `logging`.

    logging.getLogger().addHandler(TopicHandler("Logs", namesrv="127.0.0.1:9876"))

A call of a logger only encodes its record and puts it into a bounded buffer; a thread sends what is there.
The application never waits and never sees an error. What does not fit is dropped and counted, and the topic
says so.
"""

import atexit
import concurrent.futures.thread  # noqa: F401 (see the last line)
import json
import logging
import os
import socket
import sys
import threading
import time
import traceback
import weakref
from collections import deque
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, Final, Unpack

from pyromq.client.application_log import application_log
from pyromq.client.blocking import Producer
from pyromq.client.producer_settings import ProducerOptions, ProducerSettings
from pyromq.client.settings import ClientSettings, split_options
from pyromq.client.values import Message
from pyromq.errors import BadMessage, ConfigError

__all__ = ["JsonFormatter", "TopicHandler"]

OWN_LOGGERS: Final = "pyromq"
"""Records of the client itself are not sent: each send would cause the next."""

MAX_BYTES: Final = 16 * 1024 * 1024
"""The limit of what may wait in one process."""

_BATCH: Final = 200
_PAUSES_S: Final = (0.2, 1.0, 5.0, 15.0)
_USUAL: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class JsonFormatter(logging.Formatter):
    """A record as one JSON object: what was logged, where, by whom, and in which trace.

    Whatever the application gave as `extra` is in `extra`. Fields without a value are omitted.
    """

    def __init__(self, service: str | None = None) -> None:
        super().__init__()
        self._constant = {"service": service, "host": socket.gethostname()}

    def format(self, record: logging.LogRecord) -> str:
        trace_id, span_id = _current_span()
        extra = {name: value for name, value in vars(record).items() if name not in _USUAL}
        fields: Mapping[str, object] = {  # `LOG_SCHEMA` of the Spark connector has the same
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            **self._constant,
            "process": record.process,
            "thread": record.threadName,
            "file": record.pathname,
            "line": record.lineno,
            "function": record.funcName,
            "exception": _exception(record),
            "stack": record.stack_info,
            "trace_id": trace_id,
            "span_id": span_id,
            "dropped": extra.pop("dropped", None),
            "extra": extra or None,
        }
        given = {name: value for name, value in fields.items() if value is not None}
        return json.dumps(given, default=str, ensure_ascii=False, skipkeys=True)


def _exception(record: logging.LogRecord) -> str | None:
    if record.exc_info and record.exc_info[0] is not None:
        return "".join(traceback.format_exception(*record.exc_info)).rstrip()
    return record.exc_text


def _current_span() -> tuple[str | None, str | None]:
    """The ids of the current trace, if the application uses OpenTelemetry."""
    traces: Any = sys.modules.get("opentelemetry.trace")
    if traces is None:
        return None, None
    context = traces.get_current_span().get_span_context()
    if not context.is_valid:
        return None, None
    return f"{context.trace_id:032x}", f"{context.span_id:016x}"


class TopicHandler(logging.Handler):
    """Sends log records to a topic, as JSON, with the level as the tag and the trace as the key.

    A formatter of your own decides the body instead. At most `capacity` records, and 16 MiB, wait to be sent.
    Further records are dropped, and `dropped` counts them. When the program ends, it waits for what is
    left, for `flush_timeout_s` at most. A forked child starts with an empty buffer and its own connection.
    """

    def __init__(
        self,
        topic: str,
        namesrv: str | Iterable[str] | None = None,
        *,
        group: str = "pyromq-logging",
        service: str | None = None,
        capacity: int = 10_000,
        flush_timeout_s: float = 5.0,
        **options: Unpack[ProducerOptions],
    ) -> None:
        if capacity < 1:
            raise ConfigError("capacity", str(capacity), "a number above 0")
        if flush_timeout_s < 0:
            raise ConfigError("flush_timeout_s", str(flush_timeout_s), "a number of seconds")
        super().__init__()
        self.formatter = JsonFormatter(service)
        self.topic, self.group, self.flush_timeout_s = topic, group, flush_timeout_s
        self._namesrv, self._options = namesrv, options
        self._capacity = capacity
        _, client_options = split_options(options, ProducerSettings)  # raises here, not in a thread
        ClientSettings.of(namesrv, **client_options)
        self._set_up()
        _handlers.add(self)

    def _set_up(self) -> None:
        self.dropped = 0
        """Records that were not sent, since the start of this process."""
        self._reported = 0
        self._waiting: deque[Message] = deque()
        self._bytes = 0
        self._changed = threading.Condition()  # its lock may be taken twice: a signal handler may log, too
        self._worker: threading.Thread | None = None
        self._is_closed = False

    def __repr__(self) -> str:
        return f"<TopicHandler {self.topic} {len(self._waiting)} waiting, {self.dropped} dropped>"

    def emit(self, record: logging.LogRecord) -> None:
        if record.name == OWN_LOGGERS or record.name.startswith(f"{OWN_LOGGERS}."):
            return
        try:
            message = self._message_of(record)
            with self._changed:
                size = len(message.body)
                if self._is_closed or len(self._waiting) >= self._capacity or self._bytes + size > MAX_BYTES:
                    self.dropped += 1
                    return
                self._waiting.append(message)
                self._bytes += size
                if self._worker is None:
                    self._worker = threading.Thread(
                        target=self._work, name=f"pyromq-log-{self.topic}", daemon=True
                    )
                    self._worker.start()
                self._changed.notify_all()
        except Exception:  # an application does not fail because of its log
            self.handleError(record)

    def flush(self) -> None:
        """Wait until everything that was logged before is sent, at most for `flush_timeout_s`."""
        if threading.current_thread() is self._worker:
            return
        until = time.monotonic() + self.flush_timeout_s
        with self._changed:
            while self._waiting and (left_s := until - time.monotonic()) > 0:
                self._changed.wait(left_s)

    def close(self) -> None:
        """Send what is left. `logging` calls this when the program ends."""
        self.flush()
        with self._changed:
            self._is_closed = True
            left, worker = len(self._waiting), self._worker
            self.dropped += left
            self._waiting.clear()
            self._bytes = 0
            self._changed.notify_all()
        if worker is not None and worker is not threading.current_thread():
            worker.join(self.flush_timeout_s)
        if left and sys.stderr is not None:
            sys.stderr.write(f"{left} log records were not sent to the topic {self.topic}\n")
        super().close()

    def _message_of(self, record: logging.LogRecord) -> Message:
        trace_id, _ = _current_span()
        body = self.format(record).encode(errors="replace")
        return Message(self.topic, body, tags=record.levelname, keys=[trace_id] if trace_id else [])

    def _new_producer(self) -> Producer:
        return Producer(self.group, self._namesrv, **self._options)

    def _work(self) -> None:
        """Send what waits, in order. A send that fails is repeated, and meanwhile the buffer fills."""
        producer: Producer | None = None
        failures = 0
        while (batch := self._next_batch()) is not None:
            try:
                if producer is None:
                    made = self._new_producer()
                    made.start()
                    producer = made
                self._send(producer, batch)
            except Exception as problem:  # whatever it is, what waits is sent later
                if not failures:
                    application_log.warning("log records cannot be sent to %s: %s", self.topic, problem)
                self._pause(_PAUSES_S[min(failures, len(_PAUSES_S) - 1)])
                failures += 1
            else:
                failures = 0
                self._sent(batch)
        if producer is not None:
            producer.close()

    def _send(self, producer: Producer, batch: list[Message]) -> None:
        try:
            producer.send(batch)
        except BadMessage:  # one of them, too large perhaps: it must not keep the others
            for message in batch:
                try:
                    producer.send(message)
                except BadMessage:
                    with self._changed:
                        self.dropped += 1

    def _next_batch(self) -> list[Message] | None:
        """The oldest records, no more than brokers accept in one batch; None at the end."""
        with self._changed:
            while not self._waiting:
                if self._is_closed:
                    return None
                self._changed.wait()
            batch: list[Message] = []
            size = 0
            for message in self._waiting:
                size += len(message.body) + 200
                if batch and (size > 1024 * 1024 or len(batch) == _BATCH):
                    break
                batch.append(message)
            return batch

    def _sent(self, batch: list[Message]) -> None:
        with self._changed:
            for message in batch:
                if self._waiting and self._waiting[0] is message:
                    self._waiting.popleft()
                    self._bytes -= len(message.body)
            if self.dropped > self._reported and not self._is_closed:
                lost, self._reported = self.dropped - self._reported, self.dropped
                report = logging.makeLogRecord({
                    "name": __name__, "levelno": logging.WARNING, "levelname": "WARNING", "dropped": lost,
                    "msg": f"{lost} log records were dropped",
                })  # fmt: skip
                self._waiting.append(self._message_of(report))
                self._bytes += len(self._waiting[-1].body)
            self._changed.notify_all()

    def _pause(self, seconds: float) -> None:
        with self._changed:
            if not self._is_closed:
                self._changed.wait_for(lambda: self._is_closed, seconds)


_handlers: "weakref.WeakSet[TopicHandler]" = weakref.WeakSet()


def _forked() -> None:
    """In the child: the parent sends what the parent logged."""
    for handler in _handlers:
        handler._set_up()


def _flush_all() -> None:
    for handler in list(_handlers):
        handler.flush()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
# `logging` flushes when Python allows no new threads any more: too late for a program that ends at once. This
# is called before the end of the executors, which the import above has registered.
getattr(threading, "_register_atexit", atexit.register)(_flush_all)
