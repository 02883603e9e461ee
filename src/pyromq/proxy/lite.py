"""Subscriptions to lite topics: every broker of the parent topic learns which ones a client reads.

A client says every half minute all that it reads, so brokers and fronts may come and go.
"""

import asyncio
import logging
from typing import Any

from pyromq.errors import PyroError
from pyromq.protocol.lite import lite_group
from pyromq.protocol.requests.lite import (
    ChangeLiteSubscriptions,
    LiteSubscriptionAction,
    LiteSubscriptionCtlRequestBody,
    LiteSubscriptionDTO,
    OffsetOption,
    OffsetOptionType,
)
from pyromq.proxy.checks import check_group, check_lite_topic, check_topic
from pyromq.proxy.clients import FrontClient
from pyromq.proxy.codes import OK, Code, Rejected
from pyromq.proxy.context import FrontContext
from pyromq.proxy.grpc.call import Call
from pyromq.proxy.membership import ProxyMembership
from pyromq.proxy.messages import enum_values, message

_log = logging.getLogger(__name__)

_Answer = message("SyncLiteSubscriptionResponse")
_ACTIONS = {
    number: LiteSubscriptionAction(name) for name, number in enum_values("LiteSubscriptionAction").items()
}


class ProxyLiteTopics:
    def __init__(self, context: FrontContext, membership: ProxyMembership) -> None:
        self._cluster = context.cluster
        self._topics = context.topics
        self._clients = context.clients
        self._settings = context.settings
        self._timeout_s = context.settings.send_timeout_ms / 1000
        self._membership = membership
        self._leaving: set[asyncio.Task[None]] = set()

    async def sync(self, request: Any, call: Call) -> Any:
        topic, group = check_topic(request.topic.name), check_group(request.group.name)
        names = {check_lite_topic(each, self._settings) for each in request.lite_topic_set}
        action = _ACTIONS.get(request.action)
        if action is None:
            raise Rejected(Code.BAD_REQUEST, f"the action {request.action} is not known")
        client = await self._clients.known(call)
        # Before anything is looked up: an error would say whether a topic of others exists.
        self._cluster.admit_consumer(topic, group, call)
        bound = lite_group((await self._topics.group(group)).attributes)
        if bound is None or bound.topic != topic:
            to = "no topic" if bound is None else bound.topic
            raise Rejected(Code.ILLEGAL_TOPIC, f"the group {group} is bound to {to}, not to {topic}")
        change = LiteSubscriptionDTO(
            action=action,
            client_id=client.client_id,
            group=group,
            lite_topic_set=names,
            offset_option=_option(request),
            topic=topic,
            version=request.version,
        )
        await self._tell(client, change)
        return _Answer(status=OK)

    async def _tell(self, client: FrontClient, change: LiteSubscriptionDTO) -> None:
        """Raises the first refusal of a broker."""
        route = await self._cluster.route(change.topic)
        names = dict.fromkeys(route.broker_of(queue) for queue in route.subscribe_queues)
        asked = ChangeLiteSubscriptions(body=LiteSubscriptionCtlRequestBody(subscription_set=[change]))
        # On the client's own connections: brokers send notices there.
        calls = (self._membership.call(client, name, asked, self._timeout_s) for name in names)
        for answered in await asyncio.gather(*calls, return_exceptions=True):
            if isinstance(answered, BaseException):
                raise answered

    def leave(self, client: FrontClient) -> None:
        """Others may read what this client has read."""
        if client.is_lite:
            task = asyncio.get_running_loop().create_task(self._leave(client))
            self._leaving.add(task)
            task.add_done_callback(self._leaving.discard)

    async def _leave(self, client: FrontClient) -> None:
        for topic in client.topics:
            change = LiteSubscriptionDTO(
                action=LiteSubscriptionAction.COMPLETE_REMOVE,
                client_id=client.client_id,
                group=client.group,
                topic=topic,
            )
            asked = ChangeLiteSubscriptions(body=LiteSubscriptionCtlRequestBody(subscription_set=[change]))
            try:
                route = await self._cluster.route(topic)
                for name in dict.fromkeys(route.broker_of(queue) for queue in route.subscribe_queues):
                    await self._cluster.call(name, asked, None)
            except PyroError as problem:
                # Brokers forget a silent client after a while.
                _log.info("a lite client left quietly client=%s: %s", client.client_id, problem)

    async def close(self) -> None:
        if self._leaving:
            await asyncio.wait(self._leaving)


def _option(request: Any) -> OffsetOption | None:
    if not request.HasField("offset_option"):
        return None
    kind = request.offset_option.WhichOneof("offset_type")
    if kind is None:
        return None
    return OffsetOption(type=OffsetOptionType(kind.upper()), value=getattr(request.offset_option, kind))
