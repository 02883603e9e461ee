"""FastStream's broker as a router of FastAPI. Needs `fastapi`."""

from collections.abc import Callable, Iterable
from typing import Any, cast

from fastapi.datastructures import Default
from faststream import ContextRepo
from faststream._internal.fastapi.router import StreamRouter

from pyromq.client.values import ReceivedMessage
from pyromq.faststream.broker import RocketBroker
from pyromq.faststream.publisher import TopicPublisher
from pyromq.faststream.subscriber import TopicSubscriber

_RESPONSE: dict[str, Any] = {
    "dependencies": (),
    "response_model": Default(None),
    "response_model_include": None,
    "response_model_exclude": None,
    "response_model_by_alias": True,
    "response_model_exclude_unset": False,
    "response_model_exclude_defaults": False,
    "response_model_exclude_none": False,
}
"""FastAPI's defaults."""


class FastApiRouter(StreamRouter[ReceivedMessage]):
    """`router = FastApiRouter("127.0.0.1:9876")`, then `app = FastAPI(); app.include_router(router)`.

    `options`: those of `RocketBroker` and of FastAPI's `APIRouter`, which has `tags`; tags of the
    specification are `specification_tags`.
    """

    broker_class = RocketBroker
    broker: RocketBroker

    def __init__(
        self,
        namesrv: str | Iterable[str] | None = None,
        *,
        context: ContextRepo | None = None,
        **options: Any,
    ) -> None:
        super().__init__(namesrv, context=context, **options)

    def subscriber(self, topic: str, **given: Any) -> TopicSubscriber:  # type: ignore[override]
        """`given`: `SubscriberOptions`, and FastAPI's `response_model` with what belongs to it."""
        made: Callable[..., Any] = super().subscriber(topic, **(_RESPONSE | given))
        return cast(TopicSubscriber, made)

    def publisher(  # type: ignore[override]
        self, topic: str, **options: Any
    ) -> TopicPublisher:
        """`options`: those of the broker's `publisher`."""
        return self.broker.publisher(topic, **options)
