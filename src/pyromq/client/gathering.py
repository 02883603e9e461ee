"""Plain messages of a producer that batches, gathered by the compiled core.

A plain message has no unusual properties and needs no queue of its own. Others are gathered by the general
path, in batches of their own; without the compiled core, all are.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol, TypeAlias

from pyromq.client.batching import Accumulator
from pyromq.client.in_flight_limit import InFlightLimit
from pyromq.client.prepared_messages import MessagePreparer
from pyromq.client.session import Session
from pyromq.client.values import Message, SendResult
from pyromq.clock import SystemClock
from pyromq.compiled import twin

if TYPE_CHECKING:
    from pyromq_native.gathering import Promise

_native = twin("gathering")

Gather: TypeAlias = "Callable[[Message], Promise | None]"


class Parts(Protocol):
    """The parts of a producer that are used here."""

    @property
    def session(self) -> Session: ...
    @property
    def preparer(self) -> MessagePreparer: ...
    @property
    def in_flight(self) -> InFlightLimit: ...
    @property
    def body_limit(self) -> int: ...
    @property
    def accumulator(self) -> Accumulator[SendResult] | None: ...


def gathering(parts: Parts, max_bytes: int) -> "Gather | None":
    """None for producers that do not batch, and without the compiled core."""
    session, accumulator = parts.session, parts.accumulator
    if _native is None or accumulator is None:
        return None
    gather: Gather = _native.Gathering(
        Message,
        parts.preparer.batch_topics,
        parts.preparer.batch_topic,
        parts.in_flight,
        session.unique_keys,
        None if type(session.clock) is SystemClock else session.clock.now_ms,
        session.check_loop,
        accumulator.begin_plain,
        accumulator.flush_plain,
        suffix=parts.preparer.suffix,
        body_limit=parts.body_limit,
        max_bytes=max_bytes,
    ).add
    return gather
