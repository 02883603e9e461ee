"""Runs an async handler for one message after the other, as long as it does not wait for anything.

Most handlers seldom wait: such a run costs no task, and its messages are settled together. There are compiled
twins.
"""

from collections.abc import Callable, Coroutine, Generator
from functools import partial
from types import CoroutineType, coroutine
from typing import TYPE_CHECKING, Any, TypeAlias

from pyromq.client.consumer.handling.handlers import Handler, MessageStream
from pyromq.client.consumer.reading.in_flight import InFlight
from pyromq.client.consumer.reading.stats import Counts
from pyromq.client.values import ReceivedMessage
from pyromq.compiled import twin


class InterpretedLot:
    """Messages of one queue for one handler; those from `next` on wait for it."""

    def __init__(
        self,
        held: InFlight[ReceivedMessage],
        messages: list[ReceivedMessage],
        handler: Handler | MessageStream | None,
        counts: Counts,
        next: int = 0,
    ) -> None:
        self.held = held
        self.messages = messages
        self.handler = handler
        self.counts = counts
        self.next = next

    @property
    def waiting(self) -> int:
        return len(self.messages) - self.next

    def take(self, count: int) -> list[ReceivedMessage]:
        """The next messages."""
        taken = self.messages[self.next : self.next + count]
        self.next += len(taken)
        return taken

    def cut(self) -> None:
        """No more of these are handled."""
        del self.messages[self.next :]


_twin = twin("client.twin_runs")

if TYPE_CHECKING:
    Lot = InterpretedLot
else:
    Lot = InterpretedLot if _twin is None else _twin.Lot

Run: TypeAlias = tuple[Any, bool, Any, BaseException | None, float, float]
"""How a run ended: what is to be awaited, if its last handler waits, whether that has begun, and what it then
waits for; the error of its last handler; when that began, and when the one before it ended."""


def _run_handlers(
    function: Callable[..., Any],
    lot: InterpretedLot,
    monotonic: Callable[[], float],
    turn_ends: float,
) -> Run:
    """Run the handler from `lot.next` on until it waits or fails, the queue closes, or the turn ends."""
    messages, held = lot.messages, lot.held
    begun = now = monotonic()
    while lot.next < len(messages) and not held.is_closing:
        message = messages[lot.next]
        lot.next += 1
        begun = now
        try:
            called = function(message)
            if type(called) is not CoroutineType:
                return called, False, None, None, begun, now
            try:
                waits_for = called.send(None)
            except StopIteration:
                pass
            else:
                return called, True, waits_for, None, begun, now
        except BaseException as problem:
            return None, False, None, problem, begun, monotonic()
        now = monotonic()
        if now > turn_ends:
            break
    return None, False, None, None, begun, now


run_handlers = _run_handlers if _twin is None else _twin.run_handlers


@coroutine
def rest_of(begun: Coroutine[Any, Any, object], waits_for: Any) -> Generator[Any, Any, None]:
    """Await the rest of a coroutine that has begun, and waits for something."""
    while True:
        try:
            given = yield waits_for
        except BaseException as problem:
            go_on = partial(begun.throw, problem)
        else:
            go_on = partial(begun.send, given)
        try:
            waits_for = go_on()
        except StopIteration:
            return
