"""Plain sends with nothing in their way, compiled: a message becomes a frame, and its answer a result.

That is a message without unusual properties, one by one, to a topic whose route is known, on an open
connection, while no broker is avoided. Everything else takes the general path, and so does a send whose first
try fails here: it continues there with one try less. Without the compiled core there is no other path.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from pyromq.client.quick_targets import PlainParts, Target, Targets, judged
from pyromq.client.sending import SendOutcome
from pyromq.client.values import Message, SendResult, SendStatus
from pyromq.clock import SystemClock
from pyromq.cluster.sending.choice import LATENCIES_MS
from pyromq.compiled import twin
from pyromq.protocol import names
from pyromq.protocol.requests.sending import SendMessageV2
from pyromq.remoting.soon import soon_of

if TYPE_CHECKING:
    from pyromq_native.client.fast_sends import Call, Sending

_native = twin("client.fast_sends")

Generally: TypeAlias = Callable[..., Coroutine[Any, Any, Any]]

SLOW_MS: Final = LATENCIES_MS[0]
"""A slower answer counts against its broker."""


def quick_answers(max_frame_bytes: int) -> Callable[..., tuple[int, int]]:
    """The fast path of the connections: it reads the answers to quick sends."""
    assert _native is not None
    answers: Callable[..., tuple[int, int]] = _native.QuickAnswers(
        SendResult, SendStatus.SEND_OK, names.DEFAULT_REGION, max_frame_bytes
    )
    return answers


def quick_sends(parts: PlainParts, generally: Generally) -> "QuickSends | None":
    """None without the compiled core, and for producers that have more to do.

    `generally` sends a message by the general path.
    """
    return QuickSends(parts, generally) if _native is not None and parts.sends_directly else None


class QuickSends:
    def __init__(self, parts: PlainParts, generally: Generally) -> None:
        assert _native is not None
        self._parts = parts
        self._targets = Targets(parts)
        self._known_topics = parts.preparer.known_topics
        self._suffix = parts.preparer.suffix
        self._body_limit = parts.body_limit
        self._plain_frame = _native.plain_frame
        session, clock = parts.session, parts.session.clock
        self._max_frame_bytes = session.max_frame_bytes
        self.answers = quick_answers(session.max_frame_bytes)
        is_own_time = type(clock) is SystemClock
        self.sending: Sending = _native.Sending(
            self._known_topics,
            self._targets.of,
            session.routes,
            parts.sender,
            session,
            parts.in_flight,
            self.answers,
            generally,
            self._end_otherwise,
            soon_of(asyncio.get_running_loop()).call,
            now_ms=None if is_own_time else clock.now_ms,
            monotonic=None if is_own_time else clock.monotonic,
            suffix=self._suffix,
            body_limit=self._body_limit,
            slow_us=SLOW_MS * 1000,
        )

    def __repr__(self) -> str:
        return f"<QuickSends {self._targets!r}>"

    def next_target(self, message: Message) -> Target | None:
        """The queue whose turn it is; None if something must be found out first, or a broker is avoided."""
        topic = self._known_topics.get(message.topic)
        return self._targets.next(topic) if topic is not None else None

    def frame(
        self, message: Message, target: Target, unique_key: str, born_ms: int, opaque: int
    ) -> bytes | None:
        """The whole request; None for an unusual message."""
        frame: bytes | None = self._plain_frame(
            target.pieces,
            message,
            unique_key,
            self._suffix,
            self._body_limit,
            target.queue.queue_id,
            born_ms,
            opaque,
        )
        return frame if frame is not None and len(frame) <= self._max_frame_bytes else None

    async def _end_otherwise(self, call: "Call", answer: Any) -> SendResult:
        """The answer was an unusual frame, or an error: after that the general path continues."""
        parts = self._parts
        prepared = parts.preparer.prepare(call.message, call.unique_key, call.born_ms)
        verdict = judged(parts, SendMessageV2, call.target, call.connection, call.started, answer)
        if isinstance(verdict, SendOutcome):
            return parts.result(prepared, verdict)
        return await parts.send_on(prepared, verdict)
