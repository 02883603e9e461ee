"""Pops that wait at brokers, and what becomes of those whose client gave up.

A pop cannot be cancelled at the broker: it may still take messages after its client has left. The next
receive of the same kind, by that client or another, continues it. Messages without a taker are given back, at
the cost of an attempt. A client that kept giving up or restarting, and left a pop behind each time, would
thus make dead letters of them.
"""

import asyncio
from collections.abc import Callable, Hashable
from functools import partial

import msgspec

from pyromq.clock import Clock
from pyromq.errors import PyroError
from pyromq.protocol.codes import ResponseCode
from pyromq.protocol.requests.lite import PopLiteMessage, PopLiteMessageAnswer
from pyromq.protocol.requests.popping import PopMessage, PopMessageAnswer
from pyromq.proxy.clients import FrontClient
from pyromq.proxy.membership import ProxyMembership

AnyPop = PopMessage | PopLiteMessage
AnyPopAnswer = PopMessageAnswer | PopLiteMessageAnswer
_Waiting = asyncio.Task[AnyPopAnswer]
GiveBack = Callable[[AnyPopAnswer, str, AnyPop], None]
"""Takes an answer whose messages have no taker, the name of the broker, and the request."""


class Pops:
    def __init__(
        self, membership: ProxyMembership, give_back: GiveBack, clock: Clock, timeout_s: float
    ) -> None:
        """`timeout_s`: how long an answer may take beyond the time that the pop waits."""
        self._membership = membership
        self._give_back = give_back
        self._clock = clock
        self._timeout_s = timeout_s
        self._abandoned: dict[Hashable, dict[_Waiting, str | None]] = {}
        """Those without a client, by their kind, and the attempt that each was for."""

    def __repr__(self) -> str:
        return f"<Pops abandoned={len(self)}>"

    def __len__(self) -> int:
        """How many are abandoned."""
        return sum(map(len, self._abandoned.values()))

    async def call(self, client: FrontClient, broker_name: str, pop: AnyPop) -> AnyPopAnswer | None:
        """The answer of a broker; None if there is none yet when the time of the pop is over."""
        loop = asyncio.get_running_loop()
        until = loop.time() + pop.poll_time / 1000
        kind = _kind(broker_name, pop)
        while waiting := self._take(kind, pop.attempt_id):
            await self._wait(waiting, until - loop.time(), kind, broker_name, pop)
            if not waiting.done():
                self._abandon(waiting, kind, broker_name, pop)
                return None
            if waiting.exception() is None and waiting.result().code == ResponseCode.SUCCESS:
                return waiting.result()
            left_ms = round((until - loop.time()) * 1000)
            pop = msgspec.structs.replace(pop, poll_time=max(left_ms, 0), born_time=self._clock.now_ms())
        timeout_s = pop.poll_time / 1000 + self._timeout_s
        waiting = asyncio.create_task(self._ask(client, broker_name, pop, timeout_s))
        await self._wait(waiting, None, kind, broker_name, pop)
        return waiting.result()

    async def _ask(
        self, client: FrontClient, broker_name: str, pop: AnyPop, timeout_s: float
    ) -> AnyPopAnswer:
        if isinstance(pop, PopLiteMessage):
            return await self._membership.call(client, broker_name, pop, timeout_s)
        return await self._membership.call(client, broker_name, pop, timeout_s)

    async def _wait(
        self, waiting: _Waiting, timeout_s: float | None, kind: Hashable, broker_name: str, pop: AnyPop
    ) -> None:
        try:
            await asyncio.wait([waiting], timeout=timeout_s)
        except asyncio.CancelledError:
            self._abandon(waiting, kind, broker_name, pop)
            raise

    def _take(self, kind: Hashable, attempt_id: str | None) -> _Waiting | None:
        """An abandoned pop of this kind, if possible for the same attempt."""
        abandoned = self._abandoned.get(kind)
        if not abandoned:
            return None
        same = (waiting for waiting, attempt in abandoned.items() if attempt == attempt_id)
        waiting = next(same, None) or next(iter(abandoned))
        self._forget(kind, waiting)
        return waiting

    def _forget(self, kind: Hashable, waiting: _Waiting) -> bool:
        """False: another receive continued it."""
        abandoned = self._abandoned.get(kind, {})
        was_there = waiting in abandoned
        abandoned.pop(waiting, None)
        if not abandoned:
            self._abandoned.pop(kind, None)
        return was_there

    def _abandon(self, waiting: _Waiting, kind: Hashable, broker_name: str, pop: AnyPop) -> None:
        self._abandoned.setdefault(kind, {})[waiting] = pop.attempt_id
        waiting.add_done_callback(partial(self._ended, kind=kind, broker_name=broker_name, pop=pop))

    def _ended(self, waiting: _Waiting, *, kind: Hashable, broker_name: str, pop: AnyPop) -> None:
        if not self._forget(kind, waiting):
            return
        if waiting.cancelled() or isinstance(waiting.exception(), PyroError):
            return
        if waiting.result().code == ResponseCode.SUCCESS:
            self._give_back(waiting.result(), broker_name, pop)

    async def close(self) -> None:
        waiting = [each for abandoned in self._abandoned.values() for each in abandoned]
        for each in waiting:
            each.cancel()
        if waiting:
            await asyncio.wait(waiting)


def _kind(broker_name: str, pop: AnyPop) -> Hashable:
    """Pops of one kind may stand for each other, whichever client and attempt they were for. Of lite topics
    each client reads others."""
    if isinstance(pop, PopLiteMessage):
        return broker_name, pop.consumer_group, pop.topic, pop.client_id, pop.max_msg_num, pop.invisible_time
    return (
        broker_name,
        pop.consumer_group,
        pop.topic,
        pop.max_msg_nums,
        pop.invisible_time,
        pop.exp_type,
        pop.exp,
        pop.order,
    )
