"""Publishers: where the results of handlers go."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from faststream._internal.configs import PublisherSpecificationConfig, PublisherUsecaseConfig
from faststream._internal.endpoint.publisher import PublisherSpecification, PublisherUsecase
from faststream._internal.endpoint.publisher.fake import FakePublisher
from faststream.response.publish_type import PublishType
from faststream.response.response import PublishCommand
from faststream.specification.asyncapi.utils import resolve_payloads
from faststream.specification.schema import Message, Operation, PublisherSpec

from pyromq.client.producer import DEFAULT_REQUEST_TIMEOUT_S
from pyromq.client.values import ReceivedMessage
from pyromq.faststream.commands import RocketCommand, checked_fields
from pyromq.faststream.config import RocketBrokerConfig
from pyromq.protocol import properties as props

if TYPE_CHECKING:
    from pyromq.faststream.message import RocketMessage
    from pyromq.faststream.producer import RocketProducer


@dataclass(kw_only=True)
class PublisherOptions:
    """Arguments of `publisher`; `fields` are the tag, keys, … of each message."""

    headers: dict[str, Any] | None = None
    reply_to: str = ""
    persistent: bool = True
    title: str | None = None
    description: str | None = None
    schema: Any = None
    include_in_schema: bool = True
    fields: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, given: dict[str, Any]) -> "PublisherOptions":
        own = {name: value for name, value in given.items() if name in cls.__dataclass_fields__}
        rest = {name: value for name, value in given.items() if name not in own}
        return cls(**own, fields=checked_fields(rest))


@dataclass(kw_only=True)
class TopicSpecificationConfig(PublisherSpecificationConfig):
    topic: str


@dataclass(kw_only=True)
class RocketPublisherConfig(PublisherUsecaseConfig):
    _outer_config: RocketBrokerConfig = field(default_factory=RocketBrokerConfig)
    topic: str
    options: PublisherOptions


class RocketPublisherSpecification(PublisherSpecification[RocketBrokerConfig, TopicSpecificationConfig]):
    @property
    def topic(self) -> str:
        return f"{self._outer_config.prefix}{self.config.topic}"

    @property
    def name(self) -> str:
        return self.config.title_ or f"{self.topic}:Publisher"

    def get_schema(self) -> dict[str, PublisherSpec]:
        payload = resolve_payloads(self.get_payloads(), "Publisher")
        return {
            self.name: PublisherSpec(
                address=self.topic,
                description=self.config.description_,
                operation=Operation(
                    message=Message(title=f"{self.name}:Message", payload=payload), bindings=None
                ),
                bindings=None,
            )
        }


class TopicPublisher(PublisherUsecase):
    """Made by `broker.publisher`."""

    _outer_config: RocketBrokerConfig

    def __init__(
        self, config: RocketPublisherConfig, specification: PublisherSpecification[Any, Any]
    ) -> None:
        super().__init__(config, specification)
        self._topic = config.topic
        self._headers, self._reply_to = config.options.headers or {}, config.options.reply_to
        self._fields = config.options.fields

    @property
    def topic(self) -> str:
        return f"{self._outer_config.prefix}{self._topic}"

    def _command(self, message: Any, topic: str, kind: PublishType, given: dict[str, Any]) -> RocketCommand:
        headers = self._headers | (given.pop("headers", None) or {})
        correlation_id = given.pop("correlation_id", None) or self._outer_config.id_generator()
        reply_to = given.pop("reply_to", "") or ("" if kind is PublishType.REQUEST else self._reply_to)
        timeout_s = given.pop("timeout", 0.0)
        return RocketCommand(
            message,
            destination=topic or self.topic,
            headers=headers,
            correlation_id=correlation_id,
            reply_to=reply_to,
            timeout_s=timeout_s,
            fields=self._fields | checked_fields(given),
            _publish_type=kind,
        )

    async def publish(self, message: Any, topic: str = "", **given: Any) -> Any:
        """`given`: `headers`, `correlation_id`, `reply_to` and the fields of a message."""
        cmd = self._command(message, topic, PublishType.PUBLISH, given)
        return await self._basic_publish(cmd, producer=self._outer_config.producer, _extra_middlewares=())

    async def request(
        self, message: Any, topic: str = "", *, timeout: float = DEFAULT_REQUEST_TIMEOUT_S, **given: Any
    ) -> Any:
        cmd = self._command(message, topic, PublishType.REQUEST, {"timeout": timeout, **given})
        return await self._basic_request(cmd, producer=self._outer_config.producer)

    async def _publish(self, cmd: PublishCommand, *, _extra_middlewares: Iterable[Any]) -> Any:
        """The result of a handler."""
        sent = RocketCommand.from_cmd(cmd)
        sent.destination = sent.destination or self.topic
        sent.reply_to = sent.reply_to or self._reply_to
        sent.add_headers(self._headers, override=False)
        sent.fields = self._fields | sent.fields
        return await self._basic_publish(
            sent, producer=self._outer_config.producer, _extra_middlewares=_extra_middlewares
        )


class ReplyPublisher(FakePublisher):
    """Sends the result of a handler to whoever waits for it: a client, or the topic of `reply_to`."""

    def __init__(self, producer: "RocketProducer", message: "RocketMessage") -> None:
        super().__init__(producer=producer)
        raw: ReceivedMessage = message.raw_message
        self._to = raw if raw.get(props.REPLY_TO_CLIENT) else None
        self._topic = message.reply_to

    def patch_command(self, cmd: PublishCommand) -> RocketCommand:
        sent = RocketCommand.from_cmd(super().patch_command(cmd))
        sent.destination, sent.to = self._topic, self._to
        return sent
