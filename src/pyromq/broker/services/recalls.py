"""Recalls: take back a timed message before its time.

A recall is a timed message itself. It waits in the slot of the message that it names, and takes effect when
that slot's time comes.
"""

import asyncio

from pyromq.broker.flow.draft import Draft
from pyromq.broker.flow.inbound import Inbound
from pyromq.broker.flow.safe_answers import when_safe
from pyromq.broker.flow.timing import recall_key
from pyromq.broker.settings import BrokerSettings
from pyromq.broker.tables.all_tables import Tables
from pyromq.clock import Clock
from pyromq.config.live import LiveSettings
from pyromq.errors import Refused, RemoteProtocolError
from pyromq.protocol import names
from pyromq.protocol import properties as props
from pyromq.protocol.codes import ResponseCode
from pyromq.protocol.message_id import RecallHandle, decode_recall_handle
from pyromq.protocol.properties import encode_properties
from pyromq.protocol.requests.sending import RecallMessage, RecallMessageAnswer
from pyromq.remoting.routing import Caller, handles
from pyromq.store.message_store import MessageStore

# java: the tag and the body of a recall
_TAG, _BODY = "_RECALL_TAG_", b"0"


class Recalls:
    def __init__(
        self,
        live: LiveSettings[BrokerSettings],
        store: MessageStore,
        tables: Tables,
        inbound: Inbound,
        clock: Clock,
    ) -> None:
        self._live = live
        self._store = store
        self._topics = tables.topics
        self._role = tables.role
        self._statistics = tables.statistics
        self._appending = inbound.appending
        self._born_hosts = inbound.born_hosts
        self._clock = clock

    @handles(RecallMessage, may_wait=True)
    def recall(
        self, request: RecallMessage, caller: Caller
    ) -> "RecallMessageAnswer | asyncio.Future[RecallMessageAnswer]":
        handle = self._checked(request)
        draft = self._draft(request, handle, caller)
        result = self._appending.append(draft)
        if not result.is_ok:
            self._statistics.put_failures += 1
            raise Refused(ResponseCode.SYSTEM_ERROR, f"the recall could not be stored: {result.reason}")
        self._statistics.put(draft.topic, draft.queue_id, 1, result.size_bytes)
        answer = RecallMessageAnswer(msg_id=handle.unique_key, msg_region=self._live.now.region_id)
        return when_safe(self._appending.durability, answer, result)

    def _checked(self, request: RecallMessage) -> RecallHandle:
        """java: the checks run in Apache's order, because clients branch on the first error."""
        settings = self._live.now
        if not settings.recalls:
            raise Refused(ResponseCode.NO_PERMISSION, "recall failed, operation is forbidden")
        if not self._role.now.is_master:
            raise Refused(
                ResponseCode.SLAVE_NOT_AVAILABLE, "this broker is a replica: only the master recalls"
            )
        is_early = self._clock.now_ms() < settings.start_accept_send_ms
        is_closed = not settings.broker_permission & names.WRITE and not settings.recalls_when_read_only
        if is_early or is_closed:
            raise Refused(ResponseCode.SERVICE_NOT_AVAILABLE, "this broker accepts no messages now")
        if request.topic not in self._topics:
            raise Refused(ResponseCode.TOPIC_NOT_EXIST, f"the topic {request.topic} does not exist")
        try:
            handle = decode_recall_handle(request.recall_handle)
        except RemoteProtocolError as problem:
            raise Refused(ResponseCode.ILLEGAL_OPERATION, str(problem)) from None
        if handle.topic != request.topic:
            raise _illegal(f"the handle is for the topic {handle.topic}, not {request.topic}")
        if handle.broker_name != settings.broker_name:
            raise _illegal(f"the handle is for the broker {handle.broker_name}, not {settings.broker_name}")
        left_ms = handle.deliver_ms - self._store.time.now_ms()
        if not 0 < left_ms < self._store.settings.timer_max_delay_seconds * 1000:
            raise _illegal(
                f"the time of delivery is {left_ms} ms ahead: it is too late, or the handle is wrong"
            )
        return handle

    def _draft(self, request: RecallMessage, handle: RecallHandle, caller: Caller) -> Draft:
        now_ms = self._clock.now_ms()
        properties = {
            props.TIMER_DEL_UNIQKEY: recall_key(handle.topic, handle.unique_key),
            props.UNIQ_KEY: handle.unique_key,
            props.TIMER_DELIVER_MS: str(handle.deliver_ms),
            props.BORN_TIMESTAMP: str(now_ms),
            props.TAGS: _TAG,
            props.PRODUCER_GROUP: request.producer_group,
        }
        return Draft(
            handle.topic,
            0,
            _BODY,
            encode_properties(properties).encode(),
            now_ms,
            self._born_hosts.of(caller.channel),
        )


def _illegal(reason: str) -> Refused:
    return Refused(ResponseCode.ILLEGAL_OPERATION, f"recall failed: {reason}")
