"""The checker of the campaign finds every loss, change and disorder that is planted, and nothing else."""

import random
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.campaign.checker import REVIVED, SENT_AGAIN, UNCOMMITTED, Gap, check, gap_of_fault, gaps_of
from tests.campaign.history import Delivered, Fault, History, Sent

QUEUES = 3


def faultless(seed: int, messages: int) -> History:
    """A run as it should be: some sends without an answer, some of them stored, some messages twice."""
    chance = random.Random(seed)
    history = History(groups={"ordered": True, "any": False}, ended=messages + 1.0)
    logs: dict[int, dict[int, str]] = {queue: {} for queue in range(QUEUES)}
    for number in range(messages):
        queue, body = chance.randrange(QUEUES), f"m{number}"
        is_stored, is_acknowledged = chance.random() < 0.9, chance.random() < 0.8
        offset = len(logs[queue])
        if is_stored or is_acknowledged:
            logs[queue][offset] = body
        told = offset if is_acknowledged else None
        history.sent.append(Sent(body, f"p{queue}", queue, number, number + 0.5, told))
    for queue, messages_of in logs.items():
        for group in history.groups:
            again = chance.randrange(len(messages_of) + 1)
            offsets = [*range(again), *range(again // 2, len(messages_of))]
            history.delivered += [
                Delivered(messages_of[offset], group, queue, offset, 1.0) for offset in offsets
            ]
    history.logs = {"a": logs, "b": {queue: dict(log) for queue, log in logs.items()}}
    history.decided = ["commit-1", "rollback-1", "timed-1"]
    stored = Counter({"commit-1": 1, "commit-2": 1, "timed-1": 1 + seed % 2})
    history.copies = {"a": stored.copy(), "b": stored.copy()}
    return history


HISTORIES = st.builds(faultless, st.integers(0, 10_000), st.integers(8, 60))


def some_acknowledged(history: History, chance: random.Random) -> Sent:
    return chance.choice([sent for sent in history.sent if sent.offset is not None])


@given(HISTORIES)
def test_a_faultless_run_has_no_violations(history: History) -> None:
    verdict = check(history)
    assert verdict.violations == {}
    assert verdict.acknowledged + verdict.unacknowledged == len(history.sent)


@given(HISTORIES, st.integers())
def test_a_message_missing_on_one_broker_is_lost(history: History, seed: int) -> None:
    sent = some_acknowledged(history, random.Random(seed))
    assert sent.offset is not None
    log = {queue: dict(messages) for queue, messages in history.logs["b"].items()}
    del log[sent.queue][sent.offset]
    history.logs["b"] = log
    history.delivered = [each for each in history.delivered if each.body != sent.body]
    verdict = check(history)
    assert len(verdict.lost) == 1
    assert sent.body in verdict.lost[0]
    assert len(verdict.undelivered) == 2  # by both groups


@given(HISTORIES, st.integers())
def test_a_message_that_another_took_the_place_of_is_moved_and_was_delivered_wrongly(
    history: History, seed: int
) -> None:
    sent = some_acknowledged(history, random.Random(seed))
    assert sent.offset is not None
    history.sent.append(Sent("usurper", "x", sent.queue, 1.0, 2.0))
    for broker, log in history.logs.items():
        changed = {queue: dict(messages) for queue, messages in log.items()}
        changed[sent.queue][len(changed[sent.queue])] = sent.body
        changed[sent.queue][sent.offset] = "usurper"
        history.logs[broker] = changed
    verdict = check(history)
    assert len(verdict.moved) == 2
    assert not verdict.lost
    assert verdict.taken_back


@given(HISTORIES, st.integers(), st.sampled_from(["ordered", "any"]))
def test_every_repeated_delivery_is_counted_and_none_is_disorder(
    history: History, seed: int, group: str
) -> None:
    before = check(history).delivered_twice
    chance = random.Random(seed)
    of_group = [each for each in history.delivered if each.group == group]
    again = chance.choices(of_group, k=chance.randint(1, 5))
    history.delivered += again
    verdict = check(history)
    assert verdict.delivered_twice == before + len(again)
    assert verdict.violations == {}


def test_messages_that_come_again_are_counted_by_cause() -> None:
    history = History(groups={"any": False}, stores_once=False, ended=9.0)
    history.sent = [Sent(f"m{number}", "p0", 0, number, number + 0.5, number) for number in range(3)]
    history.logs = {"a": {0: {0: "m0", 1: "m1", 2: "m2", 3: "m0"}}}
    history.delivered = [
        Delivered("m0", "any", 0, 0, 1.0),
        Delivered("m1", "any", 0, 1, 1.0),
        Delivered("m1", "any", 0, 1, 2.0),
        Delivered("m2", "any", 1, 7, 2.0, is_retry=True),  # a member died before its handler began
        Delivered("m0", "any", 0, 3, 3.0),
        Delivered("m1", "any", 1, 8, 4.0, is_retry=True),
    ]
    verdict = check(history)
    assert verdict.twice == {UNCOMMITTED: 1, SENT_AGAIN: 1, REVIVED: 1}
    assert (verdict.delivered_twice, verdict.violations) == (3, {})


@given(HISTORIES, st.integers())
def test_only_ordered_groups_must_get_first_deliveries_in_order(history: History, seed: int) -> None:
    queue = random.Random(seed).choice([q for q, log in history.logs["a"].items() if len(log) > 1] or [0])
    if len(history.logs["a"][queue]) < 2:
        return
    for group in history.groups:
        mine = [each for each in history.delivered if each.group == group and each.queue == queue]
        rest = [each for each in history.delivered if each not in mine]
        once = list(dict.fromkeys(mine))
        history.delivered = [*rest, *reversed(once)]
        verdict = check(history)
        assert bool(verdict.disordered) == (group == "ordered")
        history.delivered = [*rest, *once]


@given(HISTORIES)
def test_messages_that_nobody_sent_are_invented(history: History) -> None:
    history.logs["a"] = {**history.logs["a"], 7: {0: "from nowhere"}}
    assert len(check(history).invented) == 1


def test_an_unacknowledged_message_may_be_lost_or_stored() -> None:
    history = History(
        sent=[Sent("m", "p", 0, 0.0, 1.0), Sent("n", "p", 0, 1.0, 2.0)], logs={"a": {0: {0: "n"}}}
    )
    verdict = check(history)
    assert verdict.violations == {}
    assert verdict.unacknowledged == 2


@pytest.mark.parametrize("stores_once", [True, False])
def test_a_message_is_stored_once_if_the_brokers_recognize_what_is_repeated(stores_once: bool) -> None:
    history = History(sent=[Sent("m", "p", 0, 0.0, 1.0, 0)], stores_once=stores_once)
    history.logs = {"a": {0: {0: "m"}, 1: {0: "m"}}}
    assert bool(check(history).violations) is stores_once


def test_a_producer_that_is_told_a_lower_offset_later_is_out_of_order() -> None:
    sent = [Sent("m", "p", 0, 0.0, 1.0, 1), Sent("n", "p", 0, 2.0, 3.0, 0)]
    history = History(sent=sent, logs={"a": {0: {0: "n", 1: "m"}}})
    assert len(check(history).disordered) == 1
    overlapping = [sent[0], sent[1]._replace(began=0.5)]
    assert check(replace(history, sent=overlapping)).violations == {}


def test_gaps_are_between_the_acknowledgements_of_all_producers() -> None:
    sent = [Sent(f"m{at}", f"p{at % 2}", 0, at, at, at) for at in (0, 1, 4, 5)]
    history = History(sent=sent, logs={}, ended=9.0)
    verdict = check(history)
    assert verdict.gaps == [Gap(1, 4), Gap(5, 9.0)]
    assert verdict.longest_gap == Gap(5, 9.0)
    assert verdict.unavailable_s == 7


@pytest.mark.parametrize(("began", "ended", "expected"), [(0, 1, 3.0), (4.5, 5, 4.0), (20, 21, 0.0)])
def test_a_fault_has_the_longest_gap_that_touches_it(began: float, ended: float, expected: float) -> None:
    sent = [Sent(f"m{at}", "p", 0, at, at, at) for at in (0, 1, 4, 5)]
    gaps = list(gaps_of(sent, 9.0))
    assert gap_of_fault(Fault("x", began, ended), gaps, after_s=1.0) == expected


@pytest.mark.parametrize("body", ["commit-1", "timed-1"])
def test_a_committed_or_timed_message_that_is_nowhere_is_lost(body: str) -> None:
    history = faultless(1, 8)
    del history.copies["b"][body]
    assert list(check(history).violations) == ["acknowledged and lost"]


@pytest.mark.parametrize(("body", "count"), [("commit-2", 2), ("rollback-1", 1), ("rollback-2", 1)])
def test_a_transaction_that_ends_twice_or_the_wrong_way_is_found(body: str, count: int) -> None:
    history = faultless(1, 8)
    history.copies["a"][body] = count
    assert list(check(history).violations) == ["rolled back, but visible, or committed twice"]


def test_two_producers_cannot_have_the_same_place() -> None:
    sent = [Sent("a", "p", 0, 0.0, 2.0, 7), Sent("b", "q", 0, 1.0, 3.0, 7)]
    assert check(History(sent=sent)).moved == ["'a' and 'b' were both acknowledged at (0, 7)"]
