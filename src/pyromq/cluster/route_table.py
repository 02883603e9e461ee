"""The routes of topics: asked once, then kept up to date by the name server if it can, else by polling.

A route stays in use until a new one is known, even if name servers are unreachable or the topic is gone for a
moment. A question that failed is asked again soon: it may have been about a change.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import Any

from pyromq.cluster.aio import CallServer, ask
from pyromq.cluster.name_servers import NameServers
from pyromq.cluster.routes import Route, borrow_route, build_route
from pyromq.errors import ConfigError, NoRoute, PyroError, Refused, StateError
from pyromq.protocol.codes import ResponseCode
from pyromq.protocol.names import MASTER_ID
from pyromq.protocol.requests.routes import GetRoute

_log = logging.getLogger(__name__)

_POLLS_PER_LOOK_AT_WATCHED = 10
_QUESTIONS_AT_ONCE = 16
_FIRST_RETRY_S = 0.5
_MAX_RETRY_S = 10.0
_CLOSED = "the client is closed: create a new producer or consumer"


class KnownRoutes:
    """All routes and brokers that this client knows.

    `brokers_changed` is called when a broker appears, disappears or changes its address.
    """

    def __init__(
        self,
        name_servers: NameServers,
        call: CallServer,
        timeout_s: float,
        brokers_changed: Callable[[], None] = lambda: None,
    ) -> None:
        self._name_servers = name_servers
        self._call = call
        self._timeout_s = timeout_s
        self._brokers_changed = brokers_changed
        self._routes: dict[str, Route] = {}
        self._borrowed: dict[str, Route] = {}
        self._lenders: dict[str, str] = {}
        """The template of each borrowed route."""
        self._watched: set[str] = set()
        self._stale: set[str] = set()
        """Topics in use whose last question failed."""
        self._catching_up: asyncio.Task[None] | None = None
        self._listeners: dict[str, list[Callable[[Route], None]]] = {}
        self._questions: dict[str, asyncio.Task[Route]] = {}
        self._outdated: set[str] = set()
        self._refreshes: set[asyncio.Task[None]] = set()
        self._polls = 0
        self._is_closed = False
        self.changes = 0
        """Counts the changes of routes, also of borrowed ones."""
        self.brokers: dict[str, Mapping[int, str]] = {}
        """Every known broker: its name, then id → address."""
        self._former_brokers: set[str] = set()

    def __repr__(self) -> str:
        return (
            f"<KnownRoutes topics={len(self._routes)} watched={len(self._watched)} "
            f"borrowed={len(self._borrowed)} brokers={len(self.brokers)}>"
        )

    # Knowing

    def cached(self, topic: str) -> Route | None:
        return self._routes.get(topic)

    async def get(self, topic: str) -> Route:
        """The route of a topic; raises NoRoute if no broker has it, TransportError if none answers."""
        return self._routes.get(topic) or await self.refresh(topic)

    def for_publishing(self, topic: str) -> Route | None:
        """The cached route, or the borrowed one of a topic that does not exist yet."""
        return self._routes.get(topic) or self._borrowed.get(topic)

    async def get_or_borrow(self, topic: str, template: str, max_queues: int) -> Route:
        """The route of a topic; if it has none, one like that of `template`, from which brokers create it."""
        known = self.for_publishing(topic)
        if known is not None:
            return known
        try:
            return await self.refresh(topic)
        except NoRoute as missing:
            try:
                lender = await self.get(template)
            except NoRoute:
                raise missing from None
        self.changes += 1
        # Another caller may have found the topic meanwhile.
        if (found := self._routes.get(topic)) is not None:
            return found
        self._lenders[topic] = template
        return self._borrowed.setdefault(topic, borrow_route(topic, lender, max_queues))

    async def refresh(self, topic: str) -> Route:
        """Ask now; callers at the same time share one request."""
        if self._is_closed:
            raise StateError(_CLOSED)
        question = self._questions.get(topic)
        if question is None:
            question = asyncio.create_task(self._ask(topic), name=f"route of {topic}")
            question.add_done_callback(_retrieve)
            self._questions[topic] = question
        try:
            return await asyncio.shield(question)
        except asyncio.CancelledError:
            asking = asyncio.current_task()
            if question.cancelled() and asking is not None and not asking.cancelling():
                raise StateError(_CLOSED) from None
            raise
        except PyroError as problem:
            # Callers share it: without this, each adds its own frames to one traceback.
            raise problem.with_traceback(None) from problem.__cause__

    def on_change(self, topic: str, callback: Callable[[Route], None]) -> Callable[[], None]:
        """Call `callback` with every new route of the topic, also the first; returns how to stop that."""
        listeners = self._listeners.setdefault(topic, [])
        listeners.append(callback)

        def stop() -> None:
            if callback in listeners:
                listeners.remove(callback)
            if not listeners and self._listeners.get(topic) is listeners:
                del self._listeners[topic]

        return stop

    async def wait_changed(self, topic: str, timeout_s: float) -> None:
        """Return when the topic has another route than now, at the latest after the time-out."""
        changed = asyncio.Event()
        stop = self.on_change(topic, lambda _: changed.set())
        try:
            async with asyncio.timeout(timeout_s):
                await changed.wait()
        except TimeoutError:
            return
        finally:
            stop()

    def address(self, broker_name: str, broker_id: int = MASTER_ID, *, only_this: bool = False) -> str | None:
        """The address of a broker; unless `only_this`, another broker of the same name will do."""
        addresses = self.brokers.get(broker_name)
        if not addresses:
            return None
        found = addresses.get(broker_id)
        if found is None and broker_id != MASTER_ID:
            found = addresses.get(broker_id + 1)  # java: the next replica, if this one is gone
        if found is None and not only_this:
            found = next(iter(addresses.values()))
        return found

    def has_known(self, broker_name: str) -> bool:
        """Whether any route has ever named this broker: if so, it may come back."""
        return broker_name in self.brokers or broker_name in self._former_brokers

    # Keeping up

    def changed(self, topics: Iterable[str]) -> None:
        """A name server says that the routes of these topics changed."""
        for topic in topics:
            if topic in self._questions:
                # The answer on its way may be older than the change.
                self._outdated.add(topic)
            elif self._is_wanted(topic):
                self.refresh_soon(topic)

    def watch_lost(self) -> None:
        """The connection that announced changes ended: ask again for all routes."""
        if self._watched:
            self._watched.clear()
            self._start(self._refresh_all(self._wanted()))

    def refresh_soon(self, topic: str) -> None:
        if topic not in self._questions:
            self._start(self._refresh_all([topic]))

    async def poll(self) -> None:
        """Ask again for every route that is not announced, and for one that is: the name server that would
        announce its changes may be gone without a word. Now and then ask for all of them."""
        self._polls += 1
        topics = self._wanted()
        watched = [topic for topic in topics if topic in self._watched]
        if watched and self._polls % _POLLS_PER_LOOK_AT_WATCHED:
            skipped = {*watched} - {watched[self._polls % len(watched)]}
            topics = [topic for topic in topics if topic not in skipped]
        await self._refresh_all(topics)

    async def close(self) -> None:
        self._is_closed = True
        unfinished = [*self._refreshes, *self._questions.values()]
        for task in unfinished:
            task.cancel()
        await asyncio.gather(*unfinished, return_exceptions=True)

    def _wanted(self) -> list[str]:
        return list(dict.fromkeys((*self._routes, *self._borrowed, *self._listeners)))

    def _is_wanted(self, topic: str) -> bool:
        return topic in self._routes or topic in self._borrowed or topic in self._listeners

    def _start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._refreshes.add(task)
        task.add_done_callback(self._refreshes.discard)
        return task

    async def _refresh_all(self, topics: Iterable[str]) -> None:
        limit = asyncio.Semaphore(_QUESTIONS_AT_ONCE)

        async def refresh(topic: str) -> None:
            async with limit:
                level = logging.DEBUG if self._stale else logging.INFO  # one failure stands for all
                try:
                    await self.refresh(topic)
                except NoRoute:
                    _log.debug("no route topic=%s", topic)
                except PyroError as problem:
                    failed.append((level, topic, problem))

        failed: list[tuple[int, str, PyroError]] = []
        await asyncio.gather(*(refresh(topic) for topic in topics))
        if failed:
            level, topic, problem = failed[0]
            others = f" and {len(failed) - 1} more" if len(failed) > 1 else ""
            _log.log(level, "routes not refreshed topic=%s%s: %s", topic, others, problem)

    async def _ask(self, topic: str) -> Route:
        try:
            while True:
                self._outdated.discard(topic)
                route = await self._ask_once(topic)
                if topic not in self._outdated:
                    return route
        except NoRoute:
            self._stale.discard(topic)
            raise
        except PyroError:
            self._ask_again(topic)
            raise
        finally:
            self._outdated.discard(topic)
            del self._questions[topic]

    def _ask_again(self, topic: str) -> None:
        if self._is_wanted(topic) and not self._is_closed:
            self._stale.add(topic)
            if self._catching_up is None or self._catching_up.done():
                self._catching_up = self._start(self._catch_up())

    async def _catch_up(self) -> None:
        pause_s = _FIRST_RETRY_S
        while self._stale:
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, _MAX_RETRY_S)
            self._stale = set(filter(self._is_wanted, self._stale))
            await self._refresh_all(list(self._stale))

    async def _ask_once(self, topic: str) -> Route:
        try:
            question = GetRoute(topic=topic, watch=True)
            answer = await ask(self._name_servers, self._call, question, self._timeout_s)
        except Refused as refusal:
            self._watched.discard(topic)
            if refusal.code == ResponseCode.TOPIC_NOT_EXIST:
                raise NoRoute(topic, str(self._name_servers)) from None
            if refusal.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                raise ConfigError(
                    "namesrv",
                    self._name_servers,
                    "name servers (port 9876 by default); this server knows no routes, it may be a broker",
                ) from None
            raise
        if answer.watch:
            self._watched.add(topic)
        else:
            self._watched.discard(topic)
        route = build_route(topic, answer.body)
        self._take(route)
        return route

    def _take(self, route: Route) -> None:
        self._stale.discard(route.topic)
        self._give_back(route.topic)
        old = self._routes.get(route.topic)
        self._routes[route.topic] = route
        if route == old:
            return
        self.changes += 1
        for borrower in [each for each, lender in self._lenders.items() if lender == route.topic]:
            self._give_back(borrower)
        _log.debug("route changed %r", route)
        self._note_brokers(old, route)
        for callback in list(self._listeners.get(route.topic, ())):
            callback(route)

    def _give_back(self, topic: str) -> None:
        """The topic has a route, or its template has another: it is borrowed anew when it is needed."""
        self._borrowed.pop(topic, None)
        self._lenders.pop(topic, None)

    def _note_brokers(self, old: Route | None, new: Route) -> None:
        is_changed = False
        for name, addresses in new.brokers.items():
            if self.brokers.get(name) != addresses:
                self.brokers[name] = addresses
                is_changed = True
        gone = old.brokers.keys() - new.brokers.keys() if old is not None else ()
        for name in gone:
            if not any(name in route.brokers for route in self._routes.values()):
                self.brokers.pop(name, None)
                self._former_brokers.add(name)
                is_changed = True
        if is_changed:
            self._brokers_changed()


def _retrieve(question: "asyncio.Task[Route]") -> None:
    """Retrieve the exception, which asyncio logs otherwise if all callers were cancelled."""
    if not question.cancelled():
        question.exception()
