"""Plain messages of a producer that batches, gathered by the compiled core.

A plain message has no unusual properties and needs no queue of its own. Others are gathered by the general
path, in batches of their own; without the compiled core, all are.
"""

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Protocol

from pyromq.client.batching import Accumulator
from pyromq.client.quick_targets import PlainParts
from pyromq.client.values import Message, SendResult
from pyromq.clock import SystemClock
from pyromq.compiled import twin

if TYPE_CHECKING:
    from pyromq_native.gathering import Gathering

_native = twin("gathering")


class Parts(PlainParts, Protocol):
    """The parts of a producer that are used here."""

    @property
    def accumulator(self) -> Accumulator[SendResult] | None: ...


def gathering(
    parts: Parts, max_bytes: int, generally: Callable[..., Coroutine[Any, Any, Any]]
) -> "Gathering | None":
    """None for producers that do not batch, and without the compiled core.

    `generally` sends a message by the general path.
    """
    session, accumulator = parts.session, parts.accumulator
    if _native is None or accumulator is None:
        return None
    gathered: Gathering = _native.Gathering(
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
