"""Which groups may read which topics, and what of them.

An outlet is a way out of a topic for which everything has been checked that does not depend on the single
pull. It is good until topics, groups, consumers, settings or the broker's role change.
"""

from collections.abc import Callable, Collection

import msgspec

from pyromq.broker.settings import BrokerSettings
from pyromq.broker.tables.all_tables import Tables
from pyromq.config.live import LiveSettings

_MOST_OUTLETS = 65_536
_LONGEST_SUBSCRIPTION = 1024
"""Strangers may bring any subscription: beyond so many all are forgotten, and long ones are not kept."""

_Key = tuple[int, str, str, str | None, str | None]


class Outlet(msgspec.Struct, frozen=True):
    """One group's way to one topic."""

    group: str
    topic: str
    queues: int
    """How many of the topic's queues may be read."""
    tag_codes: Collection[int] | None
    """What the group wants to see; None is all."""
    newest_version: int
    """A pull that knows a newer subscription than this has to wait for it."""
    suggested_near: int
    """Which broker to read from next, and which one after reading from far behind."""
    suggested_far: int


class Outlets:
    def __init__(
        self,
        live: LiveSettings[BrokerSettings],
        tables: Tables,
    ) -> None:
        self._open: dict[_Key, Outlet] = {}
        self._listeners: list[Callable[[], None]] = []
        tables.topics.on_change(lambda _: self._close_all())
        tables.groups.on_change(self._close_all)
        tables.consumers.on_change(self._close_all)
        live.follow(lambda _: self._close_all())
        tables.role.follow(lambda _: self._close_all())

    def __repr__(self) -> str:
        return f"<Outlets open={len(self._open)}>"

    def on_change(self, listener: Callable[[], None]) -> None:
        """Tell that outlets which were found before may be closed now."""
        self._listeners.append(listener)

    def find(
        self, code: int, group: str, topic: str, subscription: str | None, expression_type: str | None
    ) -> Outlet | None:
        """The outlet for pulls with this code, and with this subscription if they bring one."""
        return self._open.get((code, group, topic, subscription, expression_type))

    def keep(self, code: int, outlet: Outlet, subscription: str | None, expression_type: str | None) -> None:
        if len(subscription or "") + len(expression_type or "") > _LONGEST_SUBSCRIPTION:
            return
        if len(self._open) >= _MOST_OUTLETS:
            self._close_all()
        self._open[code, outlet.group, outlet.topic, subscription, expression_type] = outlet

    def _close_all(self) -> None:
        self._open.clear()
        for listener in self._listeners:
            listener()
