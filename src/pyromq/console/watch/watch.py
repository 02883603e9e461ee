"""One poller per cluster, for all viewers: the number of its requests depends on the servers alone.

Each question to each server has its own pace and time-out, and runs as a task of its own, so a silent server
delays nobody. What was told is joined into a `Snapshot`, at most once a second.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable
from contextlib import AsyncExitStack, nullcontext
from dataclasses import dataclass
from heapq import nlargest, nsmallest
from types import MappingProxyType, TracebackType
from typing import Final, Self
from zlib import crc32

from msgspec import structs

from pyromq.admin import figures, name_servers
from pyromq.admin.cluster import BrokerMember, Cluster, members_of
from pyromq.clock import Clock
from pyromq.console.watch import asking, joining, problems, runtime
from pyromq.console.watch.aside import Aside
from pyromq.console.watch.broker_part import BrokerPart
from pyromq.console.watch.departures import Departures
from pyromq.console.watch.forecast import (
    MIN_READINGS,
    FullDisk,
    LagForecast,
    LossClock,
    full_disk,
    lag_forecast,
    loss_clock,
    retention_passes,
)
from pyromq.console.watch.history import Histories, History
from pyromq.console.watch.joining import Joined
from pyromq.console.watch.values import (
    BrokerView,
    GroupView,
    NameServerView,
    Snapshot,
    Told,
    TopicView,
)
from pyromq.errors import PyroError
from pyromq.protocol.bodies.brokers import ClusterInfo
from pyromq.protocol.requests.routes import GetClusterInfo
from pyromq.remoting.slices import Slices

_log = logging.getLogger(__name__)

Key = tuple[str, str, str]
"""What a history is about: `broker`, `topic`, `group` or `cluster`, its name, and the figure."""


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
_AT_ONCE: Final = 32
_TICK_S: Final = 0.025
_STARTED_AT_ONCE: Final = 2
"""So many questions are started in a turn: answers that arrive together hold the loop together."""
_LARGE_AT_ONCE: Final = 6
"""The first answer of a broker has everything, and takes milliseconds to digest."""
_PUBLISH_S: Final = 1.0
_MAX_PUBLISH_S: Final = 5.0
_MAX_LOAD: Final = 0.05
"""Joining takes about this part of the time: large clusters are joined less often, if not too rarely."""
_BALANCING_S: Final = 20.0
_FORECAST_S: Final = 30.0
_FORECAST_SPAN_S: Final = 900.0
_TREND_POINTS: Final = 30
_BUSY_TOPICS: Final = 500
_FREED: Final = 100
"""So many views are freed between two looks at the clock."""
_MAX_HISTORIES: Final = 8000


class _Question:
    """One question to one server, asked again and again; the first wait differs from server to server, so
    that they are not all asked at the same time."""

    def __init__(
        self,
        key: tuple[str, str],
        ask: Callable[[], Awaitable[None]],
        every_s: float,
        is_large: Callable[[], bool],
    ) -> None:
        self.key = key
        self.ask = ask
        self.is_large = is_large
        self.every_s = every_s
        self.due_s = 0.0
        self.failures = 0
        self.task: asyncio.Task[None] | None = None
        self._share = 0.5 + crc32(key[0].encode()) / 2**33

    def wait(self, now_s: float, silent_max_s: float) -> None:
        """It was asked: when again?"""
        wait_s = self.every_s * 2 ** min(self.failures, 10)
        self.due_s = now_s + min(wait_s, max(self.every_s, silent_max_s)) * self._share
        self._share = 1.0


class _NameServer:
    def __init__(self, address: str) -> None:
        self.address = address
        self.told = Told()
        self.info: ClusterInfo | None = None
        self.topics: frozenset[str] | None = None
        self.digests: dict[str, str] | None = None
        self.has_digests: bool | None = None


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
        self._questions: dict[tuple[str, str], _Question] = {}
        self._departures = Departures()
        self._places = asyncio.Semaphore(_AT_ONCE)
        self._standing = problems.Standing()
        self._histories: Histories[Key] = Histories(_MAX_HISTORIES)
        self._members: dict[str, tuple[int | None, float | None]] = {}
        """The number of members of each group, and when it last changed."""
        self._forecasts: dict[str, tuple[float, LagForecast | None, LossClock | None]] = {}
        self._full_disks: dict[str, tuple[float, FullDisk | None]] = {}
        self._open_topics: dict[str, float] = {}
        self._is_changed = False
        self._publish_at_s = 0.0
        self._publishing = asyncio.Lock()
        self._published = asyncio.Event()
        self._listeners: list[Callable[[Snapshot], None]] = []
        self.snapshot = Snapshot()
        self.asked = 0
        """How many questions were asked so far."""
        for server in self._servers.values():
            self._add(server.address, "info", self._ask_info(server), self.pace.cluster_s)
            self._add(server.address, "topics", self._ask_topics(server), self.pace.routes_s)

    def __repr__(self) -> str:
        return f"<Watch {self.name or self._cluster!r} brokers={len(self._parts)} asked={self.asked}>"

    async def __aenter__(self) -> Self:
        await self._resources.enter_async_context(self._aside)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        tasks = self._running()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._resources.aclose()

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
        self._open_topics[topic] = self._clock.monotonic() + 600.0

    def changed_something(self, address: str | None = None) -> None:
        """The console wrote to the cluster: ask everybody, or one server, again soon."""
        for question in self._questions.values():
            if address is None or question.key[0] == address:
                question.due_s = 0.0

    def readings(self, about: str, name: str, figure: str, span_s: float) -> list[tuple[float, float]]:
        """The history of a figure for a chart: times in seconds since the epoch, and values, oldest first.

        Brokers (`name/id`) have `in`, `out`, `disk`; topics `in`, `out`; groups `lag`, `age`; the cluster
        (with an empty name) `in`, `out`, `lag`.
        """
        history = self._histories.get((about, name, figure))
        if history is None:
            return []
        since_s = self._clock.now_ms() / 1000 - span_s
        return (history.hour if span_s <= 3600 else history.day).readings(since_s)

    # Asking

    async def run(self) -> None:
        """Ask for ever."""
        publishing: asyncio.Task[None] | None = None
        try:
            while True:
                self._start_due()
                if publishing is not None and publishing.done():
                    publishing = publishing.result()
                is_due = self._is_changed and self._clock.monotonic() >= self._publish_at_s
                if is_due and publishing is None:
                    publishing = asyncio.create_task(self.publish(), name="console publishing")
                await asyncio.sleep(_TICK_S)
        finally:
            if publishing is not None:
                publishing.cancel()

    async def look(self) -> Snapshot:
        """Ask whatever is due now, and whatever is due then, wait for all answers, and join them."""
        while self._start_due() or self._running():
            await asyncio.gather(*self._running(), return_exceptions=True)
        await self.publish()
        return self.snapshot

    def _start_due(self) -> "list[asyncio.Task[None]]":
        now_s = self._clock.monotonic()
        started: list[asyncio.Task[None]] = []
        due = [each for each in self._questions.values() if each.due_s <= now_s and each.task is None]
        running = sum(each.task is not None and each.is_large() for each in self._questions.values())
        if running >= _LARGE_AT_ONCE:
            due = [each for each in due if not each.is_large()]
        for question in nsmallest(_STARTED_AT_ONCE, due, key=lambda each: each.due_s):
            question.task = asyncio.create_task(self._ask(question), name=f"console {question.key}")
            started.append(question.task)
        return started

    def _running(self) -> "list[asyncio.Task[None]]":
        return [each.task for each in self._questions.values() if each.task is not None]

    async def _ask(self, question: _Question) -> None:
        # Questions aside wait for each other, and must not make the others wait.
        async with nullcontext() if question.key[1] in _ASIDE else self._places:
            self.asked += 1
            try:
                await question.ask()
            except PyroError:
                question.failures += 1
            except Exception:
                question.failures += 1
                _log.exception("the console failed question=%s", question.key)
            else:
                question.failures = 0
            finally:
                question.wait(self._clock.monotonic(), self.pace.silent_max_s)
                question.task = None
                self._is_changed = True

    def _add(
        self,
        address: str,
        what: str,
        ask: Callable[[], Awaitable[None]],
        every_s: float,
        is_large: Callable[[], bool] = lambda: False,
    ) -> None:
        key = address, what
        if key not in self._questions:
            self._questions[key] = _Question(key, ask, every_s, is_large)

    def _drop(self, address: str, *what: str) -> None:
        for key in [each for each in self._questions if each[0] == address and (not what or each[1] in what)]:
            question = self._questions.pop(key)
            if question.task is not None:
                question.task.cancel()

    # Name servers

    def _ask_info(self, server: _NameServer) -> Callable[[], Awaitable[None]]:
        async def ask() -> None:
            try:
                answer = await self._cluster.ask(server.address, GetClusterInfo(), _TIMEOUT_S)
            except PyroError as problem:
                server.told = Told(server.told.at_ms, str(problem))
                raise
            server.info = answer.body
            server.told = Told(self._clock.now_ms())
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
            self._drop(gone)
            del self._parts[gone]
        for address, member in members.items():
            part = self._parts.get(address)
            if part is None:
                part = self._parts[address] = BrokerPart(member)
                self._add(address, "runtime", self._ask_runtime(part), self.pace.runtime_s)
            part.member = member
        tellers = self._tellers()
        for address, part in self._parts.items():
            if part.member == tellers[part.member.broker_name]:
                self._add(address, "lists", self._ask_lists(part), self.pace.figures_s, part.has_nothing_yet)
            elif (address, "lists") in self._questions:
                self._drop(address, "lists", *_APACHE)
                part.forget_lists()

    def _tellers(self) -> dict[str, BrokerMember]:
        """Who tells the lists of each broker group: its master or, without one, its first replica."""
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
                part.told = Told(part.told.at_ms, str(problem))
                raise
            part.told = Told(self._clock.now_ms())

        return ask

    def _ask_lists(self, part: BrokerPart) -> Callable[[], Awaitable[None]]:
        async def ask() -> None:
            address, pace, aside, clock = part.member.address, self.pace, self._aside, self._clock
            is_ours = await self._noting(part, asking.bulk(self._cluster, part))
            # A broker of ours may take the place of one of Apache.
            self._questions[address, "lists"].every_s = pace.figures_s if is_ours else pace.settings_s
            if is_ours:
                self._drop(address, *_APACHE)
                return
            questions: dict[str, tuple[Callable[[], Awaitable[object]], float]] = {
                "table": (lambda: asking.topic_table(self._cluster, part), pace.topics_s),
                "settings": (lambda: asking.settings(self._cluster, part), pace.settings_s),
                "offsets": (lambda: asking.offset_table(aside, part, clock.monotonic()), pace.offsets_s),
                "lags": (lambda: asking.lag_table(aside, part, clock.monotonic()), pace.lags_s),
            }
            for what in _APACHE:
                question, every_s = questions[what]
                self._add(address, what, self._noted(part, question), every_s)

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
            part.lists_told = Told(part.lists_told.at_ms, str(problem))
            raise
        if known is False:
            return False
        part.lists_told = Told(self._clock.now_ms())
        return True

    # Joining

    async def publish(self) -> None:
        """Join what was told into a new snapshot; one after the other, so that the newest is the last."""
        async with self._publishing:
            await self._publish()

    async def _publish(self) -> None:
        self._is_changed = False
        start_s, now_ms = self._clock.monotonic(), self._clock.now_ms()
        joined, spread = Joined(), self._slices.spread
        tellers = [part for part in self._parts.values() if part.lists_told.at_ms is not None]
        for part in tellers:
            await joined.add(part, spread)
        brokers = tuple([self._broker_view(part, now_ms) async for part in spread(self._in_order())])
        groups = await self._group_views(joined, tellers, now_ms)
        topic_views = await self._topic_views(joined, now_ms)
        servers = self._name_server_views()
        gone = self._departures.views()
        found = [
            *problems.of_name_servers(servers),
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
            problems=problems.worst_first(standing),
            in_per_s=in_per_s,
            out_per_s=out_per_s,
        )
        self._remember_totals(now_ms / 1000)
        took_s = self._clock.monotonic() - start_s
        self._publish_at_s = start_s + min(max(_PUBLISH_S, took_s / _MAX_LOAD), _MAX_PUBLISH_S)
        self._published.set()
        for listener in self._listeners:
            listener(self.snapshot)
        await self._let_go(before)
        await self._forget_histories()

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

    def _broker_view(self, part: BrokerPart, now_ms: int) -> BrokerView:
        key = f"{part.member.broker_name}/{part.member.broker_id}"
        view = runtime.view(part, self._full_disk(part, key, now_ms))
        if part.told.is_answering:
            at_s = now_ms / 1000
            for figure, value in (("in", view.in_per_s), ("out", view.out_per_s), ("disk", view.disk_ratio)):
                if value is not None:
                    self._histories.put(("broker", key, figure), at_s, value)
        return view

    def _full_disk(self, part: BrokerPart, key: str, now_ms: int) -> FullDisk | None:
        """At most half a minute old, like the forecasts of groups."""
        now_s = self._clock.monotonic()
        known = self._full_disks.get(key)
        if known is not None and now_s - known[0] < _FORECAST_S:
            return known[1]
        history = self._histories.get(("broker", key, "disk"))
        ratios = [] if history is None else history.hour.readings()
        found = full_disk(ratios, runtime.clean_at(part), now_ms)
        if len(ratios) >= MIN_READINGS:
            self._full_disks[key] = now_s, found
        return found

    async def _topic_views(self, joined: Joined, now_ms: int) -> dict[str, TopicView]:
        system = joining.system_topics(self._parts)
        views: dict[str, TopicView] = {}
        now_s, at_s = self._clock.monotonic(), now_ms / 1000
        self._open_topics = {name: until for name, until in self._open_topics.items() if until > now_s}
        busy: list[TopicView] = []
        before = self.snapshot.topics
        async for name in self._slices.spread(sorted(joined.topics)):
            history = self._histories.get(("topic", name, "in"))
            view = views[name] = joined.take_topic(name, system, _trend(history), before.get(name))
            if view.in_per_s:
                busy.append(view)
        await self._slices.wait_for_turn()
        busiest = nlargest(_BUSY_TOPICS, busy, key=lambda view: view.in_per_s or 0.0)
        remembered = {view.name for view in busiest} | self._open_topics.keys()
        async for name in self._slices.spread(remembered & views.keys()):
            for figure, value in (("in", views[name].in_per_s), ("out", views[name].out_per_s)):
                if value is not None:
                    self._histories.put(("topic", name, figure), at_s, value)
        return views

    async def _group_views(
        self, joined: Joined, tellers: list[BrokerPart], now_ms: int
    ) -> dict[str, GroupView]:
        now_s, at_s = self._clock.monotonic(), now_ms / 1000
        retention_s = _shortest_retention(tellers, now_ms)
        views: dict[str, GroupView] = {}
        async for name in self._slices.spread(sorted(joined.groups)):
            _, forecast, loss = self._forecasts.get(name, (0.0, None, None))
            view = joined.take_group(
                name,
                now_s,
                self._members_changed(name, joined.groups[name].members, now_s),
                forecast=forecast,
                loss=loss,
                trend=_trend(self._histories.get(("group", name, "lag"))),
            )
            if view.lag is not None:
                self._histories.put(("group", name, "lag"), at_s, view.lag)
                self._histories.put(("group", name, "age"), at_s, (view.age_ms(now_ms) or 0) / 1000)
            views[name] = self._forecast(view, retention_s, now_s, now_ms)
        for gone in self._forecasts.keys() - views.keys():
            del self._forecasts[gone]
        self._members = {name: each for name, each in self._members.items() if name in views}
        return views

    def _members_changed(self, group: str, members: int | None, now_s: float) -> float | None:
        """When the members of a group changed, if that was just now."""
        before = self._members.get(group)
        if before is None:
            self._members[group] = members, None
        elif before[0] != members:
            self._members[group] = members, now_s
        changed_s = self._members[group][1]
        return changed_s if changed_s is not None and now_s - changed_s < _BALANCING_S else None

    def _forecast(self, view: GroupView, retention_s: float | None, now_s: float, now_ms: int) -> GroupView:
        """With a forecast that is at most half a minute old: it takes a while to compute."""
        if not view.lag:
            self._forecasts.pop(view.name, None)
            return structs.replace(view, forecast=None, loss=None) if view.forecast or view.loss else view
        known = self._forecasts.get(view.name)
        if known is not None and now_s - known[0] < _FORECAST_S:
            return view
        since_s = now_ms / 1000 - _FORECAST_SPAN_S
        lags = self._histories.get(("group", view.name, "lag"))
        ages = self._histories.get(("group", view.name, "age"))
        forecast = None if lags is None else lag_forecast(lags.hour.readings(since_s), now_ms)
        loss = None
        if ages is not None and retention_s is not None and view.oldest_unread_ms is not None:
            loss = loss_clock(ages.hour.readings(since_s), retention_s, now_ms)
        self._forecasts[view.name] = now_s, forecast, loss
        return structs.replace(view, forecast=forecast, loss=loss)

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

    def _remember_totals(self, at_s: float) -> None:
        snapshot = self.snapshot
        lags = [view.lag for view in snapshot.groups.values() if view.lag is not None]
        for figure, value in (
            ("in", snapshot.in_per_s),
            ("out", snapshot.out_per_s),
            ("lag", float(sum(lags)) if lags else None),
        ):
            if value is not None:
                self._histories.put(("cluster", "", figure), at_s, value)

    async def _forget_histories(self) -> None:
        """Now and then, those of what is not there any more."""
        snapshot = self.snapshot
        if snapshot.version % 60 == 0:
            brokers = {view.key for view in snapshot.brokers}
            self._full_disks = {key: each for key, each in self._full_disks.items() if key in brokers}
            known: dict[str, Collection[str]] = {
                "broker": brokers,
                "group": snapshot.groups,
                "topic": snapshot.topics,
                "cluster": ("",),
            }
            async for key in self._slices.spread(list(self._histories)):
                if key[1] not in known[key[0]]:
                    self._histories.forget(key)


_ASIDE: Final = ("offsets", "lags")
_APACHE: Final = ("table", "settings", *_ASIDE)
"""The questions that Apache's brokers are asked instead of one for all figures."""


def _trend(history: History | None) -> tuple[float, ...]:
    return () if history is None else tuple(history.hour.sampled(_TREND_POINTS, _FORECAST_SPAN_S))


def _shortest_retention(parts: list[BrokerPart], now_ms: int) -> float | None:
    """How old a message gets on the broker that deletes first; None if no broker tells it."""
    found = []
    for part in parts:
        promised_s = runtime.retention_s(part)
        if promised_s is not None:
            oldest_ms = runtime.whole(part.runtime, "earliestMessageTimeStamp") or 0
            span_s = (now_ms - oldest_ms) / 1000 if oldest_ms > 0 else None
            is_early = runtime.is_cleaning_early(part)
            found.append(retention_passes(promised_s, span_s, is_cleaning_early=is_early))
    return min(found, default=None)


def _sum(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None
