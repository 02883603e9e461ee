"""The stream on which a client gets its settings and commands, its heartbeats and its goodbye.

A stream costs a task for as long as it is open. Clients that prove who they are may have any number of them;
of others each address has a limited number.
"""

import logging
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pyromq.errors import PyroError
from pyromq.protocol.lite import lite_group
from pyromq.protocol.requests.groups import SubscriptionGroupConfig
from pyromq.proxy.checks import check_group, check_topic
from pyromq.proxy.client_settings import for_consumer, for_producer
from pyromq.proxy.clients import Clients, Command, FrontClient
from pyromq.proxy.codes import OK, Code, Rejected
from pyromq.proxy.grpc.call import Call
from pyromq.proxy.grpc.status import GrpcCode, GrpcError
from pyromq.proxy.membership import ProxyMembership
from pyromq.proxy.messages import enum_values, message
from pyromq.proxy.settings import ProxySettings
from pyromq.proxy.topics import ProxyTopics

_log = logging.getLogger(__name__)

_HeartbeatResponse = message("HeartbeatResponse")
_NotifyClientTerminationResponse = message("NotifyClientTerminationResponse")
_CLIENT_TYPES = enum_values("ClientType")
_UNKNOWN_TYPE = _CLIENT_TYPES["CLIENT_TYPE_UNSPECIFIED"]


class Telemetry:
    def __init__(
        self, clients: Clients, membership: ProxyMembership, topics: ProxyTopics, settings: ProxySettings
    ) -> None:
        self._clients = clients
        self._membership = membership
        self._topics = topics
        self._settings = settings
        self._unproved = Counter[bytes]()
        """Open streams of clients that have not proved who they are, by address."""

    async def stream(self, call: Call) -> None:
        with self._counted(call):
            await self._serve(call)

    @contextmanager
    def _counted(self, call: Call) -> Iterator[None]:
        """Raises GrpcError if the address has too many streams."""
        host, limit = call.peer_host, self._settings.max_streams_per_address
        if call.user or not limit:
            yield
            return
        if self._unproved[host] >= limit:
            raise GrpcError(
                GrpcCode.RESOURCE_EXHAUSTED,
                f"{limit} telemetry streams of {host.decode()} are open already (maxStreamsPerAddress)",
            )
        self._unproved[host] += 1
        try:
            yield
        finally:
            self._unproved[host] -= 1
            if not self._unproved[host]:
                del self._unproved[host]

    async def _serve(self, call: Call) -> None:
        """Settings are always answered; a client whose settings are wrong gets an error as the end."""
        client: FrontClient | None = None
        try:
            async for command in call:
                kind = command.WhichOneof("command")
                if kind == "settings":
                    client = await self._settle(call, command.settings)
                elif kind in ("thread_stack_trace", "verify_message_result") and client is not None:
                    client.answered(getattr(command, kind).nonce, command)
        except Rejected as problem:
            # Clients try again, and show their users the end of a stream instead of its reason.
            _log.info("client refused peer=%s: %s", call.peer_address, problem)
            raise GrpcError(GrpcCode.INVALID_ARGUMENT, str(problem)) from None
        except PyroError as problem:
            _log.info("settings not answered peer=%s: %s", call.peer_address, problem)
            raise GrpcError(GrpcCode.UNAVAILABLE, str(problem)) from None
        finally:
            if client is not None and client.stream is call:
                client.stream = None

    async def _settle(self, call: Call, sent: Any) -> FrontClient:
        kind = sent.WhichOneof("pub_sub")
        if kind == "publishing":
            for each in sent.publishing.topics:
                check_topic(each.name)
            answer = for_producer(sent, self._settings)
        elif kind == "subscription":
            group = check_group(sent.subscription.group.name)
            for entry in sent.subscription.subscriptions:
                check_topic(entry.topic.name)
            config = await self._topics.group(group)
            _check_kind(FrontClient(call, sent), config)
            answer = for_consumer(sent, config, self._settings)
        else:
            raise Rejected(
                Code.UNRECOGNIZED_CLIENT_TYPE, "the settings have neither publishing nor subscription"
            )
        joining = FrontClient(call, answer)
        self._membership.admit(joining, call)
        client = self._clients.settle(call, joining)
        await call.send(Command(status=OK, settings=answer))
        # The answer first: clients wait for it without a limit.
        self._membership.join(client)
        return client

    async def heartbeat(self, request: Any, call: Call) -> Any:
        client = await self._clients.known(call)
        if request.client_type == _UNKNOWN_TYPE:
            raise Rejected(Code.UNRECOGNIZED_CLIENT_TYPE, "the heartbeat names no type of client")
        if not client.is_producer:
            check_group(request.group.name)
        try:
            await self._membership.heartbeat(client)
        except PyroError as problem:
            # The client is alive all the same, and it cannot mend the way to a broker.
            _log.info("heartbeat not passed on client=%s: %s", client.client_id, problem)
        return _HeartbeatResponse(status=OK)

    async def terminate(self, request: Any, call: Call) -> Any:
        self._clients.forget(self._clients.of(call))
        return _NotifyClientTerminationResponse(status=OK)


def _check_kind(client: FrontClient, config: SubscriptionGroupConfig) -> None:
    """Raises Rejected if a client of another kind would take the messages of its group."""
    group = lite_group(config.attributes)
    if client.is_lite != (group is not None):
        raise Rejected(
            Code.ILLEGAL_CONSUMER_GROUP,
            f"the group {client.group} {'reads' if group else 'does not read'} lite topics (lite.bind.topic),"
            f" and this client {'does' if client.is_lite else 'does not'}",
        )
    for topic in client.topics:
        if group is not None and topic != group.topic:
            raise Rejected(
                Code.ILLEGAL_TOPIC, f"the group {client.group} is bound to {group.topic}, not to {topic}"
            )
