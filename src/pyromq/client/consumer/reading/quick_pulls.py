"""Plain pulls with nothing in their way: the compiled core reads their answers as they arrive.

That is a pull from an ordinary queue on an open connection. Unusual answers come as frames, and the general
path reads them.
"""

from collections.abc import Callable
from typing import Any

import msgspec

from pyromq.client.namespaces import unwrap
from pyromq.client.quick_sends import quick_answers
from pyromq.client.session import Session
from pyromq.client.values import ReceivedMessage
from pyromq.compiled import twin
from pyromq.errors import CallTimeout, Refused
from pyromq.protocol.body import MessageQueue
from pyromq.protocol.catalogue import decode_answer
from pyromq.protocol.codes import ResponseCode
from pyromq.protocol.names import LMQ_PREFIX, MASTER_ID, retry_topic
from pyromq.protocol.request_forms import RequestForm
from pyromq.protocol.requests.pulling import PullMessageAnswer
from pyromq.remoting.connection import Connection

_native = twin("client.twin_pulled_message")

Wanted = tuple[MessageQueue, int, bytes, str]
"""A queue with its id, its topic, and the topic to show."""


class Pulled(msgspec.Struct, frozen=True, gc=False):
    messages: list[ReceivedMessage]
    next_offset: int
    min_offset: int
    max_offset: int
    next_broker_id: int = MASTER_ID
    """The broker of that name to ask next."""
    is_moved: bool = False
    """The requested offset is not in the queue; `next_offset` is."""


def quick_pulls(session: Session, group: str) -> "QuickPulls | None":
    """None without the compiled core, and where requests need more than a filled form."""
    return QuickPulls(session, group) if _native is not None and session.fills_forms else None


class QuickPulls:
    def __init__(self, session: Session, group: str) -> None:
        assert _native is not None
        self._session = session
        self._retry_topic = retry_topic(group)
        self._max_frame_bytes = session.max_frame_bytes
        self._kind: type = _native.PullAnswers
        sends = quick_answers(session.max_frame_bytes)
        self._answers: Callable[..., tuple[int, int]] = _native.PullAnswers(
            ReceivedMessage, Pulled, sends, session.max_frame_bytes
        )
        self._sends = type(sends)

    def __repr__(self) -> str:
        return f"<QuickPulls {self._session!r}>"

    def wanted(self, queue: MessageQueue) -> Wanted | None:
        """None for queues whose messages have other topics and offsets than the queue says."""
        if queue.topic == self._retry_topic or queue.topic.startswith(LMQ_PREFIX):
            return None
        shown = unwrap(queue.topic, self._session.settings.namespace)
        return queue, queue.queue_id, queue.topic.encode(), shown

    def connection(self, address: str) -> Connection | None:
        """A connection that takes requests now, and whose answers can be read here."""
        connection = self._session.writable(address)
        if connection is None or type(connection.fast_path) is self._kind:
            return connection
        if connection.fast_path is not None and type(connection.fast_path) is not self._sends:
            return None
        connection.fast_path = self._answers
        return connection

    async def call(
        self,
        connection: Connection,
        address: str,
        form: RequestForm[PullMessageAnswer],
        numbers: tuple[int, int, int],
        wanted: Wanted,
        timeout_s: float,
    ) -> Pulled | PullMessageAnswer:
        """Raises as `Session.call` does."""
        opaque = connection.take_opaque()
        head = form.head(numbers, opaque, 0, self._max_frame_bytes)
        answered = connection.send_quickly(head, opaque, timeout_s)
        connection.quick[opaque] = (answered, *wanted, numbers[0])
        try:
            answer: Any = await answered
        except TimeoutError:
            name = form.request_type.__name__
            raise CallTimeout(f"{address}: no answer to {name} in {timeout_s:.3g} s") from None
        finally:
            connection.end_quick_call(opaque)
        if type(answer) is Pulled:
            return answer
        try:
            return decode_answer(form.request_type, answer)
        except Refused as refusal:
            if refusal.code != ResponseCode.GO_AWAY:
                raise
        # Another server may listen by now.
        self._session.retire(address, connection)
        return await self._session.call(address, form.fill(numbers, b""), timeout_s)
