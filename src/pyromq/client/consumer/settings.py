"""The options of consumers; the defaults are those of Java's clients."""
# ruff: noqa: E501, RUF009 (a table: one line per setting, however long)

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Literal

from pyromq.client.codecs import IS_CODEC, JSON, Codec
from pyromq.client.consumer.handling.ordered_delivery import KeyOf, key_of_message
from pyromq.client.consumer.handling.outcomes import Backoff
from pyromq.client.consumer.reading.in_flight import Thresholds
from pyromq.client.consumer.reading.offsets import StartFrom
from pyromq.client.settings import ClientOptions
from pyromq.cluster.assignment import Assignment, Average
from pyromq.config.kinds import Check, between
from pyromq.config.options import Options, setting
from pyromq.errors import ConfigError
from pyromq.protocol.names import TRACE_TOPIC, group_problem

_MIB = 1024 * 1024

AVERAGE = Average()
_MAX_INT = 2**31 - 1
MAX_POPPED_AT_ONCE = 32
"""java: brokers refuse more."""
_MAX_POPPED = 96
"""java: the number of popped messages that may wait in the client; other consumers could have them."""
_INTERVAL_S = between(0.001, 10**9)
_START: Check[object] = Check(
    '"first", "last" or a datetime', lambda value: isinstance(value, datetime) or value in ("first", "last")
)
_RULE: Check[object] = Check(
    "a rule of pyromq.cluster.assignment, or a function with a `name`",
    lambda value: callable(value) and isinstance(getattr(value, "name", None), str),
)


Ordered = bool | Literal["key"] | KeyOf
_ORDERED: Check[object] = Check(
    'False, True, "key" or a function of a message',
    lambda value: isinstance(value, bool) or value == "key" or callable(value),
)


def check_group(group: str) -> None:
    problem = group_problem(group)
    if problem is None and group == "DEFAULT_CONSUMER":
        problem = "the name is reserved"  # java: clients refuse it
    if problem is not None:
        raise ConfigError("group", group, f"another name: {problem}")


# fmt: off
@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerSettings(Options):
    broadcast: bool = setting(False, "Deliver every message to every member of the group, instead of to one. Members keep their offsets in files; messages are not retried.")
    start_from: StartFrom = setting("last", 'Where to start in queues that the group has never read: "first", "last" or a datetime.', check=_START)
    assignment: Assignment = setting(AVERAGE, "How members divide the queues. All members of a group must use the same rule.", check=_RULE)
    pull_batch_bytes: int = setting(256 * 1024, "Maximum size of one pull. A larger message is pulled alone.", check=between(1, _MAX_INT))
    queue_messages: int = setting(1000, "Number of messages of a queue waiting in the client above which the queue is not pulled.", check=between(1, 65_535))
    queue_bytes: int = setting(100 * _MIB, "Number of bytes of a queue waiting in the client above which the queue is not pulled.", check=between(1, 1024 * _MIB))
    rebalance_interval_s: float = setting(20.0, "How often members divide the queues again, even without a change.", check=_INTERVAL_S)
    otel: bool = setting(False, "Create OpenTelemetry spans that continue the traces of messages. Needs `pyromq[otel]`.")
    offset_directory: Path | None = setting(None, "Directory in which broadcasting members keep their offsets. None means `.rocketmq_offsets` in the home directory.")
# fmt: on


class ConsumerOptions(ClientOptions, total=False):
    """Made from ConsumerSettings by `make docs`, for editors and type checkers."""

    broadcast: bool
    start_from: StartFrom
    assignment: Assignment
    pull_batch_bytes: int
    queue_messages: int
    queue_bytes: int
    rebalance_interval_s: float
    otel: bool
    offset_directory: Path | None


# fmt: off

@dataclass(frozen=True, slots=True, kw_only=True)
class PushSettings(ConsumerSettings):
    mode: Literal["pull", "pop"] = setting("pull", '"pull": members divide the queues, and each reads its share. "pop": brokers divide the messages, and members acknowledge each one. Needs brokers of version 5.0 or later.')
    invisible_s: float = setting(60.0, 'With "pop", how long a message is hidden from other members. Renewed while the message waits or its handler runs.', check=between(1, 259_200))
    ordered: Ordered = setting(False, 'Handle the messages of a queue one after another, in order. "key": only those with the same sharding key or, without one, the same first key. A function: those for which it returns the same; None has no order.', check=_ORDERED)
    concurrency: int = setting(20, "Maximum number of handlers running at once: threads for plain functions, tasks for async ones.", check=between(1, 1000))
    batch_size: int | None = setting(None, "Maximum number of messages per call of the handler, which then gets lists. Pulls ask for as many. None passes one message at a time.", check=between(1, 1024))
    batch_wait_s: float = setting(0.0, "With `batch_size`, how long a list waits for more messages, of any queue of the topic, until it is full. 0 passes the messages of one pull.", check=between(0, 3600))
    max_retries: int | None = setting(None, "How often a failed message is retried before it goes to the dead-letter queue. None uses the group's setting, 16 by default; with `ordered=True`, retries never end.", check=between(0, _MAX_INT))
    retry_backoff_s: float | None = setting(None, "How long the first retry of a message waits; each further one waits twice as long. None leaves it to the broker: 10 s, 30 s, 1 min … With order by key, `suspend_s` is the default. Does not apply to `ordered=True`.", check=between(0.001, 86_400))
    retry_backoff_max_s: float = setting(3600.0, "The longest pause before a retry, with `retry_backoff_s`.", check=between(0.001, 259_200))
    retry_jitter: float = setting(0.1, "With `retry_backoff_s`, the part by which a pause is longer or shorter by chance, so that failed messages do not come together.", check=between(0, 1))
    brake_after: int | None = setting(100, "Number of failures in a row after which the consumer pauses, for a second, then longer up to 30 s, and tries again. None never pauses. Does not apply to `ordered`.", check=between(1, 10**9))
    suspend_s: float = setting(1.0, "How long an `ordered` queue, or key, pauses after a failure.", check=between(0.01, 30))
    handler_timeout_s: float = setting(900.0, "How long a handler may run. Then an async one is cancelled, and the thread of a plain one is replaced; its message goes back to the broker. With `ordered`, the queue, or key, waits for a plain one.", check=_INTERVAL_S)
    stop_grace_s: float = setting(30.0, "How long a stop waits for running handlers.", check=between(0, 10**9))
    pull_batch_size: int = setting(32, "Maximum number of messages of one pull. `batch_size` applies if it is larger.", check=between(1, 1024))
    pull_interval_s: float = setting(0.0, "Pause after each pull that returned messages.", check=between(0, 65.535))
    queue_span: int = setting(2000, "Distance between a queue's first and last offset in the client above which the queue is not pulled. Does not apply to `ordered`.", check=between(1, 65_535))
    topic_messages: int | None = setting(None, "Limit of waiting messages per topic, divided by the number of assigned queues. Replaces `queue_messages`.", check=between(1, 6_553_500))
    topic_bytes: int | None = setting(None, "Limit of waiting bytes per topic, divided by the number of assigned queues. Replaces `queue_bytes`.", check=between(1, 102_400 * _MIB))
    codec: Codec = setting(JSON, "How typed handlers decode bodies, unless they or their router have a codec: `JSON`, `MSGPACK`, or your own.", check=IS_CODEC)
    trace: bool = setting(False, "Report every message to the trace topic.")
    trace_topic: str = setting(TRACE_TOPIC, "Trace topic, with `trace`.")
    commit_interval_s: float = setting(5.0, "How often offsets are committed, apart from those that pulls carry.", check=_INTERVAL_S)

    # fmt: on
    @property
    def is_ordered(self) -> bool:
        return self.ordered is not False

    @property
    def key_of(self) -> KeyOf | None:
        """The key of a message, for an order by key."""
        if isinstance(self.ordered, bool):
            return None
        return self.ordered if callable(self.ordered) else key_of_message

    @property
    def backoff_of_keys(self) -> Backoff:
        return Backoff(self.retry_backoff_s or self.suspend_s, self.retry_backoff_max_s, self.retry_jitter)

    @property
    def backoff(self) -> Backoff | None:
        if self.retry_backoff_s is None:
            return None
        return Backoff(self.retry_backoff_s, self.retry_backoff_max_s, self.retry_jitter)

    @property
    def messages_per_pull(self) -> int:
        return max(self.pull_batch_size, self.batch_size or 1)

    @property
    def thresholds(self) -> Thresholds:
        if self.mode == "pop":
            return Thresholds(min(self.queue_messages, _MAX_POPPED), self.queue_bytes, None)
        return Thresholds(self.queue_messages, self.queue_bytes, None if self.is_ordered else self.queue_span)

    def verify_together(self) -> None:
        if self.batch_wait_s and self.is_ordered:
            raise ConfigError("batch_wait_s", self.batch_wait_s, "0 with ordered: queues are handled alone")
        if self.batch_wait_s and self.batch_size is None:
            raise ConfigError("batch_wait_s", self.batch_wait_s, "0 without batch_size")
        if self.mode == "pull":
            return
        if self.key_of is not None:
            raise ConfigError("ordered", self.ordered, 'True or False with mode="pop"')
        if self.broadcast:
            raise ConfigError("broadcast", True, 'False with mode="pop"')
        if self.pull_batch_size > MAX_POPPED_AT_ONCE:
            raise ConfigError(
                "pull_batch_size", self.pull_batch_size, f'at most {MAX_POPPED_AT_ONCE} with mode="pop"'
            )


class PushOptions(ConsumerOptions, total=False):
    """Made from PushSettings by `make docs`, for editors and type checkers."""

    mode: Literal['pull', 'pop']
    invisible_s: float
    ordered: Ordered
    concurrency: int
    batch_size: int | None
    batch_wait_s: float
    max_retries: int | None
    retry_backoff_s: float | None
    retry_backoff_max_s: float
    retry_jitter: float
    brake_after: int | None
    suspend_s: float
    handler_timeout_s: float
    stop_grace_s: float
    pull_batch_size: int
    pull_interval_s: float
    queue_span: int
    topic_messages: int | None
    topic_bytes: int | None
    codec: Codec
    trace: bool
    trace_topic: str
    commit_interval_s: float


# fmt: off
@dataclass(frozen=True, slots=True, kw_only=True)
class PullSettings(ConsumerSettings):
    auto_commit: bool = setting(True, "Let `poll` mark the messages of the previous call as done. They are committed every `auto_commit_interval_s`.")
    auto_commit_interval_s: float = setting(5.0, "How often offsets are committed, with `auto_commit`.", check=between(1, 10**9))
    pull_batch_size: int = setting(10, "Maximum number of messages of one pull.", check=between(1, 1024))
    all_messages: int = setting(10_000, "Number of messages of all queues waiting in the client above which nothing is pulled.", check=between(1, 10**9))

    # fmt: on
    @property
    def thresholds(self) -> Thresholds:
        return Thresholds(self.queue_messages, self.queue_bytes, None)


class PullOptions(ConsumerOptions, total=False):
    """Made from PullSettings by `make docs`, for editors and type checkers."""

    auto_commit: bool
    auto_commit_interval_s: float
    pull_batch_size: int
    all_messages: int


# fmt: off
@dataclass(frozen=True, slots=True, kw_only=True)
class SimpleSettings(Options):
    start_from: StartFrom = setting("last", 'Where to start in queues that the group has never read: "first", "last" or a datetime.', check=_START)
    invisible_s: float = setting(60.0, "How long a received message is hidden from other members, unless `receive` sets another time.", check=between(0.01, 259_200))
    ordered: bool = setting(False, "Receive the messages of each queue in order: the next ones of a queue come when all that were received from it are acknowledged.")
    max_retries: int | None = setting(None, "Maximum number of retries of a message before it becomes a dead letter. `start` gives the group this number; None leaves the group as it is.", check=between(0, 10**6))
    wait_s: float = setting(15.0, "How long `receive` waits for a message, unless the call sets another time.", check=between(0, 600))
    otel: bool = setting(False, "Create OpenTelemetry spans in `receive`, with links to the traces of messages. Needs `pyromq[otel]`.")
# fmt: on


class SimpleOptions(ClientOptions, total=False):
    """Made from SimpleSettings by `make docs`, for editors and type checkers."""

    start_from: StartFrom
    invisible_s: float
    ordered: bool
    max_retries: int | None
    wait_s: float
    otel: bool
