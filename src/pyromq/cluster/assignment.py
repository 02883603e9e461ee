"""Which queues of a topic belong to which member: pure rules that every member applies to the same lists.

Members agree without talking to each other: each one sorts the queues and the members' ids, applies the same
rule, and takes its own queues. The rules are therefore exact: `# java:` members must agree, too.
"""

from bisect import bisect_left
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from hashlib import md5
from typing import Protocol, TypeVar

from pyromq.errors import ConfigError
from pyromq.protocol.body import MessageQueue

T = TypeVar("T")


class Assignment(Protocol):
    """A rule: given all queues and all members, both sorted, it returns the queues of one member."""

    @property
    def name(self) -> str:
        """The name of the rule, as operators see it."""
        ...

    def __call__(
        self, me: str, queues: Sequence[MessageQueue], members: Sequence[str]
    ) -> list[MessageQueue]: ...


def my_share(
    rule: Assignment, me: str, queues: Collection[MessageQueue], members: Collection[str]
) -> list[MessageQueue]:
    """The queues that `rule` gives me; none while the group does not know me."""
    if me not in members or not queues:
        return []
    return rule(me, sorted(queues), sorted(members))


@dataclass(frozen=True, slots=True)
class Average:
    """Consecutive queues, the same number for each member; the first members get the remainder."""

    name: str = field(default="AVG", init=False)

    def __call__(self, me: str, queues: Sequence[MessageQueue], members: Sequence[str]) -> list[MessageQueue]:
        index, (share, rest) = members.index(me), divmod(len(queues), len(members))
        start = index * share + min(index, rest)
        return list(queues[start : start + share + (index < rest)])


@dataclass(frozen=True, slots=True)
class AverageByCircle:
    """Queues in turn: member 1, member 2, …, and again from the first."""

    name: str = field(default="AVG_BY_CIRCLE", init=False)

    def __call__(self, me: str, queues: Sequence[MessageQueue], members: Sequence[str]) -> list[MessageQueue]:
        return list(queues[members.index(me) :: len(members)])


@dataclass(frozen=True, slots=True)
class ByConfig:
    """Always the queues configured for this member, whatever other members there are."""

    queues: tuple[MessageQueue, ...]
    name: str = field(default="CONFIG", init=False)

    def __call__(self, me: str, queues: Sequence[MessageQueue], members: Sequence[str]) -> list[MessageQueue]:
        topics = {queue.topic for queue in queues}
        return [queue for queue in self.queues if queue.topic in topics]


@dataclass(frozen=True, slots=True)
class ByMachineRoom:
    """Only queues of brokers named `room@name` in these rooms; divided evenly, remainder first."""

    rooms: frozenset[str]
    name: str = field(default="MACHINE_ROOM", init=False)

    def __call__(self, me: str, queues: Sequence[MessageQueue], members: Sequence[str]) -> list[MessageQueue]:
        near = [queue for queue in queues if self._is_near(queue)]
        index, (share, rest) = members.index(me), divmod(len(near), len(members))
        mine = near[index * share : (index + 1) * share]
        if index < rest:
            mine.append(near[index + share * len(members)])
        return mine

    def _is_near(self, queue: MessageQueue) -> bool:
        # java: split drops empty parts at the end
        parts = queue.broker_name.split("@")
        return len(parts) == 2 and parts[1] != "" and parts[0] in self.rooms


@dataclass(frozen=True, slots=True)
class ConsistentHash:
    """Consistent hashing: when a member joins or leaves, most queues keep their owner."""

    virtual_nodes: int = 10
    name: str = field(default="CONSISTENT_HASH", init=False)

    def __post_init__(self) -> None:
        if self.virtual_nodes < 1:
            raise ConfigError("virtual_nodes", self.virtual_nodes, "at least 1")

    def __call__(self, me: str, queues: Sequence[MessageQueue], members: Sequence[str]) -> list[MessageQueue]:
        ring = {
            _ring_hash(f"{member}-{number}"): member
            for member in members
            for number in range(self.virtual_nodes)
        }
        places = sorted(ring)
        mine = []
        for queue in queues:
            place = bisect_left(places, _ring_hash(_ring_key(queue)))
            if ring[places[place % len(places)]] == me:
                mine.append(queue)
        return mine


def _ring_key(queue: MessageQueue) -> str:
    # java: MessageQueue.toString
    return f"MessageQueue [topic={queue.topic}, brokerName={queue.broker_name}, queueId={queue.queue_id}]"


def _ring_hash(key: str) -> int:
    return int.from_bytes(md5(key.encode(), usedforsecurity=False).digest()[:4], "big")


@dataclass(frozen=True, slots=True)
class MachineRoomNearby:
    """Queues go to members in their own room; queues of rooms without members are divided among all.

    `room_of_queue` and `room_of_member` return the room of a broker and of a client; never an empty text.
    """

    inner: Assignment
    room_of_queue: Callable[[MessageQueue], str]
    room_of_member: Callable[[str], str]

    @property
    def name(self) -> str:
        return f"MACHINE_ROOM_NEARBY-{self.inner.name}"

    def __call__(self, me: str, queues: Sequence[MessageQueue], members: Sequence[str]) -> list[MessageQueue]:
        queues_of = _by_room(queues, self.room_of_queue)
        members_of = _by_room(members, self.room_of_member)
        my_room = self.room_of_member(me)
        mine = []
        if my_room in queues_of:
            mine = self.inner(me, queues_of.pop(my_room), members_of[my_room])
        for room in sorted(queues_of):
            if room not in members_of:
                mine += self.inner(me, queues_of[room], members)
        return mine


def _by_room(things: Sequence[T], room_of: Callable[[T], str]) -> dict[str, list[T]]:
    rooms: dict[str, list[T]] = {}
    for thing in things:
        room = room_of(thing)
        if not room:
            raise ConfigError("machine room", thing, "a room for every broker and every member")
        rooms.setdefault(room, []).append(thing)
    return rooms
