"""What a run leaves: violations, events for its picture, and totals. Plain values for the parent process."""

from collections.abc import Callable

import msgspec


class Violation(msgspec.Struct, frozen=True):
    """An invariant that did not hold; `invariant` is its short name, the same in every run."""

    invariant: str
    text: str
    at_s: float


class Event(msgspec.Struct, frozen=True):
    at_s: float
    kind: str
    text: str


class Totals(msgspec.Struct):
    runs: int = 1
    failovers: int = 0
    acknowledged: int = 0
    unacknowledged: int = 0
    delivered: int = 0
    virtual_s: float = 0.0
    steps: int = 0
    cpu_s: float = 0.0

    def add(self, other: "Totals") -> None:
        for name in self.__struct_fields__:
            setattr(self, name, getattr(self, name) + getattr(other, name))


class Outcome(msgspec.Struct):
    violations: list[Violation]
    trace: int
    totals: Totals
    events: list[Event] = []
    acknowledgements: list[float] = []
    """When producers got one, in virtual seconds."""

    @property
    def broken(self) -> list[str]:
        """The invariants that did not hold, each once."""
        return sorted({each.invariant for each in self.violations})


class Recorder:
    """Collects all of this during a run. Of each invariant it keeps the first few violations."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._began_s = now()
        self.violations: list[Violation] = []
        self.events: list[Event] = []
        self.acknowledgements: list[float] = []
        self.totals = Totals()

    @property
    def now_s(self) -> float:
        """Seconds since the beginning of the run."""
        return self._now() - self._began_s

    def event(self, kind: str, text: str) -> None:
        self.events.append(Event(round(self.now_s, 6), kind, text))

    def violation(self, invariant: str, text: str) -> None:
        if sum(each.invariant == invariant for each in self.violations) < _MAX_OF_EACH:
            self.violations.append(Violation(invariant, text, round(self.now_s, 6)))
            self.event("violation", f"{invariant}: {text}")

    def acknowledged(self) -> None:
        self.totals.acknowledged += 1
        self.acknowledgements.append(round(self.now_s, 4))

    def check_available(self, since_s: float, within_s: float, what: str) -> None:
        """Some message must have been acknowledged lately, if something has been broken for long enough."""
        now = self._now()
        if now - since_s < within_s:
            return
        last_s = self.acknowledgements[-1] if self.acknowledgements else 0.0
        if self.now_s - last_s > now - since_s - within_s:
            self.violation("unavailable", f"nothing was acknowledged since {last_s:.1f} s during {what}")


_MAX_OF_EACH = 3
