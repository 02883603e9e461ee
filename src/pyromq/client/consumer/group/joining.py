"""Joining with subscriptions: their routes are watched, and brokers are asked whether they can filter."""

import logging
from collections.abc import Callable

from pyromq.client.consumer.group.filter_uploads import upload_filter
from pyromq.client.consumer.reading.subscriptions import TAG, Subscription
from pyromq.client.patience import patiently
from pyromq.client.session import Session
from pyromq.client.troubles import Troubles
from pyromq.cluster.routes import Route
from pyromq.errors import NoRoute, TransportError
from pyromq.protocol.names import MASTER_ID
from pyromq.protocol.requests.membership import CheckClientConfig, CheckClientRequestBody

_log = logging.getLogger(__name__)


class JoinedTopics:
    """The subscriptions of a consumer, by the topic names that brokers know."""

    def __init__(self) -> None:
        self.subscriptions: dict[str, Subscription] = {}
        self._listening: dict[str, Callable[[], None]] = {}

    def __repr__(self) -> str:
        return f"<JoinedTopics {sorted(self.subscriptions)}>"

    def put(self, subscription: Subscription, session: Session, route_changed: Callable[[], None]) -> None:
        """`route_changed` is called whenever the route of the topic changes."""
        topic = subscription.topic
        self._stop_listening(topic)
        self.subscriptions[topic] = subscription
        self._listening[topic] = session.routes.on_change(topic, lambda _: route_changed())

    def remove(self, topic: str) -> None:
        self.subscriptions.pop(topic, None)
        self._stop_listening(topic)

    def close(self) -> None:
        for topic in list(self._listening):
            self._stop_listening(topic)

    def _stop_listening(self, topic: str) -> None:
        stop = self._listening.pop(topic, None)
        if stop is not None:
            stop()


async def look_up(
    session: Session, group: str, subscription: Subscription, troubles: Troubles
) -> Route | None:
    """Find the route of a topic, and ask its brokers whether they can filter; raises if they cannot.

    A topic that does not exist yet is not an error: it may be created later.
    """

    def waiting(problem: TransportError) -> None:
        _log.warning("waiting up to %g s for a name server: %s", session.settings.start_timeout_s, problem)

    try:
        route = await patiently(
            lambda: session.routes.get(subscription.topic), session.settings.start_timeout_s, waiting
        )
    except NoRoute as problem:
        troubles.happened(subscription.topic, problem, "topic has no route yet")
        return None
    if subscription.expression_type != TAG:
        await _check(session, group, subscription, route)
    await upload_filter(session, group, subscription, route)
    return route


async def _check(session: Session, group: str, subscription: Subscription, route: Route) -> None:
    body = CheckClientRequestBody(
        client_id=session.client_id,
        group=group,
        namespace=session.settings.namespace,
        subscription_data=subscription.data(),
    )
    for addresses in route.brokers.values():
        if MASTER_ID in addresses:
            request = CheckClientConfig(body=body)
            await session.call(addresses[MASTER_ID], request, session.settings.call_timeout_s)
