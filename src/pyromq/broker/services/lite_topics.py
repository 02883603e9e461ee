"""Lite topics: clients subscribe to them, operators look at them, and those without messages for long go."""

import asyncio
import heapq
import logging
from collections.abc import AsyncIterator, Iterable, Sequence

from pyromq.broker.context import Context
from pyromq.broker.flow.lite.delivery import LiteDelivery
from pyromq.broker.flow.lite.subscriptions import EVERYTHING, LiteClient
from pyromq.clock import elapsed_ms
from pyromq.errors import ConnectionLost, Refused, StoreError
from pyromq.protocol.catalogue import BodyAnswer
from pyromq.protocol.codes import ResponseCode
from pyromq.protocol.lite import LiteGroup, expiration_minutes, is_lite, lite_group
from pyromq.protocol.names import lite_parts, lite_queue, lite_topic_problem
from pyromq.protocol.requests.lite import (
    POLICY_LAST,
    POLICY_MAX,
    POLICY_MIN,
    ChangeLiteSubscriptions,
    ClientGroup,
    GetBrokerLiteInfo,
    GetBrokerLiteInfoResponseBody,
    GetLiteClientInfo,
    GetLiteClientInfoResponseBody,
    GetLiteGroupInfo,
    GetLiteGroupInfoResponseBody,
    GetLiteTopicInfo,
    GetLiteTopicInfoResponseBody,
    GetParentTopicInfo,
    GetParentTopicInfoResponseBody,
    ListLiteTopics,
    LiteLagInfo,
    LiteOffsetWrapper,
    LiteSubscriptionAction,
    LiteSubscriptionDTO,
    LiteTopicList,
    LiteTopicOffset,
    NotifyUnsubscribeLite,
    OffsetOption,
    OffsetOptionType,
    TriggerLiteDispatch,
)
from pyromq.remoting.routing import Caller, handles
from pyromq.store.light.light_queues import LightQueues

_log = logging.getLogger(__name__)

_MAX_LITE_TOPIC_BYTES = 255
_MAX_LISTED = 10_000
_NAMES_AT_ONCE = 64
_MINUTE_MS = 60_000


class LiteTopics:
    def __init__(self, context: Context, delivery: LiteDelivery) -> None:
        self._live = context.live
        self._store = context.store
        self._topics = context.tables.topics
        self._groups = context.tables.groups
        self._offsets = context.tables.offsets
        self._role = context.tables.role
        self._clock = context.clock
        self._slices = context.slices
        self._delivery = delivery
        self._subscriptions = delivery.subscriptions
        self._started_ms = elapsed_ms(context.clock)
        self._removing = asyncio.Lock()
        self._changing = asyncio.Lock()
        """Held while subscriptions change: clients have many, and one change follows the other."""

    def __repr__(self) -> str:
        return f"<LiteTopics {self._delivery!r}>"

    # Subscriptions

    @handles(ChangeLiteSubscriptions)
    async def change(self, request: ChangeLiteSubscriptions, caller: Caller) -> None:
        if not request.body.subscription_set:
            raise Refused(ResponseCode.ILLEGAL_OPERATION, "the request changes no subscription")
        async with self._changing:
            self._role.require_master()
            for each in request.body.subscription_set:
                await self._change(each, caller)

    async def _change(self, change: LiteSubscriptionDTO, caller: Caller) -> None:
        action, name, topic = change.action, change.group, change.topic
        for what, value in (("client id", change.client_id), ("group", name), ("topic", topic)):
            if not value.strip():
                raise Refused(ResponseCode.INVALID_PARAMETER, f"the {what} of a subscription is blank")
        queues: list[str] = []
        async for some in self._few_at_once(sorted(change.lite_topic_set)):
            for each in some:
                if (problem := lite_topic_problem(each, _MAX_LITE_TOPIC_BYTES)) is not None:
                    raise Refused(ResponseCode.INVALID_PARAMETER, problem)
            queues += [lite_queue(topic, each) for each in some]
        client = self._subscriptions.get(name, change.client_id)
        if action is LiteSubscriptionAction.COMPLETE_REMOVE:
            if client is not None:
                await self._leave(client)
            return
        group = self._lite_group(name, topic)
        if action is LiteSubscriptionAction.PARTIAL_ADD and group.is_wildcard:
            raise Refused(
                ResponseCode.ILLEGAL_OPERATION,
                f"the group {name} reads all lite topics of {topic}: its clients cannot subscribe to some",
            )
        is_new = client is None
        if is_new and len(self._subscriptions) >= (most := self._live.now.max_lite_subscriptions):
            raise Refused(
                ResponseCode.LITE_SUBSCRIPTION_QUOTA_EXCEEDED,
                f"{most} clients read lite topics already: the broker allows no more"
                " (maxLiteSubscriptionCount)",
            )
        client = self._subscriptions.join(
            name, change.client_id, topic, caller.channel, reads_all=group.is_wildcard
        )
        client.seen_ms = elapsed_ms(self._clock)
        if group.is_wildcard:
            if is_new:
                self._delivery.look_through_all(client)
                self._delivery.release(client)
        elif action is LiteSubscriptionAction.PARTIAL_REMOVE:
            async for some in self._few_at_once(queues):
                for queue in some:
                    if self._subscriptions.unsubscribe(client, queue) and group.resets_when_unsubscribed:
                        self._delivery.reset(queue, name, 0)
        else:
            await self._add(client, group, queues, change)

    async def _few_at_once(self, names: Sequence[str]) -> AsyncIterator[Sequence[str]]:
        """A part of the names in each turn."""
        for begin in range(0, len(names), _NAMES_AT_ONCE):
            await self._slices.wait_for_turn()
            yield names[begin : begin + _NAMES_AT_ONCE]

    async def _leave(self, client: LiteClient) -> None:
        await self._unsubscribe(client, list(client.queues))
        self._subscriptions.leave(client)

    async def _unsubscribe(self, client: LiteClient, queues: Sequence[str]) -> None:
        async for some in self._few_at_once(queues):
            for queue in some:
                self._subscriptions.unsubscribe(client, queue)

    def _lite_group(self, name: str, topic: str) -> LiteGroup:
        """The group's lite settings; raises Refused unless it may read lite topics of this topic."""
        config, parent = self._groups.find(name), self._topics.get(topic)
        if config is None:
            raise Refused(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"the consumer group {name} does not exist"
            )
        if not config.consume_enable:
            raise Refused(
                ResponseCode.ILLEGAL_OPERATION, f"the consumer group {name} is disabled (consumeEnable)"
            )
        if parent is None:
            raise Refused(ResponseCode.TOPIC_NOT_EXIST, f"the topic {topic} does not exist")
        group = lite_group(config.attributes)
        if not is_lite(parent.attributes):
            raise Refused(ResponseCode.INVALID_PARAMETER, f"the topic {topic} is not of type LITE")
        if group is None or group.topic != topic:
            raise Refused(
                ResponseCode.INVALID_PARAMETER,
                f"the group {name} is bound to {group.topic if group else 'no topic'}, not to {topic}: see"
                " lite.bind.topic",
            )
        return group

    async def _add(
        self, client: LiteClient, group: LiteGroup, queues: list[str], change: LiteSubscriptionDTO
    ) -> None:
        is_complete = change.action is LiteSubscriptionAction.COMPLETE_ADD
        wanted = dict.fromkeys(queues)
        if is_complete:
            await self._unsubscribe(client, [each for each in client.queues if each not in wanted])
        new = [queue for queue in queues if queue not in client.queues]
        self._check_quotas(client, group, len(new))
        added: list[str] = []
        async for some in self._few_at_once(new):
            if self._subscriptions.get(client.group, client.client_id) is not client:
                return  # a pop has found that an operator changed what the group reads
            for queue in some:
                if group.is_exclusive and not self._own(client, group, queue, takes=not is_complete):
                    continue
                self._subscriptions.subscribe(client, queue)
                if change.offset_option is not None and not is_complete:
                    self._begin_at(queue, client.group, change.offset_option)
                added.append(queue)
        self._slices.run(self._delivery.look_through(client, added))

    def _check_quotas(self, client: LiteClient, group: LiteGroup, more: int) -> None:
        count, most = len(client.queues) + more, self._live.now.max_lite_subscriptions
        if 0 <= group.quota < count and more:
            raise Refused(
                ResponseCode.LITE_SUBSCRIPTION_QUOTA_EXCEEDED,
                f"{count} lite topics of the client {client.client_id}: the group {client.group} allows"
                f" {group.quota} (lite.sub.client.quota)",
            )
        if more and self._subscriptions.count + more > most:
            raise Refused(
                ResponseCode.LITE_SUBSCRIPTION_QUOTA_EXCEEDED,
                f"{self._subscriptions.count} subscriptions to lite topics, and {more} more: the broker"
                f" allows {most} (maxLiteSubscriptionCount)",
            )

    def _own(self, client: LiteClient, group: LiteGroup, queue: str, *, takes: bool) -> bool:
        """Whether the client is the only one of its group to read a lite topic now.

        The last that subscribes to it takes it from the others. Who only says again what it reads does not
        get back what it has lost.
        """
        others = [each for each in self._subscriptions.readers(queue) if each.group == client.group]
        if not takes:
            if others:
                self._tell_lost(client, queue)
            return not others
        for other in others:
            self._subscriptions.unsubscribe(other, queue)
            self._tell_lost(other, queue)
        if others and group.resets_when_exclusive:
            self._delivery.reset(queue, client.group, 0)
        return True

    def _tell_lost(self, client: LiteClient, queue: str) -> None:
        parts = lite_parts(queue)
        assert parts is not None
        notice = NotifyUnsubscribeLite(
            lite_topic=parts[1], consumer_group=client.group, client_id=client.client_id
        )
        try:
            if client.channel.is_open:
                client.channel.send_oneway(notice)
        except ConnectionLost:
            pass  # it will learn it when it says again what it reads

    def _begin_at(self, queue: str, group: str, option: OffsetOption) -> None:
        queues, value = self._store.queues, option.value
        least, end = queues.min_offset(queue, 0), queues.max_offset(queue, 0)
        if option.type is OffsetOptionType.POLICY:
            if value not in (POLICY_LAST, POLICY_MIN, POLICY_MAX):
                raise Refused(ResponseCode.INVALID_PARAMETER, f"the policy {value}: expected 0, 1 or 2")
            if value == POLICY_LAST:
                return
            offset = least if value == POLICY_MIN else end
        elif option.type is OffsetOptionType.TIMESTAMP:
            offset = queues.offset_by_time(queue, 0, value)
        elif option.type is OffsetOptionType.TAIL_N:
            place = self._offsets.query(group, queue, 0)
            if place < 0:
                return
            offset = place - max(value, 0)
        else:
            offset = value
        self._delivery.reset(queue, group, min(max(offset, least), end))

    # Upkeep

    async def run(self) -> None:
        """Forget silent clients, and remove expired lite topics."""
        if self._store.light is None:
            return
        next_clients = next_expired = 0.0
        while True:
            settings = self._live.now
            pause_ms = min(settings.lite_subscription_check_ms, settings.lite_ttl_check_ms)
            await asyncio.sleep(pause_ms / 1000)
            now, settings = self._clock.monotonic(), self._live.now
            if now >= next_clients:
                next_clients = now + settings.lite_subscription_check_ms / 1000
                await self.forget_silent()
            if now >= next_expired:
                next_expired = now + settings.lite_ttl_check_ms / 1000
                await self.remove_expired()

    async def forget_silent(self) -> None:
        """Forget clients that have neither popped nor said what they read for long."""
        before_ms = elapsed_ms(self._clock) - self._live.now.lite_subscription_timeout_ms
        async with self._changing:
            for client in self._subscriptions:
                if client.seen_ms < before_ms:
                    _log.info("lite client expired client=%s group=%s", client.client_id, client.group)
                    await self._leave(client)

    async def remove_expired(self) -> None:
        """Remove lite topics whose last message is older than their parent topic allows."""
        light, least_ms = self._store.light, self._live.now.min_lite_ttl_ms
        lives = {
            topic: max(expiration_minutes(config.attributes) * _MINUTE_MS, least_ms)
            for topic, config in self._topics.all().items()
            if is_lite(config.attributes) and expiration_minutes(config.attributes) >= 0
        }
        is_early = elapsed_ms(self._clock) - self._started_ms < least_ms
        if light is None or is_early:
            return
        # What the master removed, its replicas need no longer either: a little later, for its rounds take
        # their time.
        later_ms = 0 if self._role.now.is_master else least_ms
        expired: dict[str, int] = {}
        for topic, life_ms in lives.items():
            old = light.entries_before(self._now_ms() - life_ms, self._store.log.store_time)
            async for queue in self._slices.spread(light.names(lite_queue(topic, ""), old)):
                if self._is_over(light, queue, life_ms + later_ms):
                    expired[queue] = life_ms + later_ms
        if not expired:
            return
        removed = 0
        try:
            async with self._removing, self._offsets.written_without(expired.keys(), self._slices) as groups:
                async for queue, life_ms in self._slices.spread(expired.items()):
                    if self._is_over(light, queue, life_ms):  # it may have a new message
                        self._remove(light, queue, groups.get(queue, ()))
                        removed += 1
        except Refused as refused:
            _log.warning("expired lite topics stay for now: %s", refused)
        except (StoreError, OSError) as problem:
            _log.error("lite topics cannot be removed: %s", problem)
        if removed:
            _log.info("lite topics expired count=%d", removed)

    def _is_over(self, light: LightQueues, queue: str, life_ms: int) -> bool:
        end = light.max_offset(queue)
        if not end or light.next_offset(queue) != end:
            return False
        stored_ms = self._store.queues.store_time(queue, 0, end - 1)
        if stored_ms < 0:  # its last message has left the log, or is damaged: those before it may be unread
            return light.min_offset(queue, self._store.log.start) == end
        return self._now_ms() - stored_ms > life_ms

    def _now_ms(self) -> int:
        """The time up to which this broker knows of messages: a replica may lack the latest of its master."""
        now_ms = self._store.time.now_ms()
        return now_ms if self._role.now.is_master else min(now_ms, self._store.queues.dispatched_ms)

    def _remove(self, light: LightQueues, queue: str, groups: Iterable[str]) -> None:
        """Disks have no offsets of it any more. If a crash brought one back, the group would skip the first
        messages of a new lite topic of this name."""
        light.remove(queue)
        groups = {*groups, *self._groups_of((lite_parts(queue) or ("", ""))[0])}
        self._delivery.forget(queue, groups)
        self._offsets.remove_pairs((queue, group) for group in groups)

    async def topic_deleted(self, topic: str) -> None:
        """Its lite topics go with it; or it was the light queue of one. Raises Refused."""
        light, parts = self._store.light, lite_parts(topic)
        if light is None:
            return
        if parts is not None:
            self._delivery.forget(topic, self._groups_of(parts[0]))
        queues = {queue async for queue in self._slices.spread(light.names(lite_queue(topic, "")))}
        try:
            if queues:
                async with self._removing, self._offsets.written_without(queues, self._slices) as groups:
                    async for queue in self._slices.spread(queues):
                        self._remove(light, queue, groups.get(queue, ()))
        except (StoreError, OSError) as error:
            raise Refused(
                ResponseCode.SYSTEM_ERROR,
                f"the topic {topic} is deleted, but not all of its lite topics: {error}. Try again",
            ) from error
        for client in self._subscriptions:
            if client.topic == topic:
                self._subscriptions.leave(client)

    def _groups_of(self, topic: str) -> list[str]:
        """The groups that are bound to a topic."""
        bound = ((name, lite_group(config.attributes)) for name, config in self._groups.all().items())
        return [name for name, group in bound if group is not None and group.topic == topic]

    # Operators

    @handles(GetBrokerLiteInfo)
    def broker_info(
        self, request: GetBrokerLiteInfo, caller: Caller
    ) -> BodyAnswer[GetBrokerLiteInfoResponseBody]:
        light, groups = self._store.light, dict[str, set[str]]()
        for name, config in self._groups.all().items():
            if (group := lite_group(config.attributes)) is not None:
                groups.setdefault(group.topic, set()).add(name)
        count = len(light) if light is not None else 0
        return BodyAnswer(
            body=GetBrokerLiteInfoResponseBody(
                store_type="default",
                max_lmq_num=self._store.settings.max_light_queues,
                current_lmq_num=count,
                lite_subscription_count=self._subscriptions.count,
                order_info_count=len(self._delivery.batches),
                cq_table_size=count,
                offset_table_size=len(self._offsets),
                event_map_size=sum(bool(client.ready) for client in self._subscriptions),
                topic_meta={
                    topic: expiration_minutes(config.attributes)
                    for topic, config in self._topics.all().items()
                    if is_lite(config.attributes)
                },
                group_meta=groups,
            )
        )

    def _check_parent(self, topic: str | None) -> dict[str, str]:
        """The attributes of a parent topic."""
        config = self._topics.get(topic or "")
        if config is None:
            raise Refused(ResponseCode.TOPIC_NOT_EXIST, f"the topic {topic} does not exist")
        if not is_lite(config.attributes):
            raise Refused(ResponseCode.INVALID_PARAMETER, f"the topic {topic} is not of type LITE")
        return config.attributes

    def _queues_of(self, topic: str) -> Iterable[str]:
        light = self._store.light
        return light.names(lite_queue(topic, "")) if light is not None else ()

    @handles(GetParentTopicInfo)
    async def parent_info(
        self, request: GetParentTopicInfo, caller: Caller
    ) -> BodyAnswer[GetParentTopicInfoResponseBody]:
        attributes, light = self._check_parent(request.topic), self._store.light
        count = 0
        async for _ in self._slices.spread(self._queues_of(request.topic)):
            count += 1
        return BodyAnswer(
            body=GetParentTopicInfoResponseBody(
                topic=request.topic,
                ttl=expiration_minutes(attributes),
                groups=set(self._groups_of(request.topic)),
                lmq_num=len(light) if light is not None else 0,
                lite_topic_count=count,
            )
        )

    @handles(ListLiteTopics)
    async def list_topics(self, request: ListLiteTopics, caller: Caller) -> BodyAnswer[LiteTopicList]:
        self._check_parent(request.topic)
        if not 0 < request.max_count <= _MAX_LISTED:
            raise Refused(
                ResponseCode.INVALID_PARAMETER,
                f"maxCount is {request.max_count}, expected 1 to {_MAX_LISTED}",
            )
        prefix, found = lite_queue(request.topic, ""), list[str]()
        async for queue in self._slices.spread(self._queues_of(request.topic)):
            if (name := queue.removeprefix(prefix)) >= (request.begin or ""):
                found.append(name)
        found = heapq.nsmallest(request.max_count + 1, found)
        page = found[: request.max_count]
        return BodyAnswer(
            body=LiteTopicList(lite_topics=page, next=found[-1] if len(found) > len(page) else None)
        )

    @handles(GetLiteTopicInfo)
    def topic_info(
        self, request: GetLiteTopicInfo, caller: Caller
    ) -> BodyAnswer[GetLiteTopicInfoResponseBody]:
        self._check_parent(request.parent_topic)
        queue, queues = lite_queue(request.parent_topic or "", request.lite_topic or ""), self._store.queues
        end = queues.max_offset(queue, 0)
        offset = LiteTopicOffset(
            min_offset=queues.min_offset(queue, 0),
            max_offset=end,
            last_update_timestamp=queues.store_time(queue, 0, end - 1) if end else 0,
        )
        return BodyAnswer(
            body=GetLiteTopicInfoResponseBody(
                parent_topic=request.parent_topic,
                lite_topic=request.lite_topic,
                subscriber=self._readers(queue),
                topic_offset=offset,
                sharding_to_broker=end > 0,
            )
        )

    def _readers(self, queue: str) -> list[ClientGroup]:
        named = [
            ClientGroup(client_id=each.client_id, group=each.group)
            for each in self._subscriptions.readers(queue)
        ]
        return named + [
            ClientGroup(client_id=EVERYTHING, group=each.group)
            for each in self._subscriptions.readers_of_all(queue)
        ]

    @handles(GetLiteClientInfo)
    def client_info(
        self, request: GetLiteClientInfo, caller: Caller
    ) -> BodyAnswer[GetLiteClientInfoResponseBody]:
        self._check_parent(request.parent_topic)
        info = GetLiteClientInfoResponseBody(
            parent_topic=request.parent_topic, group=request.group, client_id=request.client_id
        )
        client = self._subscriptions.get(request.group or "", request.client_id or "")
        if client is not None and client.topic == request.parent_topic:
            most = min(max(request.max_count, 0), _MAX_LISTED)
            info.lite_topic_count = len(client.queues)
            info.lite_topic_set = {queue for queue, _ in zip(client.queues, range(most), strict=False)}
            info.last_access_time = self._clock.now_ms() - (elapsed_ms(self._clock) - client.seen_ms)
        return BodyAnswer(body=info)

    @handles(GetLiteGroupInfo)
    async def group_info(
        self, request: GetLiteGroupInfo, caller: Caller
    ) -> BodyAnswer[GetLiteGroupInfoResponseBody]:
        config = self._groups.get(request.group)
        if config is None:
            raise Refused(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
                f"the consumer group {request.group} does not exist",
            )
        group = lite_group(config.attributes)
        if group is None:
            raise Refused(
                ResponseCode.INVALID_PARAMETER,
                f"the group {request.group} is bound to no topic: see lite.bind.topic",
            )
        info = GetLiteGroupInfoResponseBody(
            group=request.group, parent_topic=group.topic, lite_topic=request.lite_topic
        )
        if request.lite_topic:
            queue = lite_queue(group.topic, request.lite_topic)
            lag = self._lag(request.group, queue)
            info.total_lag_count = lag.lag_count
            info.earliest_unconsumed_timestamp = lag.earliest_unconsumed_timestamp
            place = self._offsets.query(request.group, queue, 0)
            if place >= 0:
                end = self._store.queues.max_offset(queue, 0)
                info.lite_topic_offset_wrapper = LiteOffsetWrapper(
                    broker_offset=end,
                    consumer_offset=place,
                    last_timestamp=self._store.queues.store_time(queue, 0, place - 1) if place else 0,
                )
            return BodyAnswer(body=info)
        lags = [
            self._lag(request.group, queue)
            async for queue in self._slices.spread(self._queues_of(group.topic))
            if self._delivery.lag(request.group, queue)
        ]
        most = min(max(request.top_k, 0), _MAX_LISTED)
        times = [each for each in lags if each.earliest_unconsumed_timestamp >= 0]
        info.total_lag_count = sum(each.lag_count for each in lags)
        info.lag_count_top_k = heapq.nlargest(most, lags, key=lambda each: each.lag_count)
        info.lag_timestamp_top_k = heapq.nsmallest(
            most, times, key=lambda each: each.earliest_unconsumed_timestamp
        )
        info.earliest_unconsumed_timestamp = min(
            (each.earliest_unconsumed_timestamp for each in times), default=-1
        )
        return BodyAnswer(body=info)

    def _lag(self, group: str, queue: str) -> LiteLagInfo:
        lag, queues = self._delivery.lag(group, queue), self._store.queues
        parts = lite_parts(queue)
        return LiteLagInfo(
            lite_topic=parts[1] if parts is not None else queue,
            lag_count=lag,
            earliest_unconsumed_timestamp=(
                queues.store_time(queue, 0, queues.max_offset(queue, 0) - lag) if lag else -1
            ),
        )

    @handles(TriggerLiteDispatch)
    def dispatch(self, request: TriggerLiteDispatch, caller: Caller) -> None:
        for client in self._subscriptions:
            if client.group == request.group and request.client_id in (None, "", client.client_id):
                if client.line == EVERYTHING:
                    self._delivery.look_through_all(client)
                else:
                    self._slices.run(self._delivery.look_through(client, list(client.queues)))
