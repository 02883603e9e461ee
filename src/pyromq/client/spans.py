"""OpenTelemetry spans of sends and handlers; the trace context travels in the properties of messages.

Imported only by clients with `otel=True`. Names, kinds and attributes are those of the semantic conventions
for messaging: https://opentelemetry.io/docs/specs/semconv/messaging/rocketmq/
"""

import inspect
from collections.abc import Awaitable, Callable, Coroutine, Hashable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import wraps
from typing import Any, TypeVar

import msgspec

from pyromq.client.values import Message, ReceivedMessage, SendResult
from pyromq.errors import ConfigError
from pyromq.protocol import properties as props
from pyromq.version import version

try:
    from opentelemetry import propagate, trace
    from opentelemetry.context import Context
    from opentelemetry.trace import Link, Span, SpanKind
    from opentelemetry.util.types import AttributeValue
except ImportError as _problem:
    raise ConfigError(
        "otel", True, f"OpenTelemetry: pip install 'pyromq[otel]' ({_problem.name} is not there)"
    ) from None

_SCHEMA = "https://opentelemetry.io/schemas/1.44.0"
_MAX_LINKS = 128
"""As many as SDKs keep by default."""

Attributes = dict[str, AttributeValue]
M = TypeVar("M", bound=ReceivedMessage)
T = TypeVar("T")


# The application may set its provider later; this tracer then uses it.
_tracer = trace.get_tracer("pyromq", version(), schema_url=_SCHEMA)

OfClient = Callable[[str | None], Mapping[str, AttributeValue]]
"""The attributes of a client and, where it is known, of the broker with this name."""


class SendSpans:
    """The spans of one producer."""

    def __init__(self, of_client: OfClient) -> None:
        self._of_client = of_client

    def __repr__(self) -> str:
        return "<SendSpans>"

    def around(
        self, method: Callable[..., Coroutine[Any, Any, T]], name: str = "send"
    ) -> Callable[..., Coroutine[Any, Any, T]]:
        """A method that sends, in a span; `name`: as applications know it."""

        async def traced(message: Any, *args: Any, **options: Any) -> T:
            sending: AbstractContextManager[tuple[Span, object]]
            if isinstance(message, Message):
                sending = _sending_one(message, name, options, self._of_client(None))
            elif (
                isinstance(message, Sequence)
                and all(isinstance(each, Message) for each in message)
                and message
            ):
                sending = _sending_many(message, self._of_client(None))
            else:
                return await method(message, *args, **options)  # which refuses it
            with sending as (span, carrying):
                result = await method(carrying, *args, **options)
                _note_result(span, getattr(result, "result", result), self._of_client)
                return result

        return traced


@contextmanager
def _sending_one(
    message: Message, method: str, options: dict[str, Any], of_client: Mapping[str, AttributeValue]
) -> Iterator[tuple[Span, Message]]:
    own = _links([message.properties])
    attributes = {
        **_attributes("send", message.topic),
        **of_client,
        **_of_message(message, method, options),
    }
    # The context of this span travels with the message, unless the application gave it another one.
    kind = SpanKind.CLIENT if own else SpanKind.PRODUCER
    with _span(f"send {message.topic}", kind, attributes, own) as span:
        yield span, message if own else _carrying_context(message)


@contextmanager
def _sending_many(
    messages: Sequence[Message], of_client: Mapping[str, AttributeValue]
) -> Iterator[tuple[Span, list[Message]]]:
    topic = messages[0].topic
    carrying = []
    for message in messages:
        if not _links([message.properties]):
            attributes = {**_attributes("create", topic), **of_client, **_of_message(message, "send", {})}
            with _span(f"create {topic}", SpanKind.PRODUCER, attributes, []):
                message = _carrying_context(message)
        carrying.append(message)
    attributes = {
        **_attributes("send", topic),
        **of_client,
        "messaging.batch.message_count": len(messages),
    }
    links = _links([message.properties for message in carrying])
    with _span(f"send {topic}", SpanKind.CLIENT, attributes, links) as span:
        yield span, carrying


def _note_result(span: Span, result: object, of_client: OfClient) -> None:
    if isinstance(result, list) and result:
        result = result[0]
    elif isinstance(result, SendResult):
        span.set_attribute("messaging.message.id", result.message_id)
        span.set_attribute("messaging.destination.partition.id", str(result.queue.queue_id))
    if isinstance(result, SendResult) and span.is_recording():
        span.set_attributes(of_client(result.queue.broker_name))


def _carrying_context(message: Message) -> Message:
    carried: dict[str, str] = {}
    propagate.inject(carried)
    if not carried:
        return message
    return msgspec.structs.replace(message, properties={**message.properties, **carried})


def _of_message(message: Message, method: str, options: dict[str, Any]) -> Attributes:
    known: Attributes = {"messaging.rocketmq.message.type": "normal"}
    if message.is_delayed or options.get("delay") or options.get("deliver_at"):
        known["messaging.rocketmq.message.type"] = "delay"
        if message.delay_level:
            known["messaging.rocketmq.message.delay_time_level"] = message.delay_level
        if message.deliver_at_ms is not None:
            known["messaging.rocketmq.message.delivery_timestamp"] = message.deliver_at_ms
    elif method == "prepare":
        known["messaging.rocketmq.message.type"] = "transaction"
    elif options.get("sharding_key") is not None:
        known["messaging.rocketmq.message.type"] = "fifo"
        known["messaging.rocketmq.message.group"] = str(options["sharding_key"])
    if message.tags:
        known["messaging.rocketmq.message.tag"] = message.tags
    if message.keys:
        keys = message.keys.split() if isinstance(message.keys, str) else message.keys
        known["messaging.rocketmq.message.keys"] = list(keys)
    return known


class ConsumeSpans:
    """The spans of one consumer: `receive` for messages that it asked for, `process` around handlers."""

    def __init__(self, group: str, *, is_broadcast: bool, namespace: str | None) -> None:
        self._attributes: Attributes = {
            "messaging.consumer.group.name": group,
            "messaging.rocketmq.consumption_model": "broadcasting" if is_broadcast else "clustering",
            "messaging.rocketmq.namespace": namespace or "",
        }

    def __repr__(self) -> str:
        return f"<ConsumeSpans {self._attributes}>"

    def around(self, handler: Callable[[Any], Any], *, is_async: bool) -> Callable[[Any], Any]:
        """The handler with a `process` span around each call."""
        attributes = self._attributes

        async def traced(messages: Any) -> None:
            with processing(messages, attributes):
                await handler(messages)

        def traced_plain(messages: Any) -> Any:
            with processing(messages, attributes):
                outcome = handler(messages)
            return outcome if not inspect.isawaitable(outcome) else awaited(messages, outcome)

        async def awaited(messages: Any, outcome: Awaitable[Any]) -> None:
            # A plain function that returned a coroutine: the work is done here.
            with processing(messages, attributes):
                await outcome

        return wraps(handler)(traced if is_async else traced_plain)

    def receiving(self, poll: Callable[..., Awaitable[list[M]]]) -> Callable[..., Awaitable[list[M]]]:
        """A `poll` with a span for each time it returns messages; waiting is not part of it."""

        @wraps(poll)
        async def traced(*args: Any, **options: Any) -> list[M]:
            messages = await poll(*args, **options)
            if messages:
                self._received(messages, {"messaging.batch.message_count": len(messages)})
            return messages

        return traced

    def receiving_one(
        self, take: Callable[..., Awaitable[ReceivedMessage | None]]
    ) -> Callable[..., Awaitable[ReceivedMessage | None]]:
        """The same for a stream, which returns one message at a time."""

        @wraps(take)
        async def traced(reader: Hashable) -> ReceivedMessage | None:
            message = await take(reader)
            if message is not None:
                self._received([message], _of_received(message))
            return message

        return traced

    def _received(self, messages: Sequence[ReceivedMessage], more: Attributes) -> None:
        topic = messages[0].topic
        known = {**_attributes("receive", topic), **self._attributes, **_of_queue(messages[0]), **more}
        links = _links([message.properties for message in messages])
        with _span(f"receive {topic}", SpanKind.CLIENT, known, links):
            pass


@contextmanager
def processing(
    messages: ReceivedMessage | Sequence[ReceivedMessage], more: Attributes | None = None
) -> Iterator[Span]:
    """A `process` span; the trace of a single message continues in it."""
    several = [messages] if isinstance(messages, ReceivedMessage) else list(messages)
    first = several[0]
    attributes = {**_attributes("process", first.topic), **(more or {}), **_of_queue(first)}
    parent = Context()  # not the span in which the consumer happened to be started
    if isinstance(messages, ReceivedMessage):
        attributes |= _of_received(first)
        parent = propagate.extract(first.properties, parent)
    else:
        attributes["messaging.batch.message_count"] = len(several)
    links = _links([message.properties for message in several])
    with _span(f"process {first.topic}", SpanKind.CONSUMER, attributes, links, parent) as span:
        yield span


def _of_received(message: ReceivedMessage) -> Attributes:
    known: Attributes = {"messaging.message.id": message.message_id}
    if message.tags:
        known["messaging.rocketmq.message.tag"] = message.tags
    if message.keys:
        known["messaging.rocketmq.message.keys"] = list(message.keys)
    if message.reconsume_times:
        known["messaging.rocketmq.message.reconsume_times"] = message.reconsume_times
    if (key := message.get(props.SHARDING_KEY)) is not None:
        known["messaging.rocketmq.message.group"] = key
    return known


def _of_queue(message: ReceivedMessage) -> Attributes:
    host = message.store_host
    return {
        "messaging.destination.partition.id": str(message.queue.queue_id),
        "server.address": host.ip_text,
        "server.port": host.port,
    }


def _attributes(operation: str, topic: str) -> Attributes:
    return {
        "messaging.system": "rocketmq",
        "messaging.operation.name": operation,
        "messaging.operation.type": operation,
        "messaging.destination.name": topic,
    }


@contextmanager
def _span(
    name: str, kind: SpanKind, attributes: Attributes, links: list[Link], parent: Context | None = None
) -> Iterator[Span]:
    with _tracer.start_as_current_span(
        name, context=parent, kind=kind, attributes=attributes, links=links
    ) as span:
        try:
            yield span
        except BaseException as problem:
            span.set_attribute("error.type", type(problem).__qualname__)
            raise


def _links(all_properties: Sequence[Any]) -> list[Link]:
    """The spans in which messages were created."""
    links = []
    for properties in filter(None, all_properties[:_MAX_LINKS]):
        created = trace.get_current_span(propagate.extract(properties, Context())).get_span_context()
        if created.is_valid:
            links.append(Link(created))
    return links
