"""What benchmarks make of their figures: ratios, spreads, who is behind, and the picture."""

from xml.etree import ElementTree

import pytest
from benchmarks.broker import Results, Sample, behind, comparison
from benchmarks.ratio_plot import BETTER, WORSE, Panel, Row, picture
from benchmarks.turns import Running, compared, interval, narrow, orders, ratios, spread

PANELS = (Panel("rate", "messages/s", is_more_better=True), Panel("cpu_us", "CPU", is_more_better=False))


def test_ratios_are_taken_round_by_round() -> None:
    assert ratios([10, 30], [20, 10]) == [0.5, 3.0]
    assert ratios([1.0, 2.0], [0.0, -1.0]) == []
    assert compared([10, 30, 20], [20, 10, 20]) == ["20", "20", "**1.00** (0.50–3.00)"]


@pytest.mark.parametrize(
    ("found", "text"), [([], "–"), ([0.5], "**0.50**"), ([1, 3], "**2.00** (1.00–3.00)")]
)
def test_a_spread_is_the_lowest_and_the_highest(found: list[float], text: str) -> None:
    assert spread(found) == text


@pytest.mark.parametrize(
    ("count", "low", "high"),
    [(1, 1, 1), (3, 1, 3), (6, 1, 6), (20, 5, 16), (100, 40, 61), (1000, 469, 532)],
)
def test_the_interval_of_a_median_is_that_of_its_ranks(count: int, low: int, high: int) -> None:
    """Of 100 values it is the 40th to the 61st, as tables of the sign test have it."""
    assert interval([float(number) for number in range(count, 0, -1)]) == (low, high)


def test_a_median_is_told_with_its_interval() -> None:
    assert narrow([1.0, 1.1, 1.25]) == "**1.100** (1.000–1.250)"


def test_who_begins_changes_from_round_to_round() -> None:
    servers = [Running(name, 0, 0) for name in "abc"]
    assert ["".join(server.name for server in order) for order in orders(servers, 4)] == [
        "abc",
        "bca",
        "cab",
        "abc",
    ]


def sample(rate: float, cpu_us: float, wait: float) -> Sample:
    return Sample(rate=rate, cpu_us=cpu_us, p50=wait, p99=wait, p999=wait, errors=0)


def test_a_report_says_where_ours_is_behind() -> None:
    results = Results()
    for _ in range(3):
        results.add("won", "pyromq", sample(200, 5, 10))
        results.add("won", "apache", sample(100, 10, 20))
        results.add("lost", "pyromq", sample(90, 12, 10))
        results.add("lost", "apache", sample(100, 10, 10))
    for server, value in (("pyromq", 30.0), ("apache", 20.0)):
        results.note("idle: memory, MB RSS", server, value)
    assert behind(results, "pyromq", "apache") == [
        "- lost: messages/s × 0.90, CPU µs/message × 1.20",
        "- idle: memory, MB RSS: × 1.50",
    ]
    table = comparison(results, ["won", "lost"], "pyromq", "apache", ("rate",)).splitlines()
    assert table[2] == "| won | 200 | 100 | **2.00** (2.00–2.00) |"


def test_the_picture_shows_who_is_better_whichever_way_better_is() -> None:
    rows = [Row("a < b", {"rate": [2.0], "cpu_us": [0.5]}), Row("c", {"rate": [0.5], "cpu_us": [100.0]})]
    drawn = ElementTree.fromstring(picture("Title & more", PANELS, rows, ["a note"]))
    bars = [
        each.get("fill") for each in drawn.iter() if each.tag.endswith("rect") and each.get("height") == "10"
    ]
    # The first two explain the colours; then panel by panel.
    assert bars == [BETTER, WORSE, BETTER, WORSE, BETTER, WORSE]
    texts = [each.text for each in drawn.iter() if each.tag.endswith("text")]
    assert {"Title & more", "a < b", "a note", "2.00", "100"} <= set(texts)
