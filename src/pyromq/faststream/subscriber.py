"""Subscribers: each has a group, which takes messages of a topic. They are renewed while handlers run."""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from faststream._internal.configs import SubscriberSpecificationConfig, SubscriberUsecaseConfig
from faststream._internal.constants import EMPTY
from faststream._internal.endpoint.subscriber import SubscriberSpecification
from faststream._internal.endpoint.subscriber.call_item import CallsCollection
from faststream._internal.endpoint.subscriber.mixins import TasksMixin
from faststream._internal.endpoint.utils import process_msg
from faststream.message import StreamMessage
from faststream.middlewares import AckPolicy
from faststream.specification.asyncapi.utils import resolve_payloads
from faststream.specification.schema import Message, Operation, SubscriberSpec

from pyromq.client.consumer.reading.offsets import StartFrom
from pyromq.client.consumer.reading.subscriptions import Expression, Subscription
from pyromq.client.values import ReceivedMessage
from pyromq.errors import ConfigError
from pyromq.faststream.config import RocketBrokerConfig
from pyromq.faststream.message import DEFAULT_RETRY_S, RocketMessage, decoded, parsed
from pyromq.faststream.publisher import ReplyPublisher
from pyromq.tasks.intake import Intake, TaskReading
from pyromq.tasks.names import legal

_GROUP_PREFIX = "FASTSTREAM_"


@dataclass(kw_only=True)
class SubscriberOptions:
    """Arguments of `subscriber`.

    `group`: None is `FASTSTREAM_` and the topic. Subscribers with the same group share the messages. `tags`:
    as in "Created || Paid", or `Sql("price > 10")`. `start_from`: where a new group begins, "last", "first"
    or a datetime. `max_workers`: how many handlers run at a time. `prefetch`: how many messages are here,
    those that are handled included. `retry_s`: when a refused message is delivered again. The others are
    those of FastStream's own brokers.
    """

    group: str | None = None
    tags: Expression = "*"
    start_from: StartFrom = "last"
    max_workers: int = 1
    prefetch: int = 16
    retry_s: float = DEFAULT_RETRY_S
    ack_policy: AckPolicy = EMPTY
    no_reply: bool = False
    dependencies: Sequence[Any] = ()
    parser: Any = None
    decoder: Any = None
    codec: Any = None
    persistent: bool = True
    title: str | None = None
    description: str | None = None
    include_in_schema: bool = True

    def __post_init__(self) -> None:
        Subscription.of("", self.tags, 0)
        for name, value, least in (("max_workers", self.max_workers, 1), ("prefetch", self.prefetch, 1)):
            if value < least:
                raise ConfigError(name, value, f"at least {least}")
        if self.retry_s <= 0:
            raise ConfigError("retry_s", self.retry_s, "more than 0")


@dataclass(kw_only=True)
class RocketSubscriberConfig(SubscriberUsecaseConfig):
    _outer_config: RocketBrokerConfig = field(default_factory=RocketBrokerConfig)
    topic: str
    options: SubscriberOptions

    @property
    def ack_policy(self) -> AckPolicy:
        for chosen in (self._ack_policy, self._outer_config.ack_policy):
            if chosen is not EMPTY:
                return chosen
        return AckPolicy.NACK_ON_ERROR


@dataclass(kw_only=True)
class TopicSubscriberSpecificationConfig(SubscriberSpecificationConfig):
    topic: str


class RocketSubscriberSpecification(
    SubscriberSpecification[RocketBrokerConfig, TopicSubscriberSpecificationConfig]
):
    @property
    def topic(self) -> str:
        return f"{self._outer_config.prefix}{self.config.topic}"

    @property
    def channel_labels(self) -> list[str]:
        return [self.topic]

    def get_schema(self) -> dict[str, SubscriberSpec]:
        payload = resolve_payloads(self.get_payloads())
        return {
            self.name: SubscriberSpec(
                address=self.topic,
                description=self.description,
                operation=Operation(
                    message=Message(title=f"{self.name}:Message", payload=payload), bindings=None
                ),
                bindings=None,
            )
        }


class TopicSubscriber(TasksMixin):
    """Made by `broker.subscriber`."""

    _outer_config: RocketBrokerConfig

    def __init__(
        self,
        config: RocketSubscriberConfig,
        specification: SubscriberSpecification[Any, Any],
        calls: CallsCollection[ReceivedMessage],
    ) -> None:
        config.parser, config.decoder = self._parsed, decoded
        super().__init__(config, specification, calls)
        self.options, self._own_topic = config.options, config.topic
        self._intake: Intake | None = None

    @property
    def topic(self) -> str:
        return f"{self._outer_config.prefix}{self._own_topic}"

    @property
    def group(self) -> str:
        return self.options.group or f"{_GROUP_PREFIX}{legal(self.topic)}"

    def get_log_context(self, message: StreamMessage[Any] | None) -> dict[str, str]:
        found = super().get_log_context(message)
        return {"topic": self.topic, "group": self.group, **found}

    async def _parsed(self, raw: ReceivedMessage) -> RocketMessage:
        message = await parsed(raw)
        message.intake, message.retry_s = self._intake, self.options.retry_s
        return message

    def _make_response_publisher(self, message: StreamMessage[Any]) -> Sequence[ReplyPublisher]:
        assert isinstance(message, RocketMessage), message
        return (ReplyPublisher(self._outer_config.producer, message),)

    # Beginning and end

    def _check_group(self) -> None:
        """Members of a group must read the same: brokers keep one subscription for all of them."""
        own = (self.topic, self.options.tags)
        for other in self._outer_config.extra_context["broker"].subscribers:
            if other.group == self.group and (other.topic, other.options.tags) != own:
                raise ConfigError(
                    "group", self.group, f"another name: {other.topic} {other.options.tags} has this one"
                )

    async def start(self) -> None:
        self._check_group()
        if self._intake is None and not self._outer_config.is_in_memory:
            options, link = self.options, self._outer_config.link
            limit = max(options.prefetch, options.max_workers)
            intake = Intake(
                link,
                [self.topic],
                limit,
                reading=TaskReading(self.group, options.tags, options.start_from),
            )
            try:
                await intake.join()
            except BaseException:
                await intake.close()
                raise
            self._intake = intake
        await super().start()
        if self.calls and self._intake is not None:
            self._intake.start()
            for _ in range(self.options.max_workers):
                self.add_task(self._work)
        self._post_start()

    async def stop(self) -> None:
        """Take nothing more, wait for the handlers, give back what is left."""
        self.running = False
        intake = self._intake
        if intake is not None:
            await intake.stop()
        await super(TasksMixin, self).stop()
        if intake is not None:
            self._intake = None
            await intake.close()
        for task in self.tasks:
            task.cancel()
        self.tasks.clear()

    # Messages

    async def _work(self) -> None:
        intake = self._intake
        while intake is not None and (taken := await intake.next()) is not None:
            await self.consume(taken.message)

    async def get_one(self, *, timeout: float = 5.0) -> RocketMessage | None:
        """The next message, for a subscriber without handlers; acknowledge it, unless `ack_policy` is
        ACK_FIRST."""
        assert not self.calls, "get_one is for subscribers without handlers"
        return await self._next(timeout)

    async def __aiter__(self) -> AsyncIterator[RocketMessage]:
        assert not self.calls, "a subscriber with handlers cannot be iterated"
        while (message := await self._next(None)) is not None:
            yield message

    async def _next(self, wait_s: float | None) -> RocketMessage | None:
        if self._intake is None:
            await self.start()
        intake = self._intake
        assert intake is not None
        if not intake.is_started:
            intake.start()
        taken = await intake.next(wait_s)
        raw = None if taken is None else taken.message
        parser, decoder = self._get_parser_and_decoder()
        context = self._outer_config.context
        message: Any = await process_msg(
            msg=raw,
            middlewares=(each(raw, context=context) for each in self._broker_middlewares),
            parser=parser,
            decoder=decoder,
        )
        if message is not None and self.ack_policy is AckPolicy.ACK_FIRST:
            await message.ack()
        found: RocketMessage | None = message
        return found
