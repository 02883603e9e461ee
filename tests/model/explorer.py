"""Breadth first through all states that a model can reach: the first violation found has a shortest trace.

States that differ only in the names of brokers count once (`key`). Of a state that was seen, its key is kept
and the step that led to it: enough to tell the whole story of a violation.
"""

import gc
import time
from collections.abc import Callable, Hashable, Iterable
from typing import Generic, NamedTuple, TypeVar

S = TypeVar("S")


class Step(NamedTuple, Generic[S]):
    label: str
    state: S


class Violation(Exception):
    """The text says which promise is broken."""


class Explored(NamedTuple):
    states: int
    steps: int
    depth: int
    seconds: float
    is_complete: bool
    """Whether all states within the bounds were seen."""
    violation: str
    trace: tuple[str, ...]

    def __str__(self) -> str:
        how = "all of them" if self.is_complete else "not all of them"
        told = (
            f"{self.states:,} states, {how}, {self.steps:,} steps, depth {self.depth}, {self.seconds:.1f} s"
        )
        if self.violation:
            lines = (f"{number:>4}. {label}" for number, label in enumerate(self.trace, 1))
            told = "\n".join((f"{told}\nVIOLATED: {self.violation}", *lines))
        return told


def explore(
    starts: Iterable[S],
    steps: Callable[[S], Iterable[Step[S]]],
    check: Callable[[S], None],
    check_step: Callable[[S, S], None],
    key: Callable[[S], Hashable],
    max_states: int,
) -> Explored:
    """The checks raise Violation. Stops at the first one, or when more than `max_states` were found."""
    was_collecting = gc.isenabled()
    gc.disable()  # states are values, and there are many
    try:
        return _explore(starts, steps, check, check_step, key, max_states)
    finally:
        if was_collecting:
            gc.enable()


def _explore(
    starts: Iterable[S],
    steps: Callable[[S], Iterable[Step[S]]],
    check: Callable[[S], None],
    check_step: Callable[[S, S], None],
    key: Callable[[S], Hashable],
    max_states: int,
) -> Explored:
    began = time.process_time()
    seen: dict[Hashable, tuple[Hashable | None, str]] = {}
    level: list[tuple[Hashable, S]] = []
    depth = taken = 0

    def ended(violation: str = "", last: Hashable | None = None, *, is_complete: bool = False) -> Explored:
        trace: list[str] = []
        while last is not None:
            last, label = seen[last]
            trace.append(label)
        seconds = time.process_time() - began
        return Explored(len(seen), taken, depth, seconds, is_complete, violation, tuple(reversed(trace)))

    following = [(key(start), start) for start in starts]
    for name, start in following:
        seen[name] = None, f"start: {start}"
        check(start)
    while following:
        level, following = following, []
        depth += 1
        for before, state in level:
            for label, after in steps(state):
                taken += 1
                name = key(after)
                is_new = name not in seen
                try:
                    if is_new:
                        check(after)
                    check_step(state, after)
                except Violation as violation:
                    told = ended(str(violation), before)
                    return told._replace(trace=(*told.trace, label))
                if is_new:
                    seen[name] = before, label
                    following.append((name, after))
            if len(seen) > max_states:
                return ended()
    return ended(is_complete=True)
