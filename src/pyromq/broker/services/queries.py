"""Look-up of single messages by key, unique key or log offset: of those that consumers can read."""

from asyncio import Future
from functools import partial

from pyromq.broker.flow.durability import Durability
from pyromq.errors import Refused, StoreError
from pyromq.protocol.catalogue import BodyAnswer
from pyromq.protocol.codes import ResponseCode
from pyromq.protocol.needs import GET, SUB
from pyromq.protocol.record import decode_record
from pyromq.protocol.requests.pulling import QueryMessage, QueryMessageAnswer, ViewMessage
from pyromq.remoting.routing import Caller, handles
from pyromq.store.message_store import MessageStore


class Queries:
    def __init__(self, store: MessageStore, durability: Durability) -> None:
        self._store = store
        self._durability = durability

    @handles(QueryMessage, may_wait=True)
    def query(
        self, request: QueryMessage, caller: Caller
    ) -> "QueryMessageAnswer | Future[QueryMessageAnswer]":
        return self._durability.when_readable(partial(self._query, request))

    def _query(self, request: QueryMessage) -> QueryMessageAnswer:
        # java: a look-up by unique key ignores the requested number
        limit = self._store.settings.max_unique_key_messages if request.is_unique_key else request.max_num
        try:
            records = self._store.log.query(
                request.topic, request.key, limit, request.begin_timestamp, request.end_timestamp
            )
        except StoreError as problem:
            raise Refused(ResponseCode.SYSTEM_ERROR, str(problem)) from None
        statistics = self._store.statistics()
        if not records:
            raise Refused(
                ResponseCode.QUERY_NOT_FOUND,
                f"no message found; the index is {statistics.dispatch_behind_bytes} bytes behind the log",
            )
        return QueryMessageAnswer(
            index_last_update_timestamp=statistics.last_store_timestamp,
            index_last_update_phyoffset=statistics.dispatched_offset,
            body=b"".join(records),
        )

    @handles(ViewMessage, may_wait=True)
    def view(self, request: ViewMessage, caller: Caller) -> "BodyAnswer[bytes] | Future[BodyAnswer[bytes]]":
        return self._durability.when_readable(partial(self._view, request, caller))

    def _view(self, request: ViewMessage, caller: Caller) -> BodyAnswer[bytes]:
        record = None
        if request.offset < self._durability.readable_offset:
            record = self._store.log.record_at(request.offset)
        if record is None:
            raise Refused(ResponseCode.SYSTEM_ERROR, f"no message begins at log offset {request.offset}")
        if caller.authority is not None:
            # The request may name another topic, or none.
            caller.require(SUB, GET, topic=decode_record(record).topic)
        return BodyAnswer(body=bytes(record))
