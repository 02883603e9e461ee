"""Static topics: requests name a global queue and its offsets; the services know this broker's own queues.

This part stands in front of their handlers: it finds the item of the global queue that is meant, hands the
request on for the broker's queue, or asks the broker that has it, and turns the answer back. Only the broker
that leads a global queue answers for it. A request with `lo=false` means the broker's own queue.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, TypeVar

from msgspec.structs import replace

from pyromq.broker.context import Context
from pyromq.broker.flow.looking_up import LookingUp
from pyromq.broker.flow.message_properties import closed, delay_level, is_true, priority
from pyromq.broker.flow.timing import is_timed
from pyromq.chance import randrange
from pyromq.cluster.routes import Route
from pyromq.errors import PyroError, Refused
from pyromq.protocol import properties as props
from pyromq.protocol.catalogue import A, RawAnswer, Request, TopicRequest, declaration_of
from pyromq.protocol.codes import ResponseCode
from pyromq.protocol.names import MASTER_ID
from pyromq.protocol.requests.offsets import (
    GetEarliestStoreTime,
    GetEarliestStoreTimeAnswer,
    GetMaxOffset,
    GetMinOffset,
    OffsetAnswer,
    QueryConsumerOffset,
    ResetOffset,
    SearchOffset,
    UpdateConsumerOffset,
)
from pyromq.protocol.requests.popping import PopMessage
from pyromq.protocol.requests.pulling import COMMIT_FLAG, SUSPEND_FLAG, LitePullMessage, PullMessage
from pyromq.protocol.requests.sending import SendMessage, SendMessageBatch, SendMessageV2
from pyromq.protocol.requests.topics import LogicQueueMappingItem, TopicQueueMappingDetail
from pyromq.protocol.static_topics import (
    decided,
    delta,
    end_of,
    index_at,
    is_decided,
    leads,
    led_queues,
    to_logical,
    to_physical,
)
from pyromq.remoting.dialer import Dialer
from pyromq.remoting.routing import Caller, Handler, Routes

Items = Sequence[LogicQueueMappingItem]
T = TypeVar("T")


class StaticTopics:
    def __init__(
        self,
        context: Context,
        dialer: Dialer,
        find_route: Callable[[str], Awaitable[Route]],
        looking_up: LookingUp | None = None,
    ) -> None:
        self._store = context.store
        self._looking_up = looking_up if looking_up is not None else LookingUp(context.store)
        self._topics = context.tables.topics
        self._mappings = context.tables.static_topics
        self._offsets = context.tables.offsets
        self._role = context.tables.role
        self._live = context.live
        self._dialer = dialer
        self._find_route = find_route
        self._addresses: dict[str, str] = {}
        """Of the masters that were asked last, by broker name."""
        self._loop = asyncio.get_running_loop()

    def __repr__(self) -> str:
        return f"<StaticTopics of {self._mappings!r}>"

    def stand_before(self, routes: Routes) -> None:
        ways: list[tuple[type[Request[Any]], Callable[[Handler, Any, Caller, TopicQueueMappingDetail], Any]]]
        ways = [
            (SendMessage, self._send),
            (SendMessageV2, self._send),
            (SendMessageBatch, self._send),
            (PullMessage, self._pull),
            (LitePullMessage, self._pull),
            (QueryConsumerOffset, self._query),
            (UpdateConsumerOffset, self._update),
            (GetMaxOffset, self._max),
            (GetMinOffset, self._min),
            (SearchOffset, self._search),
            (GetEarliestStoreTime, self._earliest),
            (PopMessage, self._refuse),
            (ResetOffset, self._refuse),
        ]
        for request_type, way in ways:
            routes.stand_before(request_type, partial(self._before, way))

    def _before(
        self, way: Callable[[Handler, Any, Caller, TopicQueueMappingDetail], Any], handler: Handler
    ) -> Handler:
        mappings, topics = self._mappings, self._topics

        def handle(request: Any, caller: Caller) -> Any:
            detail = mappings.get(request.topic)
            if detail is None or request.is_logical_queue is False or request.topic not in topics:
                return handler(request, caller)
            return way(handler, request, caller, detail)

        return handle

    def _items(self, detail: TopicQueueMappingDetail, queue_id: int) -> list[LogicQueueMappingItem]:
        """The decided items of a queue that this broker leads; raises Refused."""
        if leads(detail, queue_id) is None:
            raise _not_led(detail, queue_id)
        items = decided(detail.hosted_queues[queue_id])
        if not items:
            raise _not_led(detail, queue_id)
        return items

    def _is_here(self, item: LogicQueueMappingItem) -> bool:
        return item.bname == self._live.now.broker_name

    def _refuse(self, _: Handler, request: Any, caller: Caller, detail: TopicQueueMappingDetail) -> None:
        raise Refused(
            ResponseCode.NO_PERMISSION,
            f"the topic {request.topic} is static, and {declaration_of(type(request)).name} is not served for"
            " such topics",
        )

    # Sends

    def _send(self, handler: Handler, request: Any, caller: Caller, detail: TopicQueueMappingDetail) -> Any:
        _refuse_waiting(closed(request.properties), request.topic)
        queue_id = request.queue_id
        if queue_id < 0:
            writable = [number for number, item in led_queues(detail).items() if is_decided(item)]
            if not writable:
                raise _not_led(detail, queue_id)
            queue_id = writable[randrange(len(writable))]
        item = leads(detail, queue_id)
        if item is None or not is_decided(item):
            raise _not_led(detail, queue_id)

        def stored(answer: RawAnswer) -> RawAnswer:
            if "queueOffset" not in answer.ext:
                return answer
            offset = to_logical(item, int(answer.ext["queueOffset"]))
            fields = {"queueId": str(queue_id), "queueOffset": str(offset)}
            return replace(answer, ext=answer.ext | fields)

        return self._then(handler(replace(request, queue_id=item.queue_id), caller), stored)

    # Pulls

    def _pull(
        self, handler: Handler, request: PullMessage, caller: Caller, detail: TopicQueueMappingDetail
    ) -> Any:
        items = self._items(detail, request.queue_id)
        if request.sys_flag & COMMIT_FLAG:
            self._commit(request, items)
        index = index_at(items, request.queue_offset)
        item, is_last = items[index], index + 1 == len(items)
        offset = to_physical(item, request.queue_offset)
        if offset < item.start_offset:
            return _pulled_nothing(items, index, item.logic_offset, ResponseCode.PULL_OFFSET_MOVED)
        end = None if is_last else end_of(items, index)
        if end is not None and offset >= end:
            return _goes_on(items, index)
        flags = request.sys_flag & ~COMMIT_FLAG
        is_here = self._is_here(item)
        if not is_last:
            flags &= ~SUSPEND_FLAG  # it grows no more
        held_ms = request.suspend_timeout_millis
        if not is_here:
            held_ms = min(held_ms, self._live.now.forward_timeout_ms // 3)
        inner = replace(
            request,
            queue_id=item.queue_id,
            queue_offset=offset,
            commit_offset=0,
            sys_flag=flags,
            suspend_timeout_millis=held_ms,
            max_msg_nums=request.max_msg_nums if end is None else min(request.max_msg_nums, end - offset),
            is_logical_queue=False,
        )
        if not is_here:
            return self._loop.create_task(self._pull_elsewhere(inner, items, index))

        def pulled(answer: RawAnswer) -> RawAnswer:
            # A replica may lack the end of a queue: only its master knows that there is nothing more.
            is_at_end = self._role.now.is_master and offset >= self._store.queues.max_offset(
                request.topic, item.queue_id
            )
            return _converted(answer, items, index, is_at_end=is_at_end)

        return self._then(handler(inner, caller), pulled)

    async def _pull_elsewhere(self, inner: PullMessage, items: Items, index: int) -> RawAnswer:
        item = items[index]
        found = await self._ask(item, replace(inner, target_broker_name=item.bname))
        answer = RawAnswer(
            body=found.body,
            code=found.code,
            remark=found.remark,
            ext={
                "suggestWhichBrokerId": "0",
                "nextBeginOffset": str(found.next_begin_offset),
                "minOffset": str(found.min_offset),
                "maxOffset": str(found.max_offset),
            },
        )
        is_at_end = False
        if found.code != ResponseCode.SUCCESS and index + 1 < len(items):
            # What it may not give to readers yet is not an end, and a replica may lack the end.
            self._addresses.pop(item.bname or "", None)
            end = await self._ask(
                item, GetMaxOffset(topic=inner.topic, queue_id=item.queue_id, is_logical_queue=False)
            )
            is_at_end = inner.queue_offset >= end.offset
        return _converted(answer, items, index, is_at_end=is_at_end)

    def _commit(self, request: PullMessage, items: Items) -> None:
        """Of an offset that comes with a pull; one in another broker's queue is committed by itself later."""
        item = items[index_at(items, request.commit_offset)]
        offset = to_physical(item, request.commit_offset)
        if self._is_here(item) and offset >= 0:
            self._offsets.commit(request.consumer_group, request.topic, item.queue_id, offset)

    # Offsets of groups

    def _query(
        self, handler: Handler, request: QueryConsumerOffset, caller: Caller, detail: TopicQueueMappingDetail
    ) -> Any:
        items = self._items(detail, request.queue_id)
        if len(items) == 1 and self._is_here(items[0]):
            answer = handler(replace(request, queue_id=items[0].queue_id), caller)
            return OffsetAnswer(offset=to_logical(items[0], answer.offset))
        return self._loop.create_task(self._query_items(request, items))

    async def _query_items(self, request: QueryConsumerOffset, items: Items) -> OffsetAnswer:
        """The offset in the newest item that has one."""
        for item in reversed(items):
            if self._is_here(item):
                offset = self._offsets.query(request.consumer_group, request.topic, item.queue_id)
            else:
                offset = await self._query_elsewhere(request, item)
            if offset >= 0:
                return OffsetAnswer(offset=to_logical(item, offset))
        raise Refused(
            ResponseCode.QUERY_NOT_FOUND,
            f"the group {request.consumer_group} has no offset for queue {request.queue_id} of"
            f" {request.topic}",
        )

    async def _query_elsewhere(self, request: QueryConsumerOffset, item: LogicQueueMappingItem) -> int:
        question = replace(
            request,
            queue_id=item.queue_id,
            set_zero_if_not_found=False,
            is_logical_queue=False,
            target_broker_name=item.bname,
        )
        try:
            return (await self._ask(item, question)).offset
        except Refused as refusal:
            if refusal.code != ResponseCode.QUERY_NOT_FOUND:
                raise
            return -1

    def _update(
        self, handler: Handler, request: UpdateConsumerOffset, caller: Caller, detail: TopicQueueMappingDetail
    ) -> Any:
        items = self._items(detail, request.queue_id)
        item = items[index_at(items, request.commit_offset)]
        inner = replace(
            request,
            queue_id=item.queue_id,
            commit_offset=to_physical(item, request.commit_offset),
            is_logical_queue=False,
            target_broker_name=item.bname,
        )
        if self._is_here(item):
            return handler(inner, caller)
        return self._loop.create_task(self._ask(item, inner))

    # Begin and end of queues

    def _max(
        self, handler: Handler, request: GetMaxOffset, caller: Caller, detail: TopicQueueMappingDetail
    ) -> Any:
        return self._converted_offset(handler, request, caller, self._items(detail, request.queue_id)[-1])

    def _min(
        self, handler: Handler, request: GetMinOffset, caller: Caller, detail: TopicQueueMappingDetail
    ) -> Any:
        return self._converted_offset(handler, request, caller, self._items(detail, request.queue_id)[0])

    def _converted_offset(
        self, handler: Handler, request: Any, caller: Caller, item: LogicQueueMappingItem
    ) -> Any:
        inner = _physical(request, item)
        reply = handler(inner, caller) if self._is_here(item) else self._forwarded(item, inner)
        return self._then(reply, lambda answer: OffsetAnswer(offset=to_logical(item, answer.offset)))

    def _search(
        self, handler: Handler, request: SearchOffset, caller: Caller, detail: TopicQueueMappingDetail
    ) -> Any:
        items = self._items(detail, request.queue_id)
        if len(items) == 1:
            return self._converted_offset(handler, request, caller, items[0])
        return self._loop.create_task(self._search_items(request, items))

    async def _search_items(self, request: SearchOffset, items: Items) -> OffsetAnswer:
        """In the newest item that has a message as old as that; behind its end is the next one's begin."""
        chosen = 0
        for index, item in enumerate(items):
            earliest = await self._earliest_of(request.topic, item)
            if 0 <= earliest <= request.timestamp:
                chosen = index
        item = items[chosen]
        offset = (await self._ask(item, _physical(request, item))).offset
        if chosen + 1 < len(items):
            end = GetMaxOffset(topic=request.topic, queue_id=item.queue_id, is_logical_queue=False)
            if offset >= (await self._ask(item, end)).offset:
                return OffsetAnswer(offset=items[chosen + 1].logic_offset)
        return OffsetAnswer(offset=to_logical(item, offset))

    def _earliest(
        self, handler: Handler, request: GetEarliestStoreTime, caller: Caller, detail: TopicQueueMappingDetail
    ) -> Any:
        items = self._items(detail, request.queue_id)
        return self._loop.create_task(self._earliest_item(request.topic, items))

    async def _earliest_item(self, topic: str, items: Items) -> GetEarliestStoreTimeAnswer:
        for item in items:
            if (earliest := await self._earliest_of(topic, item)) >= 0:
                return GetEarliestStoreTimeAnswer(timestamp=earliest)
        return GetEarliestStoreTimeAnswer(timestamp=-1)

    async def _earliest_of(self, topic: str, item: LogicQueueMappingItem) -> int:
        if self._is_here(item):
            return self._looking_up.earliest_time(topic, item.queue_id)
        question = GetEarliestStoreTime(topic=topic, queue_id=item.queue_id, is_logical_queue=False)
        return (await self._ask(item, question)).timestamp

    # Other brokers

    def _forwarded(self, item: LogicQueueMappingItem, request: TopicRequest[A]) -> "asyncio.Task[A]":
        return self._loop.create_task(self._ask(item, request))

    async def _ask(self, item: LogicQueueMappingItem, request: TopicRequest[A]) -> A:
        """Ask the master that has an item; raises Refused."""
        broker, topic = item.bname or "", str(getattr(request, "topic", ""))
        try:
            address = self._addresses.get(broker)
            if address is None:
                route = await self._find_route(topic)
                address = route.brokers.get(broker, {}).get(MASTER_ID)
                if address is None:
                    raise Refused(ResponseCode.SYSTEM_ERROR, f"no name server knows the master of {broker}")
                self._addresses[broker] = address
            return await self._dialer.call(address, request, self._live.now.forward_timeout_ms / 1000)
        except Refused:
            self._addresses.pop(broker, None)
            raise
        except PyroError as problem:
            self._addresses.pop(broker, None)
            raise Refused(
                ResponseCode.SYSTEM_ERROR, f"the broker {broker} has this part of the queue: {problem}"
            ) from problem

    def _then(self, reply: Any, change: Callable[[Any], T]) -> "T | asyncio.Task[T]":
        """The reply as `change` makes it, or a future of that."""
        if not isinstance(reply, asyncio.Future):
            return change(reply)

        async def later() -> T:
            return change(await reply)

        return self._loop.create_task(later())


def _physical(request: Any, item: LogicQueueMappingItem) -> Any:
    return replace(request, queue_id=item.queue_id, is_logical_queue=False, target_broker_name=item.bname)


def _not_led(detail: TopicQueueMappingDetail, queue_id: int) -> Refused:
    return Refused(
        ResponseCode.NOT_LEADER_FOR_QUEUE,
        f"queue {queue_id} of the static topic {detail.topic} is not led by {detail.bname}, or not yet",
    )


def _refuse_waiting(properties: str, topic: str) -> None:
    """A message that waits is delivered into a queue that may have been given away meanwhile."""
    if (
        delay_level(properties) > 0
        or is_timed(properties.encode())
        or is_true(properties, props.TRANSACTION_PREPARED)
        or priority(properties) >= 0
    ):
        raise Refused(
            ResponseCode.MESSAGE_ILLEGAL,
            f"the topic {topic} is static: it takes no messages with a delay, a time, a transaction or a"
            " priority",
        )


def _goes_on(items: Items, index: int) -> RawAnswer:
    """There is nothing more in an item: the next one follows."""
    return _pulled_nothing(items, index, items[index + 1].logic_offset, ResponseCode.PULL_RETRY_IMMEDIATELY)


def _pulled_nothing(items: Items, index: int, next_offset: int, code: int) -> RawAnswer:
    return RawAnswer(
        code=code,
        remark="NO_MATCHED_MESSAGE",
        ext={
            "suggestWhichBrokerId": "0",
            "nextBeginOffset": str(next_offset),
            "minOffset": str(items[0].logic_offset),
            "maxOffset": str(items[-1].logic_offset),
            "offsetDelta": str(delta(items[index])),
        },
    )


def _converted(answer: RawAnswer, items: Items, index: int, *, is_at_end: bool) -> RawAnswer:
    """The answer of a broker's own queue in terms of the global one."""
    if "nextBeginOffset" not in answer.ext:
        return answer
    item, is_last = items[index], index + 1 == len(items)
    if answer.code != ResponseCode.SUCCESS and not is_last and is_at_end:
        return _goes_on(items, index)
    most = to_logical(item, int(answer.ext["maxOffset"]))
    fields = {
        "nextBeginOffset": str(to_logical(item, int(answer.ext["nextBeginOffset"]))),
        "minOffset": str(to_logical(item, int(answer.ext["minOffset"]))),
        "maxOffset": str(most if is_last else max(most, items[-1].logic_offset)),
        "offsetDelta": str(delta(item)),
    }
    return replace(answer, ext=answer.ext | fields)
