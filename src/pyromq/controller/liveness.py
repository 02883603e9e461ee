"""Which brokers are alive, by their heartbeats; kept in memory by every controller, leading or not.

A broker is alive, gone, or not yet heard of. None counts as gone before the controller has listened for a
full timeout: a restarted controller must not depose masters that it has not heard yet. Time in which the
controller itself stood still does not count as listening. If a broker has several connections, only the
newest counts: a heartbeat that was held up on an older one is ignored.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Generic, NamedTuple, Protocol, TypeVar


class Numbered(Protocol):
    """A connection; later ones have higher numbers."""

    @property
    def number(self) -> int: ...


C = TypeVar("C", bound=Numbered)

DEFAULT_TIMEOUT_S = 10.0
MAX_MEMBERS = 10_000
"""Anyone may send heartbeats in any name: those of further brokers are passed over."""


class Vitals(NamedTuple):
    """A broker's last heartbeat, for elections."""

    epoch: int = -1
    max_offset: int = -1
    priority: int = 2**31 - 1


class Heard(NamedTuple):
    """The state of the members of one group at one moment."""

    alive: Mapping[int, Vitals] = MappingProxyType({})
    lost: frozenset[int] = frozenset()
    is_complete: bool = True
    """Whether the controller has listened long enough to have heard everyone who is alive."""

    def is_gone(self, broker_id: int) -> bool:
        return broker_id not in self.alive and (self.is_complete or broker_id in self.lost)


class _Pulse(Generic[C]):
    __slots__ = ("channel", "cluster", "heard_at", "timeout_s", "vitals")

    def __init__(self, cluster: str, vitals: Vitals, timeout_s: float, channel: C, heard_at: float) -> None:
        self.cluster = cluster
        self.vitals = vitals
        self.timeout_s = timeout_s
        self.channel = channel
        self.heard_at = heard_at


Member = tuple[str, int]
"""The name of a group and the id of a broker in it."""


class Liveness(Generic[C]):
    """`C` is the kind of connections. All times are monotonic seconds."""

    def __init__(
        self, now: float, max_step_s: float = DEFAULT_TIMEOUT_S, unheard_timeout_s: float = DEFAULT_TIMEOUT_S
    ) -> None:
        """`max_step_s`: when more time passes between two calls of `expire`, this process stood still."""
        self.max_step_s = max_step_s
        self.unheard_timeout_s = unheard_timeout_s
        self._listened_s = 0.0
        self._last_step = now
        self._pulses: dict[Member, _Pulse[C]] = {}
        self._lost: set[Member] = set()
        self._newest: dict[Member, C] = {}
        """The newest connection with heartbeats of a broker, while it is open."""

    def __repr__(self) -> str:
        return f"<Liveness heard={len(self._pulses)} lost={len(self._lost)}>"

    def beat(
        self, cluster: str, member: Member, vitals: Vitals, timeout_s: float, channel: C, now: float
    ) -> bool:
        """Take a heartbeat; True if the broker was not alive before."""
        newest = self._newest.get(member)
        if newest is not None and channel.number < newest.number:
            return False  # held up on its way, and the broker has connected again since
        is_news = member not in self._pulses
        if is_news and member not in self._lost and len(self._pulses) + len(self._lost) >= MAX_MEMBERS:
            return False
        self._newest[member] = channel
        self._pulses[member] = _Pulse(cluster, vitals, timeout_s, channel, self._listened_until(now))
        self._lost.discard(member)
        return is_news

    def greet(self, cluster: str, member: Member, channel: C, now: float) -> None:
        """A broker has just spoken to us: it is alive, also before its first heartbeat."""
        if member not in self._pulses:
            self.beat(cluster, member, Vitals(), DEFAULT_TIMEOUT_S, channel, now)

    def connection_lost(self, channel: C) -> list[Member]:
        """The brokers whose last heartbeat came over this connection; they count as gone from now on."""
        found = [member for member, pulse in self._pulses.items() if pulse.channel is channel]
        self._lose(found)
        for member in [member for member, newest in self._newest.items() if newest is channel]:
            del self._newest[member]
        return found

    def expire(self, now: float) -> list[Member]:
        """Forget the brokers that were silent for too long; called regularly."""
        self._listened_s = self._listened_until(now)
        self._last_step = now
        found = [member for member, pulse in self._pulses.items() if self._is_silent(pulse, now)]
        self._lose(found)
        return found

    def next_expiry_s(self, now: float) -> float:
        """How long it takes until a broker was silent for too long, unless it is heard before."""
        listened = self._listened_until(now)
        times = (pulse.heard_at + pulse.timeout_s - listened for pulse in self._pulses.values())
        return min(times, default=float("inf"))

    def of_group(self, name: str, now: float) -> Heard:
        alive = {
            member[1]: pulse.vitals
            for member, pulse in self._pulses.items()
            if member[0] == name and not self._is_silent(pulse, now)
        }
        lost = frozenset(broker_id for group, broker_id in self._lost if group == name)
        return Heard(alive, lost, self._listened_until(now) >= self.unheard_timeout_s)

    def counts(self) -> Mapping[tuple[str, ...], float]:
        """How many brokers are alive, by cluster and group."""
        found: dict[tuple[str, ...], float] = {}
        for (name, _), pulse in self._pulses.items():
            key = pulse.cluster, name
            found[key] = found.get(key, 0) + 1
        return found

    def _lose(self, members: list[Member]) -> None:
        for member in members:
            del self._pulses[member]
            self._lost.add(member)

    def _is_silent(self, pulse: _Pulse[C], now: float) -> bool:
        return self._listened_until(now) - pulse.heard_at > pulse.timeout_s

    def _listened_until(self, now: float) -> float:
        return self._listened_s + min(now - self._last_step, self.max_step_s)
