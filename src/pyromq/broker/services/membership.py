"""Clients register by heartbeat; the broker notifies a group when its members change."""

import asyncio
import logging
from collections.abc import Callable

from pyromq.broker.flow.reading import check_served, sql_is_off
from pyromq.broker.settings import BrokerSettings
from pyromq.broker.tables.all_tables import Tables
from pyromq.broker.tables.clients import Client, ConsumerGroup, described, size_of
from pyromq.broker.tables.filters import SQL92, is_tag_type
from pyromq.clock import Clock, elapsed_ms
from pyromq.config.live import LiveSettings
from pyromq.errors import BadExpression, Refused, StoreError
from pyromq.filtering.sql_parser import compile_sql
from pyromq.filtering.tags import MAX_TAGS
from pyromq.protocol import names
from pyromq.protocol.catalogue import BodyAnswer
from pyromq.protocol.codes import ResponseCode
from pyromq.protocol.requests.membership import (
    CheckClientConfig,
    ClientConnection,
    ClientLanguage,
    ConsumerConnection,
    ConsumerData,
    ConsumeType,
    GetAllProducers,
    GetConsumerConnections,
    GetConsumerIds,
    GetConsumerListByGroupResponseBody,
    GetProducerConnections,
    HeartbeatData,
    ProducerConnection,
    ProducerInfo,
    ProducerTableInfo,
    SendHeartbeat,
    SendHeartbeatAnswer,
    UnregisterClient,
)
from pyromq.protocol.requests.pushes import NotifyConsumerIdsChanged
from pyromq.protocol.requests.topics import TopicConfig
from pyromq.remoting.channel import Channel
from pyromq.remoting.routing import Caller, handles

_log = logging.getLogger(__name__)

SCAN_INTERVAL_S = 10.0
LATE_NOTICE_S = 15.0
FEW_MEMBERS = 32
QUIET_S_PER_MEMBER = 0.001
"""After a notice to more than a few members, the next one waits this long for each of them: if a thousand
members join one after another, each gets a few notices, not a thousand."""
_UNIT_SUBSCRIPTION_FLAG = 2
_MAX_LOGGED_FILTERS = 3

# RocketMQ has no such limits. Real clients stay far below them.
MAX_HEARTBEAT_BYTES = 2 * 1024 * 1024
MAX_GROUPS_PER_CLIENT = 512
MAX_SUBSCRIPTIONS_PER_HEARTBEAT = 4096
MAX_FILTER_CHARS_PER_HEARTBEAT = 64 * 1024
MAX_CLIENT_ID_CHARS = 1024
MAX_SUBSCRIPTION_BYTES = 256 * 1024 * 1024

_LANGUAGES = list(ClientLanguage)


class Membership:
    def __init__(
        self,
        live: LiveSettings[BrokerSettings],
        tables: Tables,
        clock: Clock,
    ) -> None:
        self._live = live
        self._topics = tables.topics
        self._groups = tables.groups
        self._modes = tables.request_modes
        self._consumers = tables.consumers
        self._producers = tables.producers
        self._filters = tables.filters
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._to_notify: dict[str, None] = {}
        self._quiet_until = 0.0
        self._listeners: list[Callable[[Channel, str], None]] = []

    def __repr__(self) -> str:
        return f"<Membership {self._consumers!r} {self._producers!r} to_notify={len(self._to_notify)}>"

    # Joining

    @handles(SendHeartbeat)
    def heartbeat(self, request: SendHeartbeat, caller: Caller) -> SendHeartbeatAnswer:
        beat = request.body
        self._check_size(beat, caller)
        client = Client(
            caller.channel,
            beat.client_id,
            caller.language,
            caller.version,
            elapsed_ms(self._clock),
            caller.check if beat.producer_data_set else None,
            caller.user,
        )
        # java: a client without fingerprint always sends all subscriptions again
        is_changed = beat.heartbeat_fingerprint == 0
        consumers = list(filter(self._is_welcome, beat.consumer_data_set))
        self._create_missing(consumers)
        conflict: str | None = None
        for data in consumers:
            found = self._conflict(client, data, beat)
            conflict = conflict or found
            if found is None or not self._live.now.reject_different_subscriptions:
                is_changed |= self._take_consumer(client, data, beat)
        for producer in beat.producer_data_set:
            self._take_producer(client, producer.group_name)
        if conflict is not None and self._live.now.reject_different_subscriptions:
            raise Refused(ResponseCode.ILLEGAL_OPERATION, conflict)
        return SendHeartbeatAnswer(
            supports_heartbeat_v2=True, is_subscription_changed=is_changed, conflict=conflict
        )

    def _conflict(self, client: Client, data: ConsumerData, beat: HeartbeatData) -> str | None:
        """How the subscriptions of a member differ from those of another; logged once."""
        group = self._consumers.group(data.group_name)
        if group is None or (beat.heartbeat_fingerprint != 0 and beat.without_sub):
            return None
        wanted = data.subscription_data_set
        other = group.differing(client.channel, wanted)
        if other is None:
            return None

        def say() -> str:
            former = list(group.subscriptions.values())
            text = (
                f"members of the group {data.group_name} subscribe differently, and lose messages:"
                f" {client.client_id} to {described(wanted, former)},"
                f" {other.client_id} to {described(former, wanted)}"
            )
            _log.warning("%.2000s", text)
            return text

        return group.difference(other, wanted, say)

    def _check_size(self, beat: HeartbeatData, caller: Caller) -> None:
        """Refuse a heartbeat that is too large, before any of it is kept."""
        subscriptions = [each for data in beat.consumer_data_set for each in data.subscription_data_set]
        filters = [each.sub_string or "" for each in subscriptions if each.expression_type == SQL92]
        tags = max((max(len(each.code_set), len(each.tags_set)) for each in subscriptions), default=0)
        groups = len(beat.consumer_data_set) + len(beat.producer_data_set)
        for count, what, limit in (
            (len(caller.frame.body), "bytes", MAX_HEARTBEAT_BYTES),
            (len(beat.client_id), "characters of a client id", MAX_CLIENT_ID_CHARS),
            (groups, "groups", MAX_GROUPS_PER_CLIENT),
            (len(subscriptions), "subscriptions", MAX_SUBSCRIPTIONS_PER_HEARTBEAT),
            (sum(map(len, filters)), "characters of filter expressions", MAX_FILTER_CHARS_PER_HEARTBEAT),
            (tags, "tags in a subscription", MAX_TAGS),
        ):
            if count > limit:
                raise Refused(
                    ResponseCode.INVALID_PARAMETER,
                    f"the heartbeat has {count} {what}: expected at most {limit}",
                )
        if self._producers.count_of(caller.channel) > MAX_GROUPS_PER_CLIENT:
            raise Refused(
                ResponseCode.INVALID_PARAMETER,
                f"the client has more than {MAX_GROUPS_PER_CLIENT} producer groups",
            )
        known = (self._consumers.group(data.group_name) for data in beat.consumer_data_set)
        more_bytes = size_of(subscriptions) - sum(group.size_bytes for group in known if group is not None)
        if more_bytes > 0 and self._consumers.size_bytes + more_bytes > MAX_SUBSCRIPTION_BYTES:
            raise Refused(
                ResponseCode.SYSTEM_BUSY,
                f"the subscriptions of all groups need more than {MAX_SUBSCRIPTION_BYTES} bytes",
            )

    def _is_welcome(self, data: ConsumerData) -> bool:
        is_pulling = data.consume_type is ConsumeType.CONSUME_ACTIVELY
        return not (is_pulling and self._live.now.reject_pull_consumers)

    def _create_missing(self, consumers: list[ConsumerData]) -> None:
        """Create the groups of a heartbeat and their retry topics together: each change writes a file."""
        self._groups.create_missing(data.group_name for data in consumers)
        self._topics.create_missing(
            TopicConfig(
                topic_name=names.retry_topic(data.group_name),
                read_queue_nums=config.retry_queue_nums,
                write_queue_nums=config.retry_queue_nums,
                perm=names.READ_WRITE,
                topic_sys_flag=_UNIT_SUBSCRIPTION_FLAG if data.unit_mode else 0,
                order=any(self._topics.is_ordered(each.topic) for each in data.subscription_data_set),
            )
            for data in consumers
            if (config := self._groups.get(data.group_name)) is not None
        )

    def _take_consumer(self, client: Client, data: ConsumerData, beat: HeartbeatData) -> bool:
        """Register a consumer; True if the client should send its subscriptions again."""
        config = self._groups.get(data.group_name)
        if config is None:
            return False
        before = self._consumers.group(data.group_name)
        before_fingerprint = None if before is None else before.fingerprint
        fingerprint = beat.heartbeat_fingerprint
        is_light = fingerprint != 0 and beat.without_sub
        if self._consumers.register(client, data, keep_subscriptions=is_light, fingerprint=fingerprint):
            _log.info(
                "consumer group changed group=%s client=%s address=%s topics=%.500s",
                data.group_name,
                client.client_id,
                client.address,
                ",".join(each.topic for each in data.subscription_data_set),
            )
            if config.notify_consumer_ids_changed_enable:
                self._notify_soon(data.group_name)
        if not is_light:
            refused = self._filters.register(data.group_name, data.subscription_data_set)
            for topic in list(refused)[:_MAX_LOGGED_FILTERS]:
                _log.warning(
                    "filter refused group=%s topic=%s refused_in_all=%d: %.500s",
                    data.group_name,
                    topic,
                    len(refused),
                    refused[topic],
                )
        if before_fingerprint is None:
            # A restarted broker does not know the subscriptions that a light heartbeat refers to.
            return is_light
        return before_fingerprint != fingerprint

    def _take_producer(self, client: Client, group: str) -> None:
        settings = self._live.now
        # java: only transaction checks need the producers
        is_wanted = settings.register_producers or not settings.reject_transaction_messages
        if is_wanted or self._producers.knows(group, client.channel):
            self._producers.register(group, client)

    @handles(CheckClientConfig)
    def check_config(self, request: CheckClientConfig, caller: Caller) -> None:
        subscription = request.body.subscription_data
        if subscription is None or is_tag_type(subscription.expression_type):
            return
        if not self._live.now.sql_filters:
            raise sql_is_off(subscription.expression_type)
        if subscription.expression_type != SQL92:
            raise Refused(
                ResponseCode.SUBSCRIPTION_PARSE_FAILED,
                f"unknown expression type {subscription.expression_type}: expected TAG or {SQL92}",
            )
        try:
            compiled = compile_sql(subscription.sub_string or "")
        except BadExpression as problem:
            raise Refused(ResponseCode.SUBSCRIPTION_PARSE_FAILED, str(problem)) from None
        check_served(self._live.now, compiled, SQL92)

    # Leaving

    def on_leaving(self, listener: Callable[[Channel, str], None]) -> None:
        """Call `listener` with the connection and the group of a consumer that leaves its group."""
        self._listeners.append(listener)

    @handles(UnregisterClient)
    def unregister(self, request: UnregisterClient, caller: Caller) -> None:
        if request.producer_group is not None:
            self._producers.unregister(request.producer_group, caller.channel)
        if request.consumer_group is not None:
            for listener in self._listeners:
                listener(caller.channel, request.consumer_group)
            left = self._consumers.unregister(request.consumer_group, caller.channel)
            if left is not None:
                self._has_left(left, f"client={request.client_id} unregistered")

    def connection_lost(self, connection: Channel) -> None:
        """A connection was lost; the groups of its clients are notified."""
        self._producers.lost(connection)
        for group in self._consumers.lost(connection):
            self._has_left(group, f"address={connection.peer_address} connection lost")

    def expire(self) -> None:
        """Drop clients without a recent heartbeat, and close their connections."""
        before_ms = elapsed_ms(self._clock) - self._live.now.client_expiry_ms
        silent = [*self._consumers.silent_since(before_ms), *self._producers.silent_since(before_ms)]
        for connection in dict.fromkeys(client.channel for client in silent):
            _log.warning("client expired address=%s", connection.peer_address)
            connection.close()
            self.connection_lost(connection)

    def _has_left(self, group: ConsumerGroup, how: str) -> None:
        _log.info("consumer left group=%s members=%d %s", group.name, len(group.members), how)
        if not group.members:
            self._filters.bury(group.name)
            return
        config = self._groups.get(group.name)
        if config is None or config.notify_consumer_ids_changed_enable:
            self._notify_soon(group.name)

    async def run(self) -> None:
        """Drop expired clients, and save filters, groups, topics and request modes, until cancelled."""
        while True:
            await asyncio.sleep(SCAN_INTERVAL_S)
            self.expire()
            self._groups.retry()
            self._topics.retry()
            self._modes.retry()
            try:
                self._filters.persist()
            except (StoreError, OSError) as problem:
                _log.error("filters could not be written, trying again next time: %s", problem)

    # Notifying

    def _notify_soon(self, group_name: str) -> None:
        """Notify a group once for all changes until then."""
        group = self._consumers.group(group_name)
        settings = self._live.now
        if group is None or group.is_broadcasting or not settings.notify_members:
            return
        if not self._to_notify:
            quiet_s = max(self._quiet_until - self._clock.monotonic(), 0)
            self._loop.call_later(quiet_s if settings.notify_members_at_once else LATE_NOTICE_S, self._notify)
        self._to_notify[group_name] = None

    def _notify(self) -> None:
        due, self._to_notify = self._to_notify, {}
        told = 0
        for name in due:
            group = self._consumers.group(name)
            if group is not None:
                for connection in group.members:
                    if connection.is_open:
                        connection.send_oneway(NotifyConsumerIdsChanged(consumer_group=name))
                        told += 1
        if told > FEW_MEMBERS:
            self._quiet_until = self._clock.monotonic() + told * QUIET_S_PER_MEMBER

    # Queries

    @handles(GetConsumerIds)
    def consumer_ids(
        self, request: GetConsumerIds, caller: Caller
    ) -> BodyAnswer[GetConsumerListByGroupResponseBody]:
        group = self._consumers.group(request.consumer_group)
        if group is None:
            raise Refused(
                ResponseCode.SYSTEM_ERROR, f"no consumer of the group {request.consumer_group} is connected"
            )
        return BodyAnswer(body=GetConsumerListByGroupResponseBody(consumer_id_list=group.client_ids))

    @handles(GetConsumerConnections)
    def consumer_connections(
        self, request: GetConsumerConnections, caller: Caller
    ) -> BodyAnswer[ConsumerConnection]:
        group = self._consumers.group(request.consumer_group)
        if group is None:
            raise Refused(
                ResponseCode.CONSUMER_NOT_ONLINE,
                f"no consumer of the group {request.consumer_group} is online",
            )
        return BodyAnswer(
            body=ConsumerConnection(
                connection_set=[_described(client) for client in group.members.values()],
                consume_from_where=group.consume_from_where,
                consume_type=group.consume_type,
                message_model=group.message_model,
                subscription_table=dict(group.subscriptions),
            )
        )

    @handles(GetProducerConnections)
    def producer_connections(
        self, request: GetProducerConnections, caller: Caller
    ) -> BodyAnswer[ProducerConnection]:
        members = self._producers.members(request.producer_group)
        if not members:
            raise Refused(
                ResponseCode.SYSTEM_ERROR, f"no producer of the group {request.producer_group} is connected"
            )
        return BodyAnswer(body=ProducerConnection(connection_set=[_described(client) for client in members]))

    @handles(GetAllProducers)
    def all_producers(self, request: GetAllProducers, caller: Caller) -> BodyAnswer[ProducerTableInfo]:
        return BodyAnswer(
            body=ProducerTableInfo(
                data={
                    group: [_as_producer(client, self._clock) for client in members.values()]
                    for group, members in self._producers.groups().items()
                }
            )
        )


def _language(client: Client) -> ClientLanguage:
    is_known = 0 <= client.language < len(_LANGUAGES)
    return _LANGUAGES[client.language] if is_known else ClientLanguage.OTHER


def _described(client: Client) -> ClientConnection:
    return ClientConnection(
        client_addr=client.address,
        client_id=client.client_id,
        language=_language(client),
        version=client.version,
    )


def _as_producer(client: Client, clock: Clock) -> ProducerInfo:
    return ProducerInfo(
        client_id=client.client_id,
        language=_language(client),
        last_update_timestamp=clock.now_ms() - (elapsed_ms(clock) - client.last_seen_ms),
        remote_ip=f"/{client.address}",  # java: the text of a socket address without a host name
        version=client.version,
    )
