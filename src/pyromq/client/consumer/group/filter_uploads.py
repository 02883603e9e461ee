"""Uploads the filters of a group to the filter servers in the routes of its topics."""

import logging
from collections.abc import Collection

from pyromq.client.consumer.reading.subscriptions import Subscription
from pyromq.client.session import Session
from pyromq.cluster.routes import Route
from pyromq.errors import ConfigError, PyroError
from pyromq.protocol.names import MASTER_ID
from pyromq.protocol.requests.filter_servers import UploadFilter

_log = logging.getLogger(__name__)

_TIMEOUT_S = 30.0
"""A filter server tries a filter before it answers."""


async def upload_filter(session: Session, group: str, subscription: Subscription, route: Route) -> None:
    """Upload the filter to all filter servers; raises if a broker has none, or one refuses the filter."""
    if subscription.filter is None:
        return
    if _without(route):  # one may have come meanwhile
        route = await session.routes.refresh(subscription.topic)
    if brokers := _without(route):
        raise ConfigError(
            "filter",
            subscription.filter.name,
            f"a filter server next to each broker of {subscription.topic}: the route has none of"
            f" {', '.join(brokers)}. See filterServerNums",
        )
    await _upload(session, group, subscription, route)


async def upload_again(session: Session, group: str, subscriptions: Collection[Subscription]) -> None:
    """A filter server has started again, or has forgotten the filter."""
    for subscription in subscriptions:
        route = session.routes.cached(subscription.topic)
        if subscription.filter is None or route is None:
            continue
        try:
            await _upload(session, group, subscription, route)
        except PyroError as problem:
            _log.warning("filter not uploaded topic=%s: %s", subscription.topic, problem)


async def _upload(session: Session, group: str, subscription: Subscription, route: Route) -> None:
    uploaded = subscription.filter
    assert uploaded is not None
    request = UploadFilter(
        consumer_group=group,
        topic=subscription.topic,
        class_name=uploaded.name,
        class_crc=uploaded.crc,
        body=uploaded.source,
    )
    for address in sorted({each for servers in route.filter_servers.values() for each in servers}):
        await session.call(address, request, _TIMEOUT_S)


def _without(route: Route) -> list[str]:
    """The brokers of a route without a filter server."""
    return sorted(
        name
        for name, addresses in route.brokers.items()
        if MASTER_ID in addresses and not route.filter_servers.get(addresses[MASTER_ID])
    )
