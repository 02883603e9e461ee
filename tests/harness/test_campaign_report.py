"""The report of the campaign adds up rounds, and tells a fault apart from one that came with others."""

import json
from typing import Any

from tests.campaign.checker import LOST, REVIVED, UNCOMMITTED, check
from tests.campaign.history import Delivered, Fault, History, Sent
from tests.campaign.report import as_row, summary
from tests.campaign.rounds import Round


def a_round(*faults: Fault, times: tuple[float, ...] = (0.0, 0.1, 0.2)) -> Round:
    history = History(faults=list(faults), ended=times[-1])
    history.sent = [Sent(f"m{at}", "p0", 0, at, at, number) for number, at in enumerate(times)]
    return Round(7, "group", [], history, check(history), 60.0)


def row(gaps: list[float], **more: Any) -> dict[str, Any]:
    return as_row(a_round()) | {"faults": [("kill master", gap) for gap in gaps]} | more


def test_a_fault_that_another_one_overlaps_is_counted_apart() -> None:
    alone, first, second = Fault("kill b0 for 1.0 s", 1, 2), Fault("hang b1", 5, 9), Fault("kill b2", 6, 7)
    found = as_row(a_round(alone, first, second))["faults"]
    assert [name for name, _ in found] == ["kill b0", "hang b1 and more", "kill b2 and more"]


def test_the_gap_of_a_fault_is_the_longest_around_it() -> None:
    found = a_round(Fault("kill master", 1.0, 2.0), times=(0.5, 0.9, 1.7, 1.8, 9.0))
    assert as_row(found)["faults"] == [("kill master", 7.2)]


def test_a_round_counts_its_deliveries() -> None:
    found = a_round()
    found.history.delivered += [Delivered("m0.0", group, 0, 0, 0.5) for group in ("billing", "audit")]
    assert as_row(found)["delivered"] == 2


def test_rounds_are_added_up_also_after_they_were_written_down() -> None:
    rows = [row([number / 100 for number in range(1, 101)]), row([1.5], violations={LOST: ["one", "two"]})]
    for each, twice in zip(rows, ({REVIVED: 2}, {REVIVED: 1, UNCOMMITTED: 4}), strict=True):
        each["delivered_twice"] = twice
    text = summary(json.loads(json.dumps(rows)))
    assert "2 rounds, 101 faults" in text
    assert "6 messages acknowledged, 2 lost" in text
    assert "delivered twice 7 (3 by a revive, 4 by an uncommitted offset)" in text
    assert f"violations: {{'{LOST}': 2}}" in text
    assert text.splitlines()[-1].split() == ["kill", "master", "101", "0.51", "0.91", "1.00", "1.50", "99"]
