"""Look-up of single messages by key, unique key or log offset: of those that consumers can read."""

from asyncio import Future, get_running_loop
from collections.abc import Sequence
from functools import partial
from typing import TypeAlias

from pyromq.broker.flow.durability import Durability
from pyromq.broker.flow.looking_up import LookingUp
from pyromq.errors import Refused, StoreError
from pyromq.protocol.catalogue import BodyAnswer
from pyromq.protocol.codes import ResponseCode
from pyromq.protocol.needs import GET, SUB
from pyromq.protocol.record import decode_record
from pyromq.protocol.requests.pulling import QueryMessage, QueryMessageAnswer, ViewMessage
from pyromq.remoting.routing import Caller, handles
from pyromq.store.message_store import MessageStore

Records: TypeAlias = "list[memoryview]"


class Queries:
    def __init__(
        self, store: MessageStore, durability: Durability, looking_up: LookingUp | None = None
    ) -> None:
        self._store = store
        self._durability = durability
        self._looking_up = looking_up if looking_up is not None else LookingUp(store)

    @handles(QueryMessage, may_wait=True)
    def query(
        self, request: QueryMessage, caller: Caller
    ) -> "QueryMessageAnswer | Future[QueryMessageAnswer]":
        # java: a look-up by unique key ignores the requested number
        limit = self._store.settings.max_unique_key_messages if request.is_unique_key else request.max_num
        found = self._durability.when_readable(partial(self._here, request, limit))
        if not isinstance(found, Future) and not self._looking_up.has_older(request, len(found), limit):
            return self._answer(found)
        return get_running_loop().create_task(self._with_older(request, found, limit))

    def _here(self, request: QueryMessage, limit: int) -> Records:
        try:
            return self._store.log.query(
                request.topic, request.key, limit, request.begin_timestamp, request.end_timestamp
            )
        except StoreError as problem:
            raise Refused(ResponseCode.SYSTEM_ERROR, str(problem)) from None

    async def _with_older(
        self, request: QueryMessage, found: "Records | Future[Records]", limit: int
    ) -> QueryMessageAnswer:
        here = await found if isinstance(found, Future) else found
        if not self._looking_up.has_older(request, len(here), limit):
            return self._answer(here)
        every = await self._looking_up.with_key(request, here, limit)
        return self._answer(every.records, every.problem)

    def _answer(self, records: Sequence[memoryview | bytes], problem: str = "") -> QueryMessageAnswer:
        """`problem`: why there may be more messages."""
        statistics = self._store.statistics()
        if not records and problem:
            raise Refused(ResponseCode.SYSTEM_ERROR, f"no message found yet: {problem}")
        if not records:
            raise Refused(
                ResponseCode.QUERY_NOT_FOUND,
                f"no message found; the index is {statistics.dispatch_behind_bytes} bytes behind the log",
            )
        return QueryMessageAnswer(
            remark=f"there may be more messages: {problem}" if problem else None,
            index_last_update_timestamp=statistics.last_store_timestamp,
            index_last_update_phyoffset=statistics.dispatched_offset,
            body=b"".join(records),
        )

    @handles(ViewMessage, may_wait=True)
    def view(self, request: ViewMessage, caller: Caller) -> "BodyAnswer[bytes] | Future[BodyAnswer[bytes]]":
        if not self._looking_up.is_place_here(request.offset):
            return get_running_loop().create_task(self._view_older(request, caller))
        return self._durability.when_readable(partial(self._view, request, caller))

    def _view(self, request: ViewMessage, caller: Caller) -> BodyAnswer[bytes]:
        record = None
        if request.offset < self._durability.readable_offset:
            record = self._store.log.record_at(request.offset)
        return _viewed(request, record, caller)

    async def _view_older(self, request: ViewMessage, caller: Caller) -> BodyAnswer[bytes]:
        record = await self._looking_up.record_before_log(request.offset, request.topic or "")
        return _viewed(request, record, caller)


def _viewed(request: ViewMessage, record: memoryview | bytes | None, caller: Caller) -> BodyAnswer[bytes]:
    if record is None:
        raise Refused(ResponseCode.SYSTEM_ERROR, f"no message begins at log offset {request.offset}")
    if caller.authority is not None:
        # The request may name another topic, or none.
        caller.require(SUB, GET, topic=decode_record(record).topic)
    return BodyAnswer(body=bytes(record))
