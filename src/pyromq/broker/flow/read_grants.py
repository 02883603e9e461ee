"""Which groups may read which topics, and with which tags.

The broker checks a group's pulls once for everything that does not depend on the single pull, and remembers
the result as a `ReadGrant` until topics, groups, consumers, settings or the broker's role change.
"""

from collections.abc import Callable, Collection

import msgspec

from pyromq.broker.settings import BrokerSettings
from pyromq.broker.tables.all_tables import Tables
from pyromq.config.live import LiveSettings

_MAX_GRANTS = 65_536
_MAX_SUBSCRIPTION_CHARS = 1024
"""Clients may send any subscription: the broker forgets all grants at this limit, and keeps no long ones."""

_Key = tuple[int, str, str, str | None, str | None]


class ReadGrant(msgspec.Struct, frozen=True):
    """One group may read one topic."""

    group: str
    topic: str
    queues: int
    """How many of the topic's queues may be read."""
    tag_codes: Collection[int] | None
    """The tags that the group wants; None means all messages."""
    newest_version: int
    """A pull with a newer subscription version than this needs a new check."""
    suggested_near: int
    """The broker to read from next; `suggested_far` applies after a read of old messages."""
    suggested_far: int


class ReadGrants:
    def __init__(
        self,
        live: LiveSettings[BrokerSettings],
        tables: Tables,
    ) -> None:
        self._kept: dict[_Key, ReadGrant] = {}
        self._listeners: list[Callable[[], None]] = []
        tables.topics.on_change(lambda _: self._forget_all())
        tables.groups.on_change(self._forget_all)
        tables.consumers.on_change(self._forget_all)
        live.on_change(lambda _: self._forget_all())
        tables.role.on_change(lambda _: self._forget_all())

    def __repr__(self) -> str:
        return f"<ReadGrants kept={len(self._kept)}>"

    def on_change(self, listener: Callable[[], None]) -> None:
        """Call `listener` when grants that were found before may not be valid any more."""
        self._listeners.append(listener)

    def find(
        self, code: int, group: str, topic: str, subscription: str | None, expression_type: str | None
    ) -> ReadGrant | None:
        """The grant for pulls with this code, and with this subscription if the pull has one."""
        return self._kept.get((code, group, topic, subscription, expression_type))

    def keep(
        self, code: int, grant: ReadGrant, subscription: str | None, expression_type: str | None
    ) -> None:
        if len(subscription or "") + len(expression_type or "") > _MAX_SUBSCRIPTION_CHARS:
            return
        if len(self._kept) >= _MAX_GRANTS:
            self._forget_all()
        self._kept[code, grant.group, grant.topic, subscription, expression_type] = grant

    def _forget_all(self) -> None:
        self._kept.clear()
        for listener in self._listeners:
            listener()
