"""Remembers brokers that left: a name server may forget one that was killed at once, the console must not.

One is forgotten when its address is back, when its group has as many members as before, or after a day.
"""

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

from pyromq.admin.cluster import BrokerMember
from pyromq.console.watch.values import GoneBroker

_REMEMBERED_MS: Final = 24 * 3_600_000


@dataclass(frozen=True, slots=True)
class _Gone:
    view: GoneBroker
    size: int
    """How many members its group had with it."""


class BrokerDepartures:
    def __init__(self) -> None:
        self._gone: dict[str, _Gone] = {}
        """By address."""

    def __repr__(self) -> str:
        return f"<BrokerDepartures {list(self._gone)}>"

    def follow(
        self,
        before: Collection[BrokerMember],
        now: Mapping[str, BrokerMember],
        told_ms: Mapping[str, int | None],
        now_ms: int,
    ) -> None:
        """The members changed; `told_ms` says when each address last answered."""
        sizes = Counter(member.broker_name for member in before)
        for member in before:
            if member.address not in now:
                view = GoneBroker(
                    member.cluster,
                    member.broker_name,
                    member.broker_id,
                    member.address,
                    now_ms,
                    told_ms.get(member.address),
                )
                self._gone[member.address] = _Gone(view, sizes[member.broker_name])
        present = Counter(member.broker_name for member in now.values())
        self._gone = {
            address: gone
            for address, gone in self._gone.items()
            if address not in now
            and present[gone.view.name] < gone.size
            and now_ms - gone.view.since_ms < _REMEMBERED_MS
        }

    def views(self) -> tuple[GoneBroker, ...]:
        return tuple(
            sorted((gone.view for gone in self._gone.values()), key=lambda view: (view.key, view.address))
        )
