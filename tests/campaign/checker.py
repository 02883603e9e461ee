"""Compares what a cluster promised with what it kept. Pure: a history comes in, a verdict goes out.

A message counts as acknowledged when its producer got SEND_OK. Each one must be in every log that is given,
at the queue offset that its producer was told, and every group must get it. An unacknowledged one may be
anywhere, or nowhere. Each is stored at most once, however often it was sent, if the brokers recognize that.

One commit is one message, and a rolled back message is none. A timed message comes at least once.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from tests.campaign.history import Delivered, Fault, History, Sent

PAUSE_S = 1.0
"""Producers that get no acknowledgement for longer than this count as locked out."""


LOST = "acknowledged and lost"

SENT_AGAIN = "by a retried send"
UNCOMMITTED = "by an uncommitted offset"
REVIVED = "by a revive"


class Gap(NamedTuple):
    """No acknowledgement came between these times."""

    began: float
    ended: float

    @property
    def seconds(self) -> float:
        return self.ended - self.began


@dataclass(slots=True)
class Verdict:
    acknowledged: int = 0
    unacknowledged: int = 0
    decided: int = 0
    """Half messages and timed messages that were acknowledged."""
    twice: Counter[str] = field(default_factory=Counter)
    """Messages that a group got again, by cause. Allowed: a member goes on at an offset that was not
    committed yet, and a popped message that was not acknowledged in time is revived."""
    gaps: list[Gap] = field(default_factory=list)
    """Between acknowledgements, longer than PAUSE_S."""
    longest_gap: Gap = field(default_factory=lambda: Gap(0.0, 0.0))

    # Never allowed; each is a sentence
    stored_twice: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    moved: list[str] = field(default_factory=list)
    invented: list[str] = field(default_factory=list)
    taken_back: list[str] = field(default_factory=list)
    undelivered: list[str] = field(default_factory=list)
    misjudged: list[str] = field(default_factory=list)
    disordered: list[str] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)

    @property
    def violations(self) -> dict[str, list[str]]:
        found = {
            LOST: self.lost,
            "acknowledged, but elsewhere": self.moved,
            "never sent": self.invented,
            "stored twice": self.stored_twice,
            "delivered, but not what is stored": self.taken_back,
            "acknowledged, but not delivered": self.undelivered,
            "rolled back, but visible, or committed twice": self.misjudged,
            "out of order in a queue": self.disordered,
            "broken invariants": self.broken,
        }
        return {kind: sentences for kind, sentences in found.items() if sentences}

    @property
    def delivered_twice(self) -> int:
        return self.twice.total()

    @property
    def unavailable_s(self) -> float:
        return sum(gap.seconds for gap in self.gaps)


def check(history: History) -> Verdict:
    acknowledged = [sent for sent in history.sent if sent.offset is not None]
    verdict = Verdict(len(acknowledged), len(history.sent) - len(acknowledged), broken=history.broken)
    _check_logs(history, acknowledged, verdict)
    _check_deliveries(history, acknowledged, verdict)
    _check_decisions(history, verdict)
    gaps = list(gaps_of(acknowledged, history.ended))
    verdict.gaps = [gap for gap in gaps if gap.seconds > PAUSE_S]
    verdict.longest_gap = max(gaps, key=lambda gap: gap.seconds, default=Gap(0.0, history.ended))
    return verdict


def _check_logs(history: History, acknowledged: list[Sent], verdict: Verdict) -> None:
    known = {sent.body for sent in history.sent}
    for broker, log in history.logs.items():
        places: dict[str, list[tuple[int, int]]] = defaultdict(list)
        for queue, messages in log.items():
            for offset, body in messages.items():
                places[body].append((queue, offset))
                if body not in known:
                    verdict.invented.append(f"{body!r} is in queue {queue} of {broker} at {offset}")
        if history.stores_once:
            verdict.stored_twice += [
                f"{body!r} is at {found} on {broker}" for body, found in places.items() if len(found) > 1
            ]
        for sent in acknowledged:
            told, found = (sent.queue, sent.offset), places.get(sent.body, [])
            if not found:
                verdict.lost.append(f"{sent.body!r}, acknowledged at {told}, is not in the log of {broker}")
            elif told not in found:
                verdict.moved.append(f"{sent.body!r}, acknowledged at {told}, is at {found} on {broker}")
    verdict.disordered += _sends_out_of_order(acknowledged)
    verdict.moved += _given_twice(acknowledged)


def _sends_out_of_order(acknowledged: Iterable[Sent]) -> Iterator[str]:
    """A send that began after another's acknowledgement has a higher offset in the same queue, whoever made
    the two."""
    by_queue: dict[int, list[Sent]] = defaultdict(list)
    for sent in acknowledged:
        by_queue[sent.queue].append(sent)
    for queue, sends in by_queue.items():
        ended = iter(sorted(sends, key=lambda sent: sent.ended))
        following: Sent | None = next(ended)
        highest: Sent | None = None
        for sent in sorted(sends, key=lambda sent: sent.began):
            while following is not None and following.ended <= sent.began:
                if highest is None or _offset(following) > _offset(highest):
                    highest = following
                following = next(ended, None)
            if highest is not None and highest is not sent and _offset(highest) >= _offset(sent):
                yield (
                    f"{highest.producer} was told {_offset(highest)} for {highest.body!r} and later"
                    f" {sent.producer} {_offset(sent)} for {sent.body!r} in queue {queue}"
                )


def _given_twice(acknowledged: Iterable[Sent]) -> Iterator[str]:
    """One place in a queue has one message, for every producer."""
    places: dict[tuple[int, int], Sent] = {}
    for sent in acknowledged:
        before = places.setdefault((sent.queue, _offset(sent)), sent)
        if before.body != sent.body:
            yield f"{before.body!r} and {sent.body!r} were both acknowledged at {(sent.queue, sent.offset)}"


def _offset(sent: Sent) -> int:
    return -1 if sent.offset is None else sent.offset


def _check_deliveries(history: History, acknowledged: list[Sent], verdict: Verdict) -> None:
    known = {sent.body for sent in history.sent}
    by_group: dict[str, list[Delivered]] = {group: [] for group in history.groups}
    for each in history.delivered:
        by_group.setdefault(each.group, []).append(each)
        if each.body not in known:
            verdict.invented.append(f"{each.body!r} was delivered from queue {each.queue} at {each.offset}")
        for broker, log in history.logs.items():
            stored = log.get(each.queue, {}).get(each.offset)
            if stored != each.body and not each.is_retry:
                verdict.taken_back.append(
                    f"{each.group} got {each.body!r} from queue {each.queue} at {each.offset};"
                    f" {broker} holds {stored!r} there"
                )
    for group, deliveries in by_group.items():
        verdict.twice.update(_causes(deliveries))
        bodies = {each.body for each in deliveries}
        if group in history.groups:
            verdict.undelivered += [
                f"{sent.body!r}, acknowledged at {(sent.queue, sent.offset)}, never came to {group}"
                for sent in acknowledged
                if sent.body not in bodies
            ]
        if history.groups.get(group):
            verdict.disordered += _deliveries_out_of_order(group, deliveries)


def _causes(deliveries: Iterable[Delivered]) -> Iterator[str]:
    """Why a group got a message again, for each time."""
    bodies: set[str] = set()
    places: set[tuple[int, int]] = set()
    for each in deliveries:
        place = each.queue, each.offset
        if each.body in bodies:
            yield REVIVED if each.is_retry else UNCOMMITTED if place in places else SENT_AGAIN
        if not each.is_retry:
            places.add(place)
        bodies.add(each.body)


def _check_decisions(history: History, verdict: Verdict) -> None:
    verdict.decided = len(history.decided)
    for broker, copies in history.copies.items():
        verdict.lost += [
            f"{body!r} is not in the log of {broker}" for body in sorted(history.due - copies.keys())
        ]
        for body, count in copies.items():
            if body.startswith("rollback") or (count > 1 and not body.startswith("timed")):
                verdict.misjudged.append(f"{body!r} is in the log of {broker}, {count} times")


def _deliveries_out_of_order(group: str, deliveries: Iterable[Delivered]) -> Iterator[str]:
    """Whatever comes for the first time must follow everything that came before; repeats do not count."""
    highest: dict[int, int] = {}
    seen: set[tuple[int, int]] = set()
    for each in deliveries:
        place = each.queue, each.offset
        if place not in seen:
            seen.add(place)
            before = highest.get(each.queue, -1)
            if each.offset < before:
                yield f"{group} got {each.offset} of queue {each.queue} for the first time after {before}"
            highest[each.queue] = max(before, each.offset)


def gaps_of(acknowledged: Iterable[Sent], ended: float) -> Iterator[Gap]:
    """The times between acknowledgements, of all producers together, from the first to the end of the run."""
    times = sorted(sent.ended for sent in acknowledged)
    if times:
        yield from (Gap(*pair) for pair in pairwise([*times, max(times[-1], ended)]))


def gap_of_fault(fault: Fault, gaps: Iterable[Gap], after_s: float = 0.5) -> float:
    """The longest gap that touches a fault or the seconds after it."""
    touching = (gap for gap in gaps if gap.ended > fault.began and gap.began < fault.ended + after_s)
    return max((gap.seconds for gap in touching), default=0.0)
