"""A round: one pipeline is killed again and again, with new messages each time; its totals are right then."""

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from tests.spark_kills.jobs import FIRST
from tests.spark_kills.kinds import KINDS
from tests.spark_kills.programs import ANY, BEGINS, HOWS, End, How, Moment, check_death
from tests.spark_kills.topics import Topics

_EVENTS = 40
"""About so many changes of files are in a run, until one has shown that it has fewer."""
_IN_BATCH = 8
"""The same for a batch, until kills have shown where batches end."""
_LATER_S = 0.05


BEFORE = "ended before"
"""The moment never came."""
STARVED = "starved"
"""Spark gives a Python process ten seconds to start: where the machine is busier, a run tells nothing."""
_STARVED_WORDS = "Python worker failed to connect back"
_ENDS = 10


@dataclass(slots=True)
class Deaths:
    """How drivers died, and how many of them said something then."""

    ways: Counter[str] = field(default_factory=Counter)
    lines: Counter[str] = field(default_factory=Counter)
    """How many lines they said in all, by the way they died."""
    in_batches: int = 0
    """How many left a batch behind that had begun and was not done."""

    @property
    def kills(self) -> int:
        return self.ways.total() - self.ways[BEFORE] - self.ways[STARVED]

    def add(self, other: "Deaths") -> None:
        self.ways.update(other.ways)
        self.lines.update(other.lines)
        self.in_batches += other.in_batches

    def __str__(self) -> str:
        ways = ", ".join(
            f"{count} × {way}" + (f" ({self.lines[way]} lines said)" if self.lines[way] else "")
            for way, count in self.ways.most_common()
        )
        return f"{self.in_batches} inside batches; {ways}"


def run_round(kind: str, topics: Topics, namesrv: str, directory: Path, chance: Random, kills: int) -> Deaths:
    """AssertionError if a run or the totals are wrong."""
    job = KINDS[kind](topics, namesrv, directory, f"{kind}-{chance.randrange(1 << 32):08x}")
    done = Deaths()
    places, events, inside = job.places, _EVENTS, _IN_BATCH
    for _ in range(kills):
        job.more()
        moment, how = _moment(places, events, inside, chance), _how(chance)
        end = job.pipeline.run(moment, how)
        if _is_starved(end):
            done.ways[STARVED] += 1
            continue
        try:
            check_death(end, how)
        except AssertionError as problem:
            raise AssertionError(f"{moment} {how}: {problem}") from None
        places = tuple(place for place in job.places if place != FIRST)
        if not end.was_killed and moment.path == ANY:
            events = max(1, min(events, end.changes))
        way = how if end.was_killed else BEFORE
        done.ways[way] += 1
        done.lines[way] += len(end.said.splitlines())
        was_inside = end.was_killed and job.is_in_batch()
        if moment.begins:
            inside = inside + 1 if was_inside else max(1, moment.count - 1)
        done.in_batches += was_inside
    job.more()
    for _ in range(_ENDS):
        end = job.pipeline.run()
        if not _is_starved(end):
            break
    assert end.code == 0, end.said
    assert not end.said, end.said
    job.check()
    return done


def is_starved(said: str) -> bool:
    return _STARVED_WORDS in said


def _is_starved(end: End) -> bool:
    return not end.was_killed and end.code != 0 and is_starved(end.said)


def _moment(places: tuple[str, ...], events: int, inside: int, chance: Random) -> Moment:
    """Mostly inside a batch: that a driver dies while it starts is soon tried."""
    then_s = chance.choice((0.0, 0.0, chance.uniform(0, _LATER_S)))
    if chance.random() < 0.6 and BEGINS in places:
        return Moment(ANY, chance.randint(1, inside), then_s, begins=chance.choice((1, 1, 2)))
    if chance.random() < 0.5:
        return Moment(ANY, chance.randint(1, events), then_s)
    return Moment(chance.choice(places), chance.choice((1, 1, 2)), then_s)


def _how(chance: Random) -> How:
    """Mostly the worst, and what systemd does."""
    return chance.choice(("kill all", "kill all", "terminate all", chance.choice(HOWS)))
