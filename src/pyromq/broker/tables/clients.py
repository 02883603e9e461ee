"""The connected producers and consumers by group, from their heartbeats.

Pure tables: times are parameters, and the changes to notify are return values.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from pyromq.errors import Refused
from pyromq.protocol.needs import PUB, Need, ResourceType, need_of
from pyromq.protocol.requests.membership import (
    ConsumeFromWhere,
    ConsumerData,
    ConsumeType,
    MessageModel,
    SubscriptionData,
)
from pyromq.remoting.channel import Channel

_BYTES_PER_SUBSCRIPTION = 512
_BYTES_PER_TAG = 96
_MAX_DIFFERENCES = 64
_MAX_SHOWN = 5


@dataclass(slots=True)
class Client:
    channel: Channel
    client_id: str
    language: int
    version: int
    last_seen_ms: int
    """On the monotonic clock."""
    check: Callable[[Need], object] | None = None
    """Of the heartbeat in which it was a producer: raises Refused; None without access control."""
    user: str = ""
    """The user's name, under access control."""

    def may_send(self, topic: str) -> bool:
        if self.check is not None:
            try:
                self.check(need_of((PUB,), ResourceType.TOPIC, topic))
            except Refused:
                return False
        return True

    @property
    def address(self) -> str:
        return self.channel.peer_address


@dataclass(slots=True)
class ConsumerGroup:
    """The clients that consume as one group, and what they want."""

    name: str
    consume_type: ConsumeType | None = None
    message_model: MessageModel | None = None
    consume_from_where: ConsumeFromWhere | None = None
    members: dict[Channel, Client] = field(default_factory=dict)
    subscriptions: dict[str, SubscriptionData] = field(default_factory=dict)
    fingerprint: int = 0
    size_bytes: int = 0
    """Approximate memory of the subscriptions."""
    wishes: dict[Channel, int] = field(default_factory=dict)
    """A hash of each member's last subscription."""
    _last_wish: int = 0
    _differences: dict[frozenset[int], str] = field(default_factory=dict)

    @property
    def is_broadcasting(self) -> bool:
        return self.message_model is MessageModel.BROADCASTING

    @property
    def client_ids(self) -> list[str]:
        return [client.client_id for client in self.members.values()]

    def find(self, client_id: str) -> Client | None:
        return next((client for client in self.members.values() if client.client_id == client_id), None)

    def differing(self, channel: Channel, wanted: list[SubscriptionData]) -> Client | None:
        """A member that subscribes to something else: RocketMQ's groups then lose messages."""
        wish = wish_of(wanted)
        if wish == self._last_wish:
            return None
        others = (other for other, theirs in self.wishes.items() if other is not channel and theirs != wish)
        return next((self.members[other] for other in others if other in self.members), None)

    def difference(self, other: Client, wanted: list[SubscriptionData], say: Callable[[], str]) -> str:
        """`say`'s text of when these two ways to subscribe first met: later the subscriptions of the other
        one may not be at hand."""
        pair = frozenset((wish_of(wanted), self.wishes[other.channel]))
        if pair not in self._differences:
            if len(self._differences) >= _MAX_DIFFERENCES:
                self._differences.clear()
            self._differences[pair] = say()
        return self._differences[pair]

    def _join(self, client: Client) -> bool:
        known = self.members.get(client.channel)
        self.members[client.channel] = client
        return known is None

    def _subscribe(self, wanted: list[SubscriptionData]) -> tuple[bool, bool]:
        """Apply the subscriptions of one member's heartbeat; returns whether the topics changed, and whether
        anything changed."""
        # java: the members of a group must agree; the last heartbeat wins
        self._last_wish = wish_of(wanted)
        topics = {subscription.topic for subscription in wanted}
        changed = renewed = bool(topics ^ self.subscriptions.keys())
        for topic in self.subscriptions.keys() - topics:
            del self.subscriptions[topic]
        for subscription in wanted:
            before = self.subscriptions.get(subscription.topic)
            if before is None or subscription.sub_version > before.sub_version:
                self.subscriptions[subscription.topic] = subscription
                renewed = True
        if renewed:
            self.size_bytes = size_of(self.subscriptions.values())
        return changed, renewed


def wish_of(subscriptions: Iterable[SubscriptionData]) -> int:
    """A hash of topics and expressions; tags in any order."""
    return hash(frozenset((each.topic, *_expression(each)) for each in subscriptions))


def _expression(subscription: SubscriptionData) -> tuple[object, object]:
    tags = frozenset(subscription.tags_set)
    return subscription.expression_type or "TAG", tags or subscription.sub_string or "*"


def described(subscriptions: Iterable[SubscriptionData], others: Iterable[SubscriptionData]) -> str:
    """Those that the others do not have, for a person."""
    known = {(each.topic, *_expression(each)) for each in others}
    found = [each for each in subscriptions if (each.topic, *_expression(each)) not in known]
    shown = [f"{each.topic} ({each.sub_string or '*'})" for each in found[:_MAX_SHOWN]]
    return ", ".join(shown) + (" …" if len(found) > _MAX_SHOWN else "") if shown else "nothing else"


def size_of(subscriptions: Iterable[SubscriptionData]) -> int:
    """Approximate memory of subscriptions."""
    return sum(
        _BYTES_PER_SUBSCRIPTION
        + len(each.topic)
        + len(each.sub_string or "")
        + _BYTES_PER_TAG * (len(each.code_set) + len(each.tags_set))
        for each in subscriptions
    )


class ConsumerTable:
    def __init__(self) -> None:
        self._groups: dict[str, ConsumerGroup] = {}
        self._groups_of: dict[Channel, set[str]] = {}
        self.size_bytes = 0
        """Approximate memory of all subscriptions."""
        self._listeners: list[Callable[[], None]] = []

    def __repr__(self) -> str:
        return f"<ConsumerTable groups={len(self._groups)} connections={len(self._groups_of)}>"

    def __iter__(self) -> Iterator[ConsumerGroup]:
        return iter(self._groups.values())

    def on_change(self, listener: Callable[[], None]) -> None:
        """Call `listener` when a group comes, goes, or changes its subscriptions or its way to consume."""
        self._listeners.append(listener)

    def _tell(self) -> None:
        for listener in self._listeners:
            listener()

    def group(self, name: str) -> ConsumerGroup | None:
        return self._groups.get(name)

    def subscription(self, group: str, topic: str) -> SubscriptionData | None:
        found = self._groups.get(group)
        return None if found is None else found.subscriptions.get(topic)

    def groups_of_topic(self, topic: str) -> list[str]:
        return [group.name for group in self._groups.values() if topic in group.subscriptions]

    def register(
        self, client: Client, data: ConsumerData, *, keep_subscriptions: bool = False, fingerprint: int = 0
    ) -> bool:
        """Apply a heartbeat; True if members or topics of the group changed.

        The fingerprint identifies the subscriptions that the client sent last.
        """
        group = self._groups.setdefault(data.group_name, ConsumerGroup(data.group_name))
        group.fingerprint = fingerprint
        consumed_before = group.consume_type, group.message_model
        group.consume_type = data.consume_type
        group.message_model = data.message_model
        group.consume_from_where = data.consume_from_where
        self._groups_of.setdefault(client.channel, set()).add(group.name)
        joined = group._join(client)
        subscribed = renewed = False
        if not keep_subscriptions:
            before_bytes = group.size_bytes
            subscribed, renewed = group._subscribe(data.subscription_data_set)
            group.wishes[client.channel] = group._last_wish
            self.size_bytes += group.size_bytes - before_bytes
        if joined or renewed or consumed_before != (group.consume_type, group.message_model):
            self._tell()
        return joined or subscribed

    def unregister(self, group_name: str, channel: Channel) -> ConsumerGroup | None:
        """Remove a client from a group; returns the group if the client was a member."""
        group = self._groups.get(group_name)
        if group is None or group.members.pop(channel, None) is None:
            return None
        group.wishes.pop(channel, None)
        if (names := self._groups_of.get(channel)) is not None:
            names.discard(group_name)
            if not names:
                del self._groups_of[channel]
        if not group.members:
            del self._groups[group_name]
            self.size_bytes -= group.size_bytes
        self._tell()
        return group

    def lost(self, channel: Channel) -> list[ConsumerGroup]:
        """A connection was lost; returns the groups that lost a member."""
        names = list(self._groups_of.get(channel, ()))
        return [group for name in names if (group := self.unregister(name, channel)) is not None]

    def silent_since(self, before_ms: int) -> list[Client]:
        """Clients whose last heartbeat is older than `before_ms`."""
        return [
            client
            for group in self._groups.values()
            for client in group.members.values()
            if client.last_seen_ms < before_ms
        ]


class ProducerTable:
    def __init__(self) -> None:
        self._groups: dict[str, dict[Channel, Client]] = {}
        self._groups_of: dict[Channel, set[str]] = {}
        self._by_id: dict[str, Client] = {}
        self._turn = 0

    def __repr__(self) -> str:
        return f"<ProducerTable groups={len(self._groups)} connections={len(self._groups_of)}>"

    def groups(self) -> dict[str, dict[Channel, Client]]:
        return self._groups

    def members(self, group: str) -> list[Client]:
        return list(self._groups.get(group, {}).values())

    def count_of(self, channel: Channel) -> int:
        """How many groups a channel produces for."""
        return len(self._groups_of.get(channel, ()))

    def knows(self, group: str, channel: Channel) -> bool:
        return channel in self._groups.get(group, ())

    def find(self, client_id: str) -> Client | None:
        return self._by_id.get(client_id)

    def pick(self, members: Iterable[Client]) -> Client | None:
        """A connected one of these that reads what is sent to it, each in turn."""
        reading = [client for client in members if client.channel.is_writable]
        if not reading:
            return None
        self._turn += 1
        return reading[self._turn % len(reading)]

    def register(self, group: str, client: Client) -> None:
        self._groups.setdefault(group, {})[client.channel] = client
        self._groups_of.setdefault(client.channel, set()).add(group)
        known = self._by_id.get(client.client_id)
        # Replies go to the client of an id: while it is connected, no other user takes its place.
        if known is None or known.user == client.user or not known.channel.is_open:
            self._by_id[client.client_id] = client

    def unregister(self, group: str, channel: Channel) -> bool:
        members = self._groups.get(group, {})
        client = members.pop(channel, None)
        if client is None:
            return False
        if not members:
            del self._groups[group]
        groups = self._groups_of[channel]
        groups.discard(group)
        if not groups:
            del self._groups_of[channel]
            if (known := self._by_id.get(client.client_id)) is not None and known.channel is channel:
                del self._by_id[client.client_id]
        return True

    def lost(self, channel: Channel) -> None:
        for group in list(self._groups_of.get(channel, ())):
            self.unregister(group, channel)

    def silent_since(self, before_ms: int) -> list[Client]:
        return [
            client
            for members in self._groups.values()
            for client in members.values()
            if client.last_seen_ms < before_ms
        ]
