"""Acknowledgements and renewals of popped messages, several together.

A renewal changes the receipt, so a message is never acknowledged while it is being renewed. What `soon` is
given is tried until the message is visible again; then it is delivered again, and the log says so.
"""

import asyncio
import logging
from collections.abc import Iterable

from pyromq.client.consumer.reading.popping import PoppedMessage, PopReading
from pyromq.clock import Clock
from pyromq.errors import PyroError, Refused

_log = logging.getLogger(__name__)

_TRY_AGAIN_S = 0.5


class PoppedAcks:
    def __init__(self, popping: PopReading, clock: Clock) -> None:
        self._popping = popping
        self._clock = clock
        self._soon: list[PoppedMessage] = []
        self._renewing: dict[int, asyncio.Future[None]] = {}
        self._done: set[int] = set()
        """Messages that were acknowledged while they were being renewed, or are about to be."""
        self._tasks: set[asyncio.Task[None]] = set()

    def __repr__(self) -> str:
        return f"<PoppedAcks soon={len(self._soon)} renewing={len(self._renewing)}>"

    def soon(self, message: PoppedMessage) -> None:
        """Acknowledge it with the others of this turn of the loop."""
        self._done.add(id(message))
        self._soon.append(message)
        if len(self._soon) == 1:
            task = asyncio.create_task(self._acknowledge_soon(), name="acknowledge")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _acknowledge_soon(self) -> None:
        messages, self._soon = self._soon, []
        try:
            await asyncio.gather(*(self._insist(*each) for each in _by_broker(messages).items()))
        finally:
            self._done.difference_update(map(id, messages))

    async def _insist(self, broker_name: str, messages: list[PoppedMessage]) -> None:
        while messages:
            await self._renewed(messages)
            try:
                await self._popping.acknowledge_together(broker_name, messages)
                return
            except Refused as refusal:
                _log.warning("acknowledgements refused broker=%s: %s", broker_name, refusal)
                return
            except PyroError as problem:
                now_ms = self._clock.now_ms()
                lost = [each for each in messages if each.invisible_until_ms <= now_ms]
                messages = [each for each in messages if each.invisible_until_ms > now_ms]
                for message in lost:
                    _log.warning(
                        "message not acknowledged, it comes again id=%s: %s", message.message_id, problem
                    )
                await asyncio.sleep(_TRY_AGAIN_S)

    async def together(self, messages: Iterable[PoppedMessage]) -> None:
        """Acknowledge all of them, with one request to each broker."""
        messages = list(messages)
        self._done.update(map(id, messages))
        try:
            await self._renewed(messages)
            await asyncio.gather(
                *(self._popping.acknowledge_together(*each) for each in _by_broker(messages).items())
            )
        finally:
            self._done.difference_update(map(id, messages))

    async def renew(self, messages: Iterable[PoppedMessage], seconds: float) -> list[PoppedMessage]:
        """Hide them for this long from now on; returns those for which that failed."""
        chosen = [each for each in messages if id(each) not in self._done and id(each) not in self._renewing]
        kept = await asyncio.gather(*(self._renew(each, seconds) for each in chosen))
        return [each for each, is_kept in zip(chosen, kept, strict=True) if not is_kept]

    async def _renew(self, message: PoppedMessage, seconds: float) -> bool:
        renewed = self._renewing[id(message)] = asyncio.get_running_loop().create_future()
        try:
            await self._popping.change_invisible_time(message, seconds)
        except PyroError as problem:
            _log.info("message not hidden for longer id=%s: %s", message.message_id, problem)
            return False
        finally:
            del self._renewing[id(message)]
            renewed.set_result(None)
        return True

    async def _renewed(self, messages: Iterable[PoppedMessage]) -> None:
        for message in messages:
            if (renewal := self._renewing.get(id(message))) is not None:
                await renewal

    async def finish(self, timeout_s: float) -> None:
        """Wait for the acknowledgements that `soon` was given, but no longer than this."""
        if self._tasks:
            _, late = await asyncio.wait(set(self._tasks), timeout=timeout_s)
            for task in late:
                task.cancel()


def _by_broker(messages: Iterable[PoppedMessage]) -> dict[str, list[PoppedMessage]]:
    found: dict[str, list[PoppedMessage]] = {}
    for message in messages:
        found.setdefault(message.receipt.broker_name, []).append(message)
    return found
