"""Where subscribers and publishers are declared: brokers and routers."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, cast

from faststream._internal.broker.registrator import Registrator
from faststream._internal.broker.router import ArgsContainer, BrokerRouter, SubscriberRoute
from faststream._internal.constants import EMPTY
from faststream._internal.endpoint.subscriber.call_item import CallsCollection
from faststream.middlewares import AckPolicy

from pyromq.client.values import ReceivedMessage
from pyromq.faststream.config import RocketBrokerConfig
from pyromq.faststream.publisher import (
    PublisherOptions,
    RocketPublisherConfig,
    RocketPublisherSpecification,
    TopicPublisher,
    TopicSpecificationConfig,
)
from pyromq.faststream.subscriber import (
    RocketSubscriberConfig,
    RocketSubscriberSpecification,
    SubscriberOptions,
    TopicSubscriber,
    TopicSubscriberSpecificationConfig,
)


class RocketRegistrator(Registrator[ReceivedMessage, RocketBrokerConfig]):
    def subscriber(self, topic: str, **given: Any) -> TopicSubscriber:  # type: ignore[override]
        """Handle the messages of a topic. `given`: the fields of `SubscriberOptions`."""
        options, config = SubscriberOptions(**given), cast(RocketBrokerConfig, self.config)
        calls = CallsCollection[ReceivedMessage]()
        subscriber = TopicSubscriber(
            RocketSubscriberConfig(
                _outer_config=config,
                _ack_policy=options.ack_policy,
                no_reply=options.no_reply,
                topic=topic,
                options=options,
            ),
            RocketSubscriberSpecification(
                config,
                TopicSubscriberSpecificationConfig(
                    topic=topic,
                    title_=options.title,
                    description_=options.description,
                    include_in_schema=options.include_in_schema,
                ),
                calls,
            ),
            calls,
        )
        super().subscriber(subscriber, persistent=options.persistent)
        return subscriber.add_call(
            parser_=options.parser or self._parser,
            decoder_=options.decoder or self._decoder,
            codec_=options.codec,
            dependencies_=options.dependencies,
        )

    def publisher(self, topic: str, **given: Any) -> TopicPublisher:  # type: ignore[override]
        """Send the results of handlers to a topic. `given`: fields of `PublisherOptions` and of messages."""
        options, config = PublisherOptions.of(given), cast(RocketBrokerConfig, self.config)
        publisher = TopicPublisher(
            RocketPublisherConfig(_outer_config=config, topic=topic, options=options),
            RocketPublisherSpecification(
                config,
                TopicSpecificationConfig(
                    topic=topic,
                    schema_=options.schema,
                    title_=options.title,
                    description_=options.description,
                    include_in_schema=options.include_in_schema,
                ),
            ),
        )
        super().publisher(publisher, persistent=options.persistent)
        return publisher

    def include_router(self, router: Registrator[Any, Any], **options: Any) -> None:
        if not isinstance(router, RocketRegistrator):
            raise TypeError(f"a router of RocketMQ is expected, not {type(router).__name__}")
        super().include_router(router, **options)


class RocketPublisher(ArgsContainer):
    """A publisher of a `RocketRoute`: the arguments of `broker.publisher`."""

    def __init__(self, topic: str, **options: Any) -> None:
        super().__init__(topic, **options)


class RocketRoute(SubscriberRoute):
    """A handler and the arguments of `broker.subscriber`, for `RocketRouter(handlers=…)`."""

    def __init__(
        self,
        call: Callable[..., Any],
        topic: str,
        *,
        publishers: Iterable[RocketPublisher] = (),
        **options: Any,
    ) -> None:
        super().__init__(call, topic, publishers=publishers, **options)


@dataclass(kw_only=True)
class RouterOptions:
    """Arguments of routers besides prefix and handlers, as FastStream's own do."""

    dependencies: Sequence[Any] = ()
    middlewares: Sequence[Any] = ()
    routers: Iterable[RocketRegistrator] = ()
    parser: Any = None
    decoder: Any = None
    codec: Any = None
    include_in_schema: bool | None = None
    ack_policy: AckPolicy = EMPTY


class RocketRouter(RocketRegistrator, BrokerRouter[ReceivedMessage, RocketBrokerConfig]):
    """Subscribers and publishers that a broker includes: `broker.include_router(router)`.

    `given`: the fields of `RouterOptions`.
    """

    def __init__(self, prefix: str = "", handlers: Iterable[RocketRoute] = (), **given: Any) -> None:
        options = RouterOptions(**given)
        super().__init__(
            handlers=handlers,
            config=RocketBrokerConfig(
                prefix=prefix,
                ack_policy=options.ack_policy,
                broker_dependencies=options.dependencies,
                broker_middlewares=options.middlewares,
                broker_parser=options.parser,
                broker_decoder=options.decoder,
                broker_codec=options.codec,
                include_in_schema=options.include_in_schema,
            ),
            routers=options.routers,
        )
