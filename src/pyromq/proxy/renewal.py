"""Keeps messages invisible while push consumers handle them.

The client knows the handle that it got; brokers want the newest. Before a message would become visible
it is hidden for longer, each time a bit more, until the consumer answers or the limit is reached.
"""

import asyncio
import heapq
import logging
from itertools import count

from pyromq.clock import Clock
from pyromq.errors import PyroError, Refused
from pyromq.protocol.codes import ResponseCode
from pyromq.proxy.client_settings import next_delay_ms
from pyromq.proxy.clients import FrontClient
from pyromq.proxy.cluster import ProxyCluster
from pyromq.proxy.receipts import Handle
from pyromq.proxy.settings import ProxySettings
from pyromq.proxy.topics import ProxyTopics

_log = logging.getLogger(__name__)

_MINUTE_MS = 60_000
_STEPS_MS = tuple(minutes * _MINUTE_MS for minutes in (1, 3, 5, 10, 30, 60))
_RENEWALS_AT_ONCE = 64


class _Held:
    def __init__(self, client: FrontClient, group: str, topic: str, handle: Handle, attempt: int) -> None:
        self.client = client
        self.group = group
        self.topic = topic
        self.handle = handle
        self.attempt = attempt
        self.since_ms = handle.receipt.pop_time_ms
        self.renewals = self.failures = 0
        self.is_done = False
        self.change: asyncio.Future[None] | None = None
        """Done when the renewal that is under way has an answer."""


class Renewal:
    def __init__(
        self, cluster: ProxyCluster, topics: ProxyTopics, clock: Clock, settings: ProxySettings
    ) -> None:
        self._cluster = cluster
        self._topics = topics
        self._clock = clock
        self._settings = settings
        self._held: dict[tuple[str, str], _Held] = {}
        self._of_client: dict[FrontClient, dict[tuple[str, str], None]] = {}
        self._due: list[tuple[int, int, tuple[str, str], _Held]] = []
        self._numbers = count()
        self._limit = asyncio.Semaphore(_RENEWALS_AT_ONCE)
        self._tasks: set[asyncio.Task[None]] = set()
        self.renewed = 0

    def __repr__(self) -> str:
        return f"<Renewal held={len(self._held)} renewed={self.renewed}>"

    def __len__(self) -> int:
        return len(self._held)

    def hold(self, client: FrontClient, group: str, topic: str, handle: Handle, attempt: int) -> None:
        """Renew this message until it is taken."""
        key = (group, str(handle))
        held = self._held[key] = _Held(client, group, topic, handle, attempt)
        self._of_client.setdefault(client, {})[key] = None
        self._plan(key, held)

    def is_changing(self, group: str, text: str) -> bool:
        """Whether a renewal of this message is under way."""
        held = self._held.get((group, text))
        return held is not None and held.change is not None

    def take_now(self, group: str, text: str) -> Handle | None:
        """The newest handle of a message that is not changing."""
        held = self._forget((group, text))
        return held.handle if held is not None else None

    def take_unchanged(self, group: str, text: str) -> bool:
        """Renew a message no more; False if its handle is not the newest, and nothing changes then."""
        held = self._held.get((group, text))
        if held is None:
            return True
        if held.renewals or held.change is not None:
            return False
        self._forget((group, text))
        return True

    async def take(self, group: str, text: str) -> Handle | None:
        """The newest handle of a message, if it is held here; it is not renewed any more."""
        held = self._forget((group, text))
        if held is None:
            return None
        if held.change is not None:
            await asyncio.shield(held.change)
        return held.handle

    def _forget(self, key: tuple[str, str]) -> _Held | None:
        held = self._held.pop(key, None)
        if held is not None:
            held.is_done = True
            keys = self._of_client.get(held.client)
            if keys is not None:
                keys.pop(key, None)
                if not keys:
                    del self._of_client[held.client]
        return held

    def _plan(self, key: tuple[str, str], held: _Held) -> None:
        due_ms = held.handle.expires_ms - self._settings.renew_ahead_ms
        heapq.heappush(self._due, (due_ms, next(self._numbers), key, held))

    # Renewing

    async def run(self) -> None:
        while True:
            await asyncio.sleep(self._settings.renew_interval_ms / 1000)
            await self.renew_due()

    async def renew_due(self) -> None:
        """Renew every message that would become visible soon."""
        now_ms = self._clock.now_ms()
        due: list[tuple[tuple[str, str], _Held]] = []
        while self._due and self._due[0][0] <= now_ms:
            _, _, key, held = heapq.heappop(self._due)
            if not held.is_done:
                due.append((key, held))
        await asyncio.gather(*(self._renew(key, held, now_ms) for key, held in due))

    async def _renew(self, key: tuple[str, str], held: _Held, now_ms: int) -> None:
        is_last = now_ms - held.since_ms >= self._settings.renew_max_ms
        async with self._limit:
            if held.is_done:
                return
            held.change = asyncio.get_running_loop().create_future()
            try:
                invisible_ms = await self._backoff_ms(held) if is_last else self._step_ms(held)
                held.handle = await self._change(held.topic, held.group, held.handle, invisible_ms)
            except PyroError as problem:
                self._failed(key, held, problem)
                return
            finally:
                held.change.set_result(None)
                held.change = None
        held.failures = 0
        held.renewals += 1
        self.renewed += 1
        if is_last:
            self._forget(key)
        elif not held.is_done:
            self._plan(key, held)

    def _failed(self, key: tuple[str, str], held: _Held, problem: PyroError) -> None:
        held.failures += 1
        is_gone = isinstance(problem, Refused) and problem.code == ResponseCode.NO_MESSAGE
        if is_gone or held.failures >= self._settings.max_renew_retries:
            _log.info("message not renewed any more group=%s topic=%s: %s", held.group, held.topic, problem)
            self._forget(key)
        else:
            self._plan(key, held)

    def _step_ms(self, held: _Held) -> int:
        return _STEPS_MS[min(held.renewals, len(_STEPS_MS) - 1)]

    async def _backoff_ms(self, held: _Held) -> int:
        return next_delay_ms(await self._topics.group(held.group), held.attempt)

    async def _change(self, topic: str, group: str, handle: Handle, invisible_ms: int) -> Handle:
        request = handle.change(topic, group, invisible_ms)
        return handle.changed(await self._cluster.call(handle.receipt.broker_name, request, None))

    async def hand_over(self) -> None:
        """The front stops: messages that are being handled stay hidden; another front takes the answers."""
        held, now_ms = list(self._held.items()), self._clock.now_ms()
        await asyncio.gather(*(self._renew(key, each, now_ms) for key, each in held))
        for key, _ in held:
            self._forget(key)

    # Clients that are gone

    def release(self, client: FrontClient) -> None:
        """Give the messages of a client that is gone to others."""
        for group, text in list(self._of_client.get(client, ())):
            self.give_back(self._held[group, text].topic, group, self._held[group, text].handle, text)

    def give_back(self, topic: str, group: str, handle: Handle, text: str = "") -> None:
        """Make an abandoned message visible soon; `text`: the handle that its client got."""
        task = asyncio.get_running_loop().create_task(self._give_back(topic, group, handle, text))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _give_back(self, topic: str, group: str, handle: Handle, text: str) -> None:
        handle = await self.take(group, text or str(handle)) or handle
        async with self._limit:
            try:
                await self._change(topic, group, handle, self._settings.invisible_when_gone_ms)
            except PyroError as problem:
                _log.info("message not given back group=%s topic=%s: %s", group, topic, problem)

    async def close(self) -> None:
        if self._tasks:
            await asyncio.wait(self._tasks)
