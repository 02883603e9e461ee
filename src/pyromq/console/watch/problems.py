"""The standing problems of a cluster: what an operator must know first, the worst on top.

Pure. A problem keeps the time at which it was first seen until it is gone.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from types import MappingProxyType

from pyromq.console.watch.values import (
    BrokerView,
    ControllerView,
    GoneBroker,
    GroupState,
    GroupView,
    LastAnswer,
    NameServerView,
    Problem,
    Severity,
)
from pyromq.security.address_patterns import host_of

KINDS = (
    "nameserver-silent",
    "nameserver-differs",
    "controller-silent",
    "controller-none-leads",
    "controller-unknown-group",
    "broker-gone",
    "broker-silent",
    "broker-not-ready",
    "broker-not-in-sync",
    "broker-refuses-lists",
    "broker-without-master",
    "store-fault",
    "disk-over-limit",
    "disk-full-soon",
    "dispatch-behind",
    "group-lost",
    "group-loses-soon",
    "group-stuck",
    "group-unread",
)
"""Every kind; a page has a text for each."""

_SOON_MS = 24 * 3_600_000
_DISPATCH_BEHIND_BYTES = 64 * 1024 * 1024
_ORDER = {severity: place for place, severity in enumerate(Severity)}


def of_name_servers(servers: Iterable[NameServerView]) -> Iterator[Problem]:
    for server in servers:
        if server.told.problem:
            yield _problem(
                "nameserver-silent", Severity.ALARM, "nameserver", server.address, problem=server.told.problem
            )
        if server.differs:
            yield _problem(
                "nameserver-differs",
                Severity.WARNING,
                "nameserver",
                server.address,
                brokers=", ".join(server.differs),
            )


def of_controllers(controllers: Iterable[ControllerView], names: Iterable[str]) -> Iterator[Problem]:
    """`names`: of the broker groups that controllers decide about."""
    views = list(controllers)
    for view in views:
        if view.told.problem:
            yield _problem(
                "controller-silent", Severity.WARNING, "controller", view.address, problem=view.told.problem
            )
    has_leader = any(view.is_leader for view in views if view.told.is_answering)
    if views and not has_leader and all(view.told != LastAnswer() for view in views):
        yield _problem("controller-none-leads", Severity.ALARM, "controller", views[0].address)
    for view in views:
        if view.groups is None or not view.told.is_answering:
            continue
        known = {group.name: group for group in view.groups}
        for name in sorted(names):
            group = known.get(name)
            if group is None or group.master is None:
                reason = "" if group is None else group.undecided
                yield _problem("controller-unknown-group", Severity.ALARM, "broker", name, reason=reason)
            elif group.not_in_sync:
                missing = ", ".join(map(str, group.not_in_sync))
                yield _problem("broker-not-in-sync", Severity.WARNING, "broker", name, replicas=missing)


def of_gone(gone: Iterable[GoneBroker]) -> Iterator[Problem]:
    for broker in gone:
        yield _problem("broker-gone", Severity.ALARM, "broker", broker.key, address=broker.address)


def of_brokers(brokers: Iterable[BrokerView]) -> Iterator[Problem]:
    views = list(brokers)
    disks: set[tuple[str, int | None, float]] = set()
    with_master = {view.name for view in views if view.is_master}
    for name in sorted({view.name for view in views} - with_master):
        yield _problem("broker-without-master", Severity.ALARM, "broker", name)
    for view in views:
        if view.told.problem:
            yield _problem("broker-silent", Severity.ALARM, "broker", view.key, problem=view.told.problem)
            continue
        if view.readiness_problem:
            yield _problem(
                "broker-not-ready", Severity.ALARM, "broker", view.key, problem=view.readiness_problem
            )
        if view.lists_told.problem:
            yield _problem(
                "broker-refuses-lists", Severity.WARNING, "broker", view.key, problem=view.lists_told.problem
            )
        if view.store is not None and view.store.fault:
            yield _problem("store-fault", Severity.ALARM, "broker", view.key, fault=view.store.fault)
        # Brokers of one machine that see the same disk have one problem.
        disk = host_of(view.address), view.disk_total_bytes, round(view.disk_ratio or 0, 2)
        full_ms = None if view.full is None or view.full.is_poor else view.full.at_ms
        if view.full is not None and full_ms is not None and not (view.disk_total_bytes and disk in disks):
            disks.add(disk)
            is_over = view.disk_ratio is not None and view.disk_ratio >= view.full.limit
            yield _problem(
                "disk-over-limit" if is_over else "disk-full-soon",
                Severity.WARNING,
                "broker",
                view.key,
                at_ms=full_ms,
                limit=view.full.limit,
                ratio=view.disk_ratio or 0.0,
            )
        if (view.dispatch_behind_bytes or 0) > _DISPATCH_BEHIND_BYTES:
            yield _problem(
                "dispatch-behind",
                Severity.WARNING,
                "broker",
                view.key,
                size_bytes=view.dispatch_behind_bytes or 0,
            )


def of_group(group: GroupView, now_ms: int) -> Iterator[Problem]:
    if group.is_system:
        return
    if group.lost:
        yield _problem("group-lost", Severity.ALARM, "group", group.name, lost=group.lost)
    if group.loss is not None and not group.loss.is_poor and group.loss.at_ms - now_ms < _SOON_MS:
        yield _problem(
            "group-loses-soon",
            Severity.ALARM,
            "group",
            group.name,
            at_ms=group.loss.at_ms,
            lag=group.lag or 0,
        )
    if group.state is GroupState.STUCK:
        yield _problem("group-stuck", Severity.WARNING, "group", group.name, lag=group.lag or 0)
    elif group.state is GroupState.EMPTY and group.lag:
        yield _problem("group-unread", Severity.NOTE, "group", group.name, lag=group.lag)


class Standing:
    """Remembers since when each problem stands."""

    def __init__(self) -> None:
        self._since_ms: dict[tuple[str, str, str], int] = {}

    def dated(self, found: Iterable[Problem], now_ms: int) -> Iterator[Problem]:
        """The problems with the time when each was first seen; all others are forgotten."""
        since_ms: dict[tuple[str, str, str], int] = {}
        for problem in found:
            key = problem.kind, problem.about, problem.name
            since_ms[key] = self._since_ms.get(key, now_ms)
            yield replace(problem, since_ms=since_ms[key])
        self._since_ms = since_ms


def worst_first(problems: Iterable[Problem]) -> tuple[Problem, ...]:
    """The worst, and then the newest."""
    return tuple(sorted(problems, key=lambda each: (_ORDER[each.severity], -each.since_ms, each.name)))


def _problem(kind: str, severity: Severity, about: str, name: str, **values: str | int | float) -> Problem:
    return Problem(kind, severity, about, name, MappingProxyType(values))
