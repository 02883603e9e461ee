"""One poller per cluster, for all viewers: the number of its requests depends on the servers alone.

Each question to each server has its own pace and time-out, and runs as its own task, so a silent server
delays no other. The answers are joined into a `Snapshot`, at most once a second.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from types import MappingProxyType, TracebackType
from typing import Final, Self

from pyromq.admin import figures, name_servers
from pyromq.admin.cluster import BrokerMember, Cluster, members_of
from pyromq.clock import Clock
from pyromq.console.watch import asking, joining, problems
from pyromq.console.watch.aside import Aside
from pyromq.console.watch.broker_part import BrokerPart
from pyromq.console.watch.departures import BrokerDepartures
from pyromq.console.watch.joining import Joined
from pyromq.console.watch.questions import Questions
from pyromq.console.watch.values import ControlledGroup, ControllerView, LastAnswer, NameServerView, Snapshot
from pyromq.console.watch.views import Views
from pyromq.errors import PyroError
from pyromq.protocol.requests.routes import ClusterInfo, GetClusterInfo
from pyromq.remoting.slices import Slices


@dataclass(frozen=True, slots=True)
class Pace:
    """How often each question is asked, in seconds."""

    cluster_s: float = 5.0
    routes_s: float = 30.0
    runtime_s: float = 5.0
    figures_s: float = 5.0
    topics_s: float = 300.0
    settings_s: float = 600.0
    offsets_s: float = 15.0
    lags_s: float = 60.0
    silent_max_s: float = 30.0
    """A server that does not answer is asked less and less often, down to this."""


_TIMEOUT_S: Final = 3.0
_TICK_S: Final = 0.025
_PUBLISH_S: Final = 1.0
_MAX_PUBLISH_S: Final = 5.0
_MAX_LOAD: Final = 0.05
"""Joining takes about this part of the time: large clusters are joined less often, if not too rarely."""
_FREED: Final = 100
"""Number of views that are freed between two looks at the clock."""


class _NameServer:
    def __init__(self, address: str) -> None:
        self.address = address
        self.told = LastAnswer()
        self.info: ClusterInfo | None = None
        self.topics: frozenset[str] | None = None
        self.digests: dict[str, str] | None = None
        self.has_digests: bool | None = None


class _Controller:
    def __init__(self, address: str) -> None:
        self.address = address
        self.told = LastAnswer()
        self.is_leader: bool | None = None
        self.groups: tuple[ControlledGroup, ...] | None = None

    def view(self) -> ControllerView:
        return ControllerView(self.address, self.told, self.is_leader, self.groups)


class Watch:
    """`async with Watch(cluster) as watch:` and `watch.run()` in a task; `watch.snapshot` is the latest."""

    def __init__(
        self,
        cluster: Cluster,
        *,
        pace: Pace | None = None,
        clock: Clock | None = None,
        name: str = "",
        turns: Slices | None = None,
    ) -> None:
        self.name = name
        self.pace = pace or Pace()
        self._cluster = cluster
        self._clock = clock or cluster.clock
        self._aside = Aside(cluster)
        self._slices = turns or Slices(self._clock)
        self._resources = AsyncExitStack()
        self._servers = {address: _NameServer(address) for address in cluster.name_servers}
        self._parts: dict[str, BrokerPart] = {}
        """By address."""
        self._controllers: dict[str, _Controller] = {}
        self._questions = Questions(self._clock, self.pace.silent_max_s)
        self._views = Views(self._clock, self._slices)
        self._departures = BrokerDepartures()
        self._standing = problems.Standing()
        self._publish_at_s = 0.0
        self._publishing = asyncio.Lock()
        self._published = asyncio.Event()
        self._listeners: list[Callable[[Snapshot], None]] = []
        self.snapshot = Snapshot()
        for server in self._servers.values():
            self._questions.add(server.address, "info", self._ask_info(server), self.pace.cluster_s)
            self._questions.add(server.address, "topics", self._ask_topics(server), self.pace.routes_s)

    def __repr__(self) -> str:
        return f"<Watch {self.name or self._cluster!r} brokers={len(self._parts)} asked={self.asked}>"

    async def __aenter__(self) -> Self:
        await self._resources.enter_async_context(self._aside)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._questions.stop()
        await self._resources.aclose()

    @property
    def asked(self) -> int:
        """How many questions were asked so far."""
        return self._questions.asked

    # For pages

    def on_snapshot(self, listener: Callable[[Snapshot], None]) -> None:
        """Call `listener` with every new snapshot."""
        self._listeners.append(listener)

    async def first(self, timeout_s: float) -> Snapshot:
        """The first snapshot with brokers, or what there is after a time."""
        try:
            async with asyncio.timeout(timeout_s):
                while self.snapshot.is_first:
                    self._published.clear()
                    await self._published.wait()
        except TimeoutError:
            pass
        return self.snapshot

    def open_topic(self, topic: str) -> None:
        """A page of a topic is open: keep its history for the next ten minutes."""
        self._views.open_topic(topic)

    def changed_something(self, address: str | None = None) -> None:
        """The console wrote to the cluster: ask everybody, or one server, again soon."""
        self._questions.ask_again(address)

    def readings(self, about: str, name: str, figure: str, span_s: float) -> list[tuple[float, float]]:
        """The history of a figure for a chart: times in seconds since the epoch, and values, oldest first.

        Brokers (`name/id`) have `in`, `out`, `disk`; topics `in`, `out`; groups `lag`, `age`; the cluster
        (with an empty name) `in`, `out`, `lag`.
        """
        return self._views.readings(about, name, figure, span_s)

    # Asking

    async def run(self) -> None:
        """Ask for ever."""
        publishing: asyncio.Task[None] | None = None
        try:
            while True:
                self._questions.start_due()
                if publishing is not None and publishing.done():
                    publishing = publishing.result()
                is_due = self._questions.has_news and self._clock.monotonic() >= self._publish_at_s
                if is_due and publishing is None:
                    publishing = asyncio.create_task(self.publish(), name="console publishing")
                await asyncio.sleep(_TICK_S)
        finally:
            if publishing is not None:
                publishing.cancel()

    async def look(self) -> Snapshot:
        """Ask whatever is due now, and whatever is due then, wait for all answers, and join them."""
        while self._questions.start_due() or self._questions.running():
            await asyncio.gather(*self._questions.running(), return_exceptions=True)
        await self.publish()
        return self.snapshot

    # Name servers

    def _ask_info(self, server: _NameServer) -> Callable[[], Awaitable[None]]:
        async def ask() -> None:
            try:
                answer = await self._cluster.ask(server.address, GetClusterInfo(), _TIMEOUT_S)
            except PyroError as problem:
                server.told = LastAnswer(server.told.at_ms, str(problem))
                raise
            server.info = answer.body
            server.told = LastAnswer(self._clock.now_ms())
            self._follow_members()

        return ask

    def _ask_topics(self, server: _NameServer) -> Callable[[], Awaitable[None]]:
        async def ask() -> None:
            if server.has_digests is not False:
                server.digests = await figures.route_digests(self._cluster, server.address)
                server.has_digests = server.digests is not None
            if server.digests is not None:
                server.topics = frozenset(server.digests)
            else:
                server.topics = frozenset(await name_servers.topics_at(self._cluster, server.address))

        return ask

    def _follow_members(self) -> None:
        """Start to ask new brokers, and stop to ask those that no name server knows any more."""
        members: dict[str, BrokerMember] = {}
        for server in self._servers.values():
            if server.info is not None:
                for member in members_of(server.info):
                    members.setdefault(member.address, member)
        known = [part.member for part in self._parts.values()]
        told_ms = {address: part.told.at_ms for address, part in self._parts.items()}
        self._departures.follow(known, members, told_ms, self._clock.now_ms())
        for gone in self._parts.keys() - members.keys():
            self._questions.drop(gone)
            del self._parts[gone]
        for address, member in members.items():
            part = self._parts.get(address)
            if part is None:
                part = self._parts[address] = BrokerPart(member)
                self._questions.add(address, "runtime", self._ask_runtime(part), self.pace.runtime_s)
            part.member = member
        tellers = self._tellers()
        for address, part in self._parts.items():
            if part.member == tellers[part.member.broker_name]:
                self._questions.add(
                    address,
                    "lists",
                    self._ask_lists(part),
                    self.pace.figures_s,
                    is_large=part.has_nothing_yet,
                )
            elif (address, "lists") in self._questions:
                self._questions.drop(address, "lists", *_APACHE)
                part.forget_lists()

    def _tellers(self) -> dict[str, BrokerMember]:
        """The broker asked for each broker group's lists: its master or, without one, its first replica."""
        found: dict[str, BrokerMember] = {}
        for part in self._parts.values():
            member = part.member
            if member.broker_id < found.setdefault(member.broker_name, member).broker_id:
                found[member.broker_name] = member
        return found

    # Brokers

    def _ask_runtime(self, part: BrokerPart) -> Callable[[], Awaitable[None]]:
        async def ask() -> None:
            try:
                await asking.runtime(self._cluster, part)
            except PyroError as problem:
                part.told = LastAnswer(part.told.at_ms, str(problem))
                raise
            part.told = LastAnswer(self._clock.now_ms())
            self._follow_controllers()

        return ask

    # Controllers

    def _controlled(self) -> dict[str, str]:
        """The controllers of each broker group that has some, as its brokers name them."""
        told = (
            (part.member.broker_name, part.runtime.get("controllerAddr")) for part in self._parts.values()
        )
        return {name: addresses for name, addresses in told if addresses}

    def _follow_controllers(self) -> None:
        named = {
            each.strip() for addresses in self._controlled().values() for each in addresses.split(";")
        } - {""}
        for gone in self._controllers.keys() - named:
            self._questions.drop(gone, "controller")
            del self._controllers[gone]
        for address in named - self._controllers.keys():
            controller = self._controllers[address] = _Controller(address)
            self._questions.add(address, "controller", self._ask_controller(controller), self.pace.cluster_s)

    def _ask_controller(self, controller: _Controller) -> Callable[[], Awaitable[None]]:
        async def ask() -> None:
            try:
                known = await asking.controller(self._cluster, controller.address, sorted(self._controlled()))
            except PyroError as problem:
                controller.told = LastAnswer(controller.told.at_ms, str(problem))
                raise
            controller.is_leader, controller.groups = known
            controller.told = LastAnswer(self._clock.now_ms())

        return ask

    def _ask_lists(self, part: BrokerPart) -> Callable[[], Awaitable[None]]:
        async def ask() -> None:
            address, pace, aside, clock = part.member.address, self.pace, self._aside, self._clock
            is_ours = await self._noting(part, asking.bulk(self._cluster, part))
            # A broker of ours may take the place of one of Apache.
            self._questions.set_pace(address, "lists", pace.figures_s if is_ours else pace.settings_s)
            if is_ours:
                self._questions.drop(address, *_APACHE)
                return
            questions: dict[str, tuple[Callable[[], Awaitable[object]], float]] = {
                "table": (lambda: asking.topic_table(self._cluster, part), pace.topics_s),
                "settings": (lambda: asking.settings(self._cluster, part), pace.settings_s),
                "offsets": (lambda: asking.offset_table(aside, part, clock.monotonic()), pace.offsets_s),
                "lags": (lambda: asking.lag_table(aside, part, clock.monotonic()), pace.lags_s),
            }
            for what in _APACHE:
                question, every_s = questions[what]
                self._questions.add(
                    address, what, self._noted(part, question), every_s, is_aside=what in _ASIDE
                )

        return ask

    def _noted(
        self, part: BrokerPart, question: Callable[[], Awaitable[object]]
    ) -> Callable[[], Awaitable[None]]:
        async def ask() -> None:
            await self._noting(part, question())

        return ask

    async def _noting(self, part: BrokerPart, question: Awaitable[object]) -> bool:
        """Whether a broker knew a question about lists; note when it was answered, or why not."""
        try:
            known = await question
        except PyroError as problem:
            part.lists_told = LastAnswer(part.lists_told.at_ms, str(problem))
            raise
        if known is False:
            return False
        part.lists_told = LastAnswer(self._clock.now_ms())
        return True

    # Joining

    async def publish(self) -> None:
        """Join the answers into a new snapshot; one after the other, so that the newest is the last."""
        async with self._publishing:
            await self._publish()

    async def _publish(self) -> None:
        self._questions.has_news = False
        start_s, now_ms = self._clock.monotonic(), self._clock.now_ms()
        joined, spread, views = Joined(), self._slices.spread, self._views
        tellers = [part for part in self._parts.values() if part.lists_told.at_ms is not None]
        for part in tellers:
            await joined.add(part, spread)
        brokers = tuple([views.of_broker(part, now_ms) async for part in spread(self._in_order())])
        groups = await views.of_groups(joined, tellers, now_ms)
        topic_views = await views.of_topics(
            joined, joining.system_topics(self._parts), self.snapshot.topics, now_ms
        )
        servers = self._name_server_views()
        gone = self._departures.views()
        controllers = tuple(self._controllers[each].view() for each in sorted(self._controllers))
        found = [
            *problems.of_name_servers(servers),
            *problems.of_controllers(controllers, self._controlled()),
            *problems.of_gone(gone),
            *problems.of_brokers(brokers),
        ]
        async for group in spread(groups.values()):
            found += problems.of_group(group, now_ms)
        standing = [each async for each in spread(self._standing.dated(found, now_ms))]
        await self._slices.wait_for_turn()
        in_per_s = _sum(view.in_per_s for view in brokers if view.is_master)
        out_per_s = _sum(view.out_per_s for view in brokers if view.is_master)
        before = self.snapshot
        self.snapshot = Snapshot(
            at_ms=now_ms,
            version=before.version + 1,
            brokers=brokers,
            gone=gone,
            topics=MappingProxyType(topic_views),
            groups=MappingProxyType(groups),
            name_servers=servers,
            controllers=controllers,
            problems=problems.worst_first(standing),
            in_per_s=in_per_s,
            out_per_s=out_per_s,
        )
        views.remember_totals(self.snapshot)
        took_s = self._clock.monotonic() - start_s
        self._publish_at_s = start_s + min(max(_PUBLISH_S, took_s / _MAX_LOAD), _MAX_PUBLISH_S)
        self._published.set()
        for listener in self._listeners:
            listener(self.snapshot)
        await self._let_go(before)
        await views.forget_the_gone(self.snapshot)

    async def _let_go(self, snapshot: Snapshot) -> None:
        """Free the views of an old snapshot, some in each turn: ten thousand at once take a while."""
        views: list[object] = [*snapshot.topics.values(), *snapshot.groups.values()]
        del snapshot
        async for _ in self._slices.spread(range(0, len(views), _FREED)):
            del views[-_FREED:]

    def _in_order(self) -> list[BrokerPart]:
        return sorted(
            self._parts.values(),
            key=lambda part: (part.member.cluster, part.member.broker_name, part.member.broker_id),
        )

    def _name_server_views(self) -> tuple[NameServerView, ...]:
        infos = {each.address: each.info for each in self._servers.values() if each.info is not None}
        differing = name_servers.differing_brokers(infos)
        return tuple(
            NameServerView(
                address=server.address,
                told=server.told,
                brokers=None if server.info is None else len(members_of(server.info)),
                topics=None if server.topics is None else len(server.topics),
                differs=differing.get(server.address, ()),
            )
            for server in self._servers.values()
        )


_ASIDE: Final = ("offsets", "lags")
_APACHE: Final = ("table", "settings", *_ASIDE)
"""The questions that Apache's brokers are asked instead of one for all figures."""


def _sum(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None
