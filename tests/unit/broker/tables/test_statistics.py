"""Counters of the broker, over the last minute, hour and day."""

from datetime import datetime, timedelta

import pytest

from pyromq.broker.tables.statistics import SENT_BACK, Statistics
from pyromq.clock import ManualClock
from pyromq.protocol.requests.inspection import BrokerStatsItem


class World:
    def __init__(self, start: datetime = datetime(2024, 5, 17, 12)) -> None:
        self.clock = ManualClock(round(start.timestamp() * 1000))
        self.statistics = Statistics(self.clock, is_system=lambda topic: topic.startswith("SYS"))

    def pass_seconds(self, seconds: int, step: int = 1) -> None:
        for _ in range(0, seconds, step):
            self.clock.advance(step)
            self.statistics.sample()

    def minute(self, name: str, key: str) -> BrokerStatsItem:
        data = self.statistics.data(name, key)
        assert data is not None
        assert data.stats_minute is not None
        return data.stats_minute


@pytest.mark.parametrize(
    ("name", "key", "total", "average"),
    [
        ("TOPIC_PUT_NUMS", "T", 60, 10.0),
        ("TOPIC_PUT_SIZE", "T", 6000, 1000.0),
        ("QUEUE_PUT_NUMS", "T@0", 30, 10.0),
        ("QUEUE_PUT_SIZE", "T@1", 3000, 1000.0),
        ("BROKER_PUT_NUMS", "AnyCluster", 75, 9.375),
        ("BROKER_PUT_NUMS_WITHOUT_SYSTEM_TOPIC", "AnyCluster", 65, 9.285714285714286),
        ("GROUP_GET_NUMS", "T@g", 14, 7.0),
        ("GROUP_GET_SIZE", "T@g", 1400, 700.0),
        ("QUEUE_GET_NUMS", "T@1@g", 7, 7.0),
        ("QUEUE_GET_SIZE", "T@1@g", 700, 700.0),
        ("BROKER_GET_NUMS", "AnyCluster", 17, 17 / 3),
        ("BROKER_GET_NUMS_WITHOUT_SYSTEM_TOPIC", "AnyCluster", 14, 7.0),
        ("SNDBCK_PUT_NUMS", "T@g", 5, 5.0),
    ],
)
def test_every_set_gives_its_sum_and_average(name: str, key: str, total: int, average: float) -> None:
    world = World()
    statistics = world.statistics
    for _ in range(3):
        statistics.put("T", 0, 10, 1000)
        statistics.put("T", 1, 10, 1000)
    statistics.put("U", 0, 5, 50)
    statistics.put("SYS_T", 0, 10, 100)
    statistics.got("g", "T", 0, 7, 700)
    statistics.got("g", "T", 1, 7, 700)
    statistics.got("h", "SYS_T", 0, 3, 30)
    statistics.add(SENT_BACK, "T@g", 5)
    world.pass_seconds(10)
    item = world.minute(name, key)
    assert item.sum == total
    assert item.avgpt == pytest.approx(average)
    assert item.tps == pytest.approx(total / 10)


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("TOPIC_PUT_NUMS", "U"),
        ("QUEUE_PUT_NUMS", "T@9"),
        ("QUEUE_PUT_NUMS", "T@x"),
        ("QUEUE_GET_NUMS", "T@0"),
        ("GROUP_GET_NUMS", "T"),
        ("NO_SUCH_SET", "T"),
        ("SNDBCK_PUT_NUMS", "T@g"),
    ],
)
def test_there_is_no_data_of_what_never_happened(name: str, key: str) -> None:
    world = World()
    world.statistics.put("T", 0, 1, 1)
    assert world.statistics.data(name, key) is None


def test_a_minute_forgets_what_is_older_and_an_hour_does_not() -> None:
    world = World()
    world.statistics.put("T", 0, 600, 6)
    world.pass_seconds(10)
    assert world.minute("TOPIC_PUT_NUMS", "T").sum == 600
    world.pass_seconds(60)
    assert world.minute("TOPIC_PUT_NUMS", "T") == BrokerStatsItem(sum=0, tps=0.0, avgpt=0.0)
    world.pass_seconds(600, step=10)
    data = world.statistics.data("TOPIC_PUT_NUMS", "T")
    assert data is not None
    assert data.stats_hour is not None
    assert data.stats_hour.sum == 600
    assert data.stats_hour.tps == pytest.approx(1.0, rel=0.2)


def test_a_day_is_twenty_four_hours() -> None:
    world = World()
    world.statistics.put("T", 0, 100, 1)
    world.pass_seconds(23 * 3600, step=60)
    data = world.statistics.data("TOPIC_PUT_NUMS", "T")
    assert data is not None
    assert data.stats_day is not None
    assert data.stats_day.sum == 100
    world.pass_seconds(3 * 3600, step=60)
    data = world.statistics.data("TOPIC_PUT_NUMS", "T")
    assert data is not None
    assert data.stats_day == BrokerStatsItem(sum=0, tps=0.0, avgpt=0.0)


def test_a_steady_rate_is_that_rate() -> None:
    world = World()
    for _ in range(120):
        world.statistics.put("T", 0, 50, 500)
        world.statistics.got("g", "T", 0, 20, 200)
        world.pass_seconds(1)
    assert world.statistics.topic_put_tps("T") == pytest.approx(50)
    assert world.statistics.group_get_tps("g", "T") == pytest.approx(20)
    assert world.statistics.topic_put_tps("nothing") == 0


def test_something_that_starts_again_after_a_pause_is_not_averaged_over_it() -> None:
    world = World()
    world.statistics.put("T", 0, 1, 1)
    world.pass_seconds(3600, step=10)
    world.statistics.put("T", 0, 100, 1)
    world.pass_seconds(10)
    assert world.statistics.topic_put_tps("T") == pytest.approx(10)


def test_runtime_figures_have_rates_over_ten_seconds_a_minute_and_ten_minutes() -> None:
    world = World()
    world.pass_seconds(600)
    for _ in range(30):
        world.statistics.put("T", 0, 60, 600)
        for _ in range(4):
            world.statistics.got("g", "T", 0, 15, 150)
        world.statistics.pulls_missed += 2
        world.pass_seconds(1)
    figures = world.statistics.runtime_figures()
    rates = {key: [round(float(rate), 3) for rate in figures[key].split()] for key in figures if "Tps" in key}
    assert rates == {
        "putTps": [60, 30, 3],
        "getTransferredTps": [60, 30, 3],
        "getTransferedTps": [60, 30, 3],
        "getFoundTps": [4, 2, 0.2],
        "getMissTps": [2, 1, 0.1],
        "getTotalTps": [6, 3, 0.3],
    }
    assert (figures["putMessageTimesTotal"], figures["putMessageSizeTotal"]) == ("1800", "18000")
    assert figures["putMessageAverageSize"] == "10.0"


def test_rates_are_known_from_the_first_second_on() -> None:
    world = World()
    assert world.statistics.runtime_figures()["putTps"] == "0.0 0.0 0.0"
    world.statistics.put("T", 0, 5, 5)
    world.pass_seconds(1)
    assert world.statistics.runtime_figures()["putTps"] == "5.0 5.0 5.0"


def test_totals_are_remembered_at_midnight() -> None:
    world = World(datetime(2024, 5, 17, 23, 59, 50))
    world.statistics.put("T", 0, 7, 1)
    world.pass_seconds(20)
    world.statistics.put("T", 0, 3, 1)
    world.statistics.got("g", "T", 0, 2, 1)
    figures = world.statistics.runtime_figures()
    assert [figures[f"msgPutTotal{when}"] for when in ("YesterdayMorning", "TodayMorning", "TodayNow")] == [
        "0",
        "7",
        "10",
    ]
    world.pass_seconds(round(timedelta(days=1).total_seconds()), step=600)
    figures = world.statistics.runtime_figures()
    assert [figures[f"msgPutTotal{when}"] for when in ("YesterdayMorning", "TodayMorning", "TodayNow")] == [
        "7",
        "10",
        "10",
    ]
    assert figures["msgGetTotalTodayMorning"] == "2"


def test_deleted_topics_and_groups_are_forgotten() -> None:
    world = World()
    statistics = world.statistics
    for topic in ("T", "U"):
        statistics.put(topic, 0, 1, 1)
        for group in ("g", "h"):
            statistics.got(group, topic, 0, 1, 1)
            statistics.add(SENT_BACK, f"{topic}@{group}")
    statistics.forget_topic("T")
    assert statistics.data("TOPIC_PUT_NUMS", "T") is None
    assert statistics.data("GROUP_GET_NUMS", "T@g") is None
    assert statistics.data("SNDBCK_PUT_NUMS", "T@g") is None
    assert statistics.data("GROUP_GET_NUMS", "U@g") is not None
    statistics.forget_group("g")
    assert statistics.data("GROUP_GET_NUMS", "U@g") is None
    assert statistics.data("SNDBCK_PUT_NUMS", "U@g") is None
    assert statistics.data("GROUP_GET_NUMS", "U@h") is not None
    assert statistics.data("TOPIC_PUT_NUMS", "U") is not None
    totals = (statistics.put_messages, statistics.put_bytes, statistics.got_messages, statistics.pulls_found)
    assert totals == (2, 2, 4, 4)


def test_idle_counters_keep_one_sample_per_window() -> None:
    world = World()
    world.statistics.put("T", 0, 1, 1)
    world.pass_seconds(30 * 3600, step=10)
    series = world.statistics.puts_of("T", 0)
    assert [len(samples) for samples in series.samples] == [1, 1, 1]


@pytest.mark.parametrize("set_ahead_s", [-7200, 5 * 86_400])
def test_a_clock_that_is_set_does_not_change_a_rate(set_ahead_s: int) -> None:
    clock = ManualClock()
    statistics = Statistics(clock)
    for second in range(120):
        if second == 60:
            clock.set_ahead(set_ahead_s)
        statistics.put("Orders", 0, 5, 500)
        clock.advance(1)
        statistics.sample()
    found = statistics.data("TOPIC_PUT_NUMS", "Orders")
    assert found is not None
    assert found.stats_minute is not None
    assert found.stats_minute.tps == pytest.approx(5)
