"""Tasks for the caller after a change of the tables.

The tables never act: they say which routes changed and which brokers must be notified.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from pyromq.nameserver.queue_layouts import Topics


@dataclass(frozen=True, slots=True)
class MinBrokerIdNotice:
    """The smallest id of a broker group changed: what to send, and to whom."""

    recipients: tuple[str, ...]
    min_broker_id: int
    min_broker_address: str
    offline_address: str | None = None
    ha_address: str | None = None


@dataclass(slots=True)
class Changes:
    topics: list[Topics] = field(default_factory=list)
    """Topics whose route changed, in several parts; valid until the next change."""
    notices: list[MinBrokerIdNotice] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.topics or self.notices)

    def add(self, *parts: Topics) -> None:
        self.topics.extend(part for part in parts if part)

    def all_topics(self) -> set[str]:
        return set().union(*self.topics)


def min_broker_id_notice(
    addresses: dict[int, str], *, offline_address: str | None = None, ha_address: str | None = None
) -> MinBrokerIdNotice:
    smallest = min(addresses)
    recipients: Iterable[str]
    if offline_address is not None or len(addresses) == 1:
        recipients = addresses.values()
    else:  # The broker with the new smallest id knows it already.
        recipients = (address for id_, address in addresses.items() if id_ != smallest)
    return MinBrokerIdNotice(
        tuple(recipients),
        smallest,
        addresses[smallest],
        offline_address=offline_address,
        ha_address=ha_address,
    )
