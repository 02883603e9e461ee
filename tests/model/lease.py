"""The model of a lease: a master that acknowledges alone stops before a controller has given its place away.

The shipped `Lease` and `Liveness` run on clocks that pass in ticks. Heartbeats, questions and their answers
take any time, connections close, and the master's machine is suspended for a while.
"""

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from tests.model.explorer import Explored, Step, Violation, explore

from pyromq.broker.replication.lease import Lease
from pyromq.controller.liveness import Liveness, Vitals

TIMEOUT_S: Final = 10.0
TICK_S: Final = 4.0
"""The controller has heard nothing for too long after three of them, and the lease is over."""
_MEMBER: Final = "g", 1


class _Line(NamedTuple):
    number: int


_MAX_ON_THE_WAY: Final = 2


class Letter(NamedTuple):
    """A heartbeat or a question, or the answer to it; `at` is when the master sent its heartbeat."""

    kind: str
    at: float
    is_answer: bool = False
    says_master: bool = False


class State(NamedTuple):
    lease: tuple[tuple[str, Any], ...]
    now: float = 0.0
    asleep_s: float = 0.0
    """How long the master's machine was suspended so far."""
    is_asleep: bool = False
    heard_at: float | None = 0.0
    """When the controller heard the last heartbeat; None if it takes the broker for gone."""
    is_replaced: bool = False
    letters: frozenset[Letter] = frozenset()
    ticks: int = 0
    closes: int = 0
    naps: int = 0

    def __str__(self) -> str:
        return "a master that holds its lease"


class _Clock:
    """Time since the machine was started, with the time in which it was suspended."""

    def __init__(self, state: State, counts_sleep: bool) -> None:
        self._now = state.now - (0.0 if counts_sleep else state.asleep_s)

    def since_boot(self) -> float:
        return self._now

    monotonic = since_boot

    def now_ms(self) -> int:
        return 0


class LeaseSteps:
    def __init__(self, counts_sleep: bool) -> None:
        self._counts_sleep = counts_sleep

    def start(self, ticks: int, closes: int, naps: int) -> State:
        state = State(lease=(), ticks=ticks, closes=closes, naps=naps)
        lease = Lease(_Clock(state, self._counts_sleep), TIMEOUT_S)
        lease.renew(0.0)
        lease.confirm(lease.ask())
        return self._with(state, lease)

    def check(self, state: State) -> None:
        """Raises Violation."""
        if state.is_replaced and not state.is_asleep and self._lease(state).is_held:
            raise Violation("a master acknowledges messages alone after it has been replaced")

    def __call__(self, state: State) -> Iterator[Step[State]]:
        if state.ticks:
            slept = TICK_S if state.is_asleep else 0.0
            later = state._replace(
                now=state.now + TICK_S, ticks=state.ticks - 1, asleep_s=state.asleep_s + slept
            )
            yield Step("time passes", later)
        yield Step("the controller looks who is gone", self._scan(state))
        for letter in state.letters:
            if not letter.is_answer:
                yield Step(f"the controller gets the {letter.kind}", self._heard(state, letter))
        if state.is_asleep:
            yield Step("the master's machine goes on", state._replace(is_asleep=False))
            return
        if state.naps:
            yield Step(
                "the master's machine is suspended", state._replace(is_asleep=True, naps=state.naps - 1)
            )
        for letter in state.letters:
            if letter.is_answer:
                yield Step(f"the master gets the answer to its {letter.kind}", self._answered(state, letter))
        lease = self._lease(state)
        if len(state.letters) < _MAX_ON_THE_WAY:
            beat = Letter("heartbeat", _Clock(state, self._counts_sleep).since_boot())
            for letter in (beat, Letter("question", lease.ask())):
                sent = state._replace(letters=state.letters | {letter})
                yield Step(f"the master sends a {letter.kind}", sent)
        if state.closes:
            lease.suspend()
            closed = state._replace(closes=state.closes - 1, letters=frozenset(), heard_at=None)
            yield Step("the connection between them closes", self._with(closed, lease))

    def _lease(self, state: State) -> Lease:
        lease = Lease(_Clock(state, self._counts_sleep), TIMEOUT_S)
        for name, value in state.lease:
            setattr(lease, name, value)
        return lease

    @staticmethod
    def _with(state: State, lease: Lease) -> State:
        kept = tuple((name, value) for name, value in vars(lease).items() if name != "_clock")
        return state._replace(lease=kept)

    @staticmethod
    def _scan(state: State) -> State:
        liveness = Liveness[_Line](0.0, max_step_s=1000.0, unheard_timeout_s=TIMEOUT_S)
        if state.heard_at is not None:
            liveness.expire(state.heard_at)
            liveness.beat("c", _MEMBER, Vitals(), TIMEOUT_S, _Line(0), state.heard_at)
        liveness.expire(state.now)
        is_gone = 1 not in liveness.of_group("g", state.now).alive
        return state._replace(is_replaced=True) if is_gone else state

    @staticmethod
    def _heard(state: State, letter: Letter) -> State:
        """Whoever asks is there, too."""
        answer = letter._replace(is_answer=True, says_master=not state.is_replaced)
        return state._replace(letters=state.letters - {letter} | {answer}, heard_at=state.now)

    def _answered(self, state: State, letter: Letter) -> State:
        lease = self._lease(state)
        if letter.kind == "heartbeat":
            lease.renew(letter.at)
        elif letter.says_master:
            lease.confirm(letter.at)
        return self._with(state._replace(letters=state.letters - {letter}), lease)


def explore_lease(
    *, ticks: int = 4, closes: int = 1, naps: int = 1, counts_sleep: bool = True, max_states: int = 1_000_000
) -> Explored:
    """`counts_sleep`: the clock of the lease goes on while the machine is suspended."""
    steps = LeaseSteps(counts_sleep)
    start = steps.start(ticks, closes, naps)
    return explore([start], steps, steps.check, lambda before, after: None, hash, max_states)
