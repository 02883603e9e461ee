"""Brokers, topics and groups as pages show them, with their histories and forecasts."""

from collections.abc import Collection, Mapping
from heapq import nlargest
from typing import Final

from msgspec import structs

from pyromq.clock import Clock
from pyromq.console.watch import runtime
from pyromq.console.watch.broker_part import BrokerPart
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
from pyromq.console.watch.values import BrokerView, GroupView, Snapshot, TopicView
from pyromq.remoting.slices import Slices

Key = tuple[str, str, str]
"""The subject of a history: `broker`, `topic`, `group` or `cluster`, its name, and the figure."""

_BALANCING_S: Final = 20.0
_FORECAST_S: Final = 30.0
_FORECAST_SPAN_S: Final = 900.0
_TREND_POINTS: Final = 30
_BUSY_TOPICS: Final = 500
_MAX_HISTORIES: Final = 8000


class Views:
    """Makes them, and remembers what only time shows."""

    def __init__(self, clock: Clock, slices: Slices) -> None:
        self._clock = clock
        self._slices = slices
        self._histories: Histories[Key] = Histories(_MAX_HISTORIES)
        self._members: dict[str, tuple[int | None, float | None]] = {}
        """The number of members of each group, and when it last changed."""
        self._forecasts: dict[str, tuple[float, LagForecast | None, LossClock | None]] = {}
        self._full_disks: dict[str, tuple[float, FullDisk | None]] = {}
        self._open_topics: dict[str, float] = {}

    def __repr__(self) -> str:
        return f"<Views forecasts={len(self._forecasts)}>"

    def open_topic(self, topic: str) -> None:
        """A page of a topic is open: keep its history for the next ten minutes."""
        self._open_topics[topic] = self._clock.monotonic() + 600.0

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

    def of_broker(self, part: BrokerPart, now_ms: int) -> BrokerView:
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

    async def of_topics(
        self, joined: Joined, system: frozenset[str], before: Mapping[str, TopicView], now_ms: int
    ) -> dict[str, TopicView]:
        views: dict[str, TopicView] = {}
        now_s, at_s = self._clock.monotonic(), now_ms / 1000
        self._open_topics = {name: until for name, until in self._open_topics.items() if until > now_s}
        busy: list[TopicView] = []
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

    async def of_groups(self, joined: Joined, tellers: list[BrokerPart], now_ms: int) -> dict[str, GroupView]:
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

    def remember_totals(self, snapshot: Snapshot) -> None:
        at_s = snapshot.at_ms / 1000
        lags = [view.lag for view in snapshot.groups.values() if view.lag is not None]
        for figure, value in (
            ("in", snapshot.in_per_s),
            ("out", snapshot.out_per_s),
            ("lag", float(sum(lags)) if lags else None),
        ):
            if value is not None:
                self._histories.put(("cluster", "", figure), at_s, value)

    async def forget_the_gone(self, snapshot: Snapshot) -> None:
        """Now and then, those of what is not there any more."""
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


def _trend(history: History | None) -> tuple[float, ...]:
    return () if history is None else tuple(history.hour.sampled(_TREND_POINTS, _FORECAST_SPAN_S))


def _shortest_retention(parts: list[BrokerPart], now_ms: int) -> float | None:
    """How old a message gets on the broker that deletes first; None if no broker reports it."""
    found = []
    for part in parts:
        promised_s = runtime.retention_s(part)
        if promised_s is not None:
            oldest_ms = runtime.whole(part.runtime, "earliestMessageTimeStamp") or 0
            span_s = (now_ms - oldest_ms) / 1000 if oldest_ms > 0 else None
            is_early = runtime.is_cleaning_early(part)
            found.append(retention_passes(promised_s, span_s, is_cleaning_early=is_early))
    return min(found, default=None)
