"""The open loop counts from the time at which a message was due."""

import time
from itertools import pairwise

from benchmarks.open_loop import cell_name, table
from benchmarks.open_loop_client import HEAD, Latencies, Pace
from benchmarks.rate_plot import Curve, picture


def test_messages_are_due_at_equal_distances_and_only_those_after_the_warm_up_count() -> None:
    pace = Pace(rate=10_000_000, warm_up_s=0.00001, seconds=0.00003)
    due: list[tuple[int, bytes]] = []
    while not pace.is_over:
        due += pace.due()
    heads = [HEAD.unpack(head) for _, head in due]
    assert [number for number, _ in due] == list(range(400))
    assert [is_measured for _, is_measured in heads] == [0] * 100 + [1] * 300
    assert {after - before for (before, _), (after, _) in pairwise(heads)} == {100}


def test_a_latency_counts_from_the_time_that_a_message_was_due() -> None:
    latencies = Latencies()
    now_ns = time.monotonic_ns()
    for late_s in range(1, 101):
        latencies.take(HEAD.pack(now_ns - late_s * 1_000_000_000, 1))
    latencies.take(HEAD.pack(0, 0))
    found = latencies.report()
    assert (found["count"], found["measured"]) == (101, 100)
    assert round(found["p50"] / 1000) == 50
    assert round(found["p99"] / 1000) == 99


def test_the_table_names_what_was_lost_or_refused() -> None:
    figures = {"asked rate": 1000.0, "publish p50": 1.0, "publish failed": 2.0, "end to end missing": 3.0}
    shown = table({cell_name(100, 16, 80): {"pyromq": [figures]}}, ["pyromq", "kafka"])
    assert "### 100 B, 16 topics, 80 %" in shown
    assert shown.splitlines()[-1].startswith("| pyromq | 1,000 | 1.00 | – |")
    assert shown.endswith("| 5 |")


def test_a_system_without_figures_is_not_in_the_picture() -> None:
    drawn = picture("p99", [Curve("pyromq", [(10.0, 1.0), (100.0, 2.0)]), Curve("kafka", [])])
    assert "pyromq" in drawn
    assert "kafka" not in drawn
