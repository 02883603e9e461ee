"""Plain messages of a producer that batches, gathered and sent by the compiled core.

A plain message has no unusual properties and needs no chosen queue. Others are gathered by the general path,
in other batches, and so are all without the compiled core. As for single messages in `quick_sends`, a batch
whose first try fails continues on the general path.
"""

from collections.abc import Callable, Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any

from pyromq.client.batching import Accumulator, offset_ids
from pyromq.client.quick_sends import SLOW_MS, quick_answers
from pyromq.client.quick_targets import PlainParts, Target, Targets, judged
from pyromq.client.sending import SendOutcome
from pyromq.client.values import Message, SendResult
from pyromq.clock import SystemClock
from pyromq.compiled import twin
from pyromq.protocol.requests.sending import SendMessageBatch, SendMessageV2
from pyromq.remoting.connection import Connection

if TYPE_CHECKING:
    from pyromq_native.client.fast_batches import Gathering, PlainBatch

_native, _gathering = twin("client.fast_sends"), twin("client.fast_batches")


def gathering(
    parts: PlainParts, max_bytes: int, generally: Callable[..., Coroutine[Any, Any, Any]]
) -> "Gathering | None":
    """None for producers that do not batch, and without the compiled core.

    `generally` sends a message by the general path.
    """
    session, accumulator = parts.session, parts.accumulator
    if _gathering is None or accumulator is None:
        return None
    gathered: Gathering = _gathering.Gathering(
        Message,
        parts.preparer.batch_topics,
        parts.preparer.batch_topic,
        parts.in_flight,
        session.unique_keys,
        None if type(session.clock) is SystemClock else session.clock.now_ms,
        session.check_loop,
        accumulator.begin_plain,
        accumulator.flush_plain,
        generally,
        suffix=parts.preparer.suffix,
        body_limit=parts.body_limit,
        max_bytes=max_bytes,
    )
    return gathered


def quick_batches(parts: PlainParts) -> "QuickBatches | None":
    """None without the compiled core, and for producers that have more to do."""
    accumulator = parts.accumulator
    if _native is None or accumulator is None or not parts.sender.allows_first_tries:
        return None
    return QuickBatches(parts, accumulator)


class QuickBatches:
    def __init__(self, parts: PlainParts, accumulator: Accumulator[SendResult]) -> None:
        assert _native is not None
        self.parts = parts
        self.accumulator = accumulator
        self.monotonic = parts.session.clock.monotonic
        self._targets = Targets(parts)
        self._plain_frame = _native.plain_frame
        self._max_frame_bytes = parts.session.max_frame_bytes
        self._answers = quick_answers(self._max_frame_bytes)

    def __repr__(self) -> str:
        return f"<QuickBatches {self._targets!r}>"

    def begin(self, batch: "PlainBatch") -> bool:
        """Send a batch, and settle it when the answer is there; False if the general path must do it."""
        session = self.parts.session
        target = self._targets.next(batch.topic)
        connection = session.writable(target.address) if target is not None else None
        if target is None or connection is None:
            return False
        batch.drop_cancelled()
        opaque = connection.take_opaque()
        frame = self._frame(batch, target, opaque)
        if frame is None or len(frame) > self._max_frame_bytes:
            return False
        self.parts.sender.statistics.attempts += 1
        self.accumulator.count(batch)
        if connection.fast_path is None:
            connection.fast_path = self._answers
        begun = BegunBatch(self, batch, connection, opaque, target)
        connection.begin_quickly(frame, opaque, begun, target.limit_s)
        connection.quick[opaque] = (begun, target.shown_queue, "")
        return True

    def _frame(self, batch: "PlainBatch", target: Target, opaque: int) -> bytes | None:
        queue_id = target.queue.queue_id
        if len(batch) > 1:
            return batch.frame(target.batch_pieces, queue_id, opaque)
        if not len(batch):
            return None
        parts, (message,), (key,) = self.parts, batch.messages, batch.keys
        frame: bytes | None = self._plain_frame(
            target.pieces,
            message,
            key,
            parts.preparer.suffix,
            parts.body_limit,
            queue_id,
            batch.born_ms,
            opaque,
        )
        return frame


class BegunBatch:
    """Waits for the answer to a batch."""

    __slots__ = ("_batch", "_connection", "_is_over", "_opaque", "_quick", "_started", "_target")

    def __init__(
        self, quick: QuickBatches, batch: "PlainBatch", connection: Connection, opaque: int, target: Target
    ) -> None:
        self._quick = quick
        self._batch = batch
        self._connection = connection
        self._opaque = opaque
        self._target = target
        self._started = quick.monotonic()
        self._is_over = False

    def __repr__(self) -> str:
        return f"<BegunBatch {self._opaque} of {len(self._batch)} messages to {self._target.queue}>"

    def done(self) -> bool:
        return self._is_over

    def set_result(self, answer: Any) -> None:
        """A SendResult with the ids of all messages, or an unusual answer as a Frame."""
        self._is_over = True
        quick, batch, sender = self._quick, self._batch, self._quick.parts.sender
        self._connection.end_quick_call(self._opaque)
        if type(answer) is not SendResult:
            quick.accumulator.finish(batch, partial(self._go_on, answer))
            return
        latency_ms = (quick.monotonic() - self._started) * 1000
        if latency_ms >= SLOW_MS or sender.avoids_brokers:
            sender.note_answer(self._target.queue.broker_name, latency_ms)
        batch.settle(
            SendResult,
            offset_ids(answer.offset_message_id, len(batch)),
            answer.status,
            answer.queue,
            answer.queue_offset,
            answer.transaction_id,
            answer.recall_handle,
            answer.region,
        )
        quick.accumulator.leave(batch)

    set_exception = set_result

    async def _go_on(self, answer: Any) -> None:
        """The general path continues."""
        parts, batch = self._quick.parts, self._batch
        kind = SendMessageBatch if len(batch) > 1 else SendMessageV2
        verdict = judged(parts, kind, self._target, self._connection, self._started, answer)
        if isinstance(verdict, SendOutcome):
            parts.settle_gathered(batch, verdict)
        else:
            await parts.send_gathered(batch, verdict)
