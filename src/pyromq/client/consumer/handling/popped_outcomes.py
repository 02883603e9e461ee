"""The outcomes of popped messages: acknowledged, hidden until a retry, moved to the dead letters, or renewed.

A message that waits or is being handled is kept hidden from the other members. Its receipt changes with that,
so a message is never acknowledged while it is being renewed.
"""

import asyncio
import logging
from collections.abc import Iterable
from datetime import timedelta

from pyromq.client.consumer.handling.outcomes import LEVELS_S, Delay
from pyromq.client.consumer.handling.retries import HandlerRetries
from pyromq.client.consumer.handling.retry_limit import RetryLimit
from pyromq.client.consumer.reading.popping import PoppedMessage, PopReading
from pyromq.client.values import ReceivedMessage
from pyromq.errors import PyroError, Refused
from pyromq.protocol import properties as props

_log = logging.getLogger(__name__)

_TRY_AGAIN_S = 0.5
_MAX_TRIES = 20
_SOON_S = 0.01


class PoppedOutcomes:
    def __init__(self, popping: PopReading, retries: HandlerRetries, dead_letters: RetryLimit) -> None:
        self._popping = popping
        self._retries = retries
        self._dead_letters = dead_letters
        self._renewing: dict[int, asyncio.Future[None]] = {}
        self._ending: set[int] = set()
        self._held_before: set[int] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    def __repr__(self) -> str:
        return f"<PoppedOutcomes renewing={len(self._renewing)} ending={len(self._ending)}>"

    async def acknowledge(self, message: ReceivedMessage) -> None:
        """Tries for a while; then the message is delivered again."""
        await self._end(message)
        try:
            await self._acknowledge(_popped(message))
        finally:
            self._ending.discard(id(message))

    async def give_back(self, message: ReceivedMessage, delay: Delay, reason: str) -> None:
        """Have the message delivered again after the delay; raises if the broker cannot be asked."""
        await self._end(message)
        popped = _popped(message)
        try:
            if await self._dead_letters.is_dead(message, delay):
                await self._retries.bury(message, reason)
                await self._acknowledge(popped)
                return
            if isinstance(delay, timedelta):
                hidden_s = max(delay.total_seconds(), _SOON_S)
            else:
                level = delay or props.FIRST_RETRY_LEVEL + message.reconsume_times
                hidden_s = LEVELS_S[min(level, len(LEVELS_S)) - 1]
            await self._popping.change_invisible_time(popped, hidden_s)
        except Refused as problem:
            _log.info("message comes again when it is visible id=%s: %s", message.message_id, problem)
        finally:
            self._ending.discard(id(message))

    async def renew(self, held: Iterable[ReceivedMessage], invisible_s: float) -> None:
        """Hide those for longer that were held at the last call, too; to be called several times in the
        invisible time."""
        messages = {id(message): _popped(message) for message in held}
        again = [messages[each] for each in self._held_before & messages.keys() - self._ending]
        self._held_before = set(messages)
        await asyncio.gather(*(self._renew(message, invisible_s) for message in again))

    def abandon(self, messages: Iterable[ReceivedMessage]) -> None:
        """The same as `show_again`, in the background."""
        task = asyncio.create_task(self.show_again(messages))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def show_again(self, messages: Iterable[ReceivedMessage]) -> None:
        """This process will not handle these: other members need not wait until they are visible."""
        left = [message for message in messages if id(message) not in self._ending]
        await asyncio.gather(*(self._show_again(message) for message in left))

    async def _show_again(self, message: ReceivedMessage) -> None:
        await self._end(message)
        try:
            await self._popping.change_invisible_time(_popped(message), _SOON_S)
        except PyroError as problem:
            _log.info("message is visible later id=%s: %s", message.message_id, problem)
        finally:
            self._ending.discard(id(message))

    async def _end(self, message: ReceivedMessage) -> None:
        """From now on it is not renewed."""
        self._ending.add(id(message))
        renewal = self._renewing.get(id(message))
        if renewal is not None:
            await renewal

    async def _acknowledge(self, message: PoppedMessage) -> None:
        for _ in range(_MAX_TRIES):
            try:
                await self._popping.acknowledge(message)
                return
            except Refused as problem:
                _log.warning("acknowledgement refused id=%s: %s", message.message_id, problem)
                return
            except PyroError as problem:
                last = problem
                await asyncio.sleep(_TRY_AGAIN_S)
        _log.warning("message not acknowledged, it comes again id=%s: %s", message.message_id, last)

    async def _renew(self, message: PoppedMessage, invisible_s: float) -> None:
        renewed = self._renewing[id(message)] = asyncio.get_running_loop().create_future()
        try:
            await self._popping.change_invisible_time(message, invisible_s)
        except PyroError as problem:
            _log.info("message not hidden for longer id=%s: %s", message.message_id, problem)
        finally:
            del self._renewing[id(message)]
            renewed.set_result(None)


def _popped(message: ReceivedMessage) -> PoppedMessage:
    assert isinstance(message, PoppedMessage)
    return message
