"""Figures of a broker as Apache's exporter for Prometheus reads them: it gives up at the first it misses."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.support.broker_cluster import Bench

from pyromq.protocol.frame import HeaderForm
from pyromq.protocol.requests.inspection import GetBrokerRuntimeInfo

WHOLE_NUMBERS = (
    "bootTimestamp",
    "brokerVersion",
    "commitLogMaxOffset",
    "commitLogMinOffset",
    "dispatchBehindBytes",
    "dispatchMaxBuffer",
    "earliestMessageTimeStamp",
    "getMessageEntireTimeMax",
    "msgGetTotalTodayMorning",
    "msgGetTotalTodayNow",
    "msgGetTotalYesterdayMorning",
    "msgPutTotalTodayMorning",
    "msgPutTotalTodayNow",
    "msgPutTotalYesterdayMorning",
    "pageCacheLockTimeMills",
    "pullThreadPoolQueueCapacity",
    "pullThreadPoolQueueHeadWaitTimeMills",
    "pullThreadPoolQueueSize",
    "putMessageEntireTimeMax",
    "putMessageSizeTotal",
    "putMessageTimesTotal",
    "queryThreadPoolQueueCapacity",
    "queryThreadPoolQueueHeadWaitTimeMills",
    "queryThreadPoolQueueSize",
    "remainTransientStoreBufferNumbs",
    "sendThreadPoolQueueCapacity",
    "sendThreadPoolQueueHeadWaitTimeMills",
    "sendThreadPoolQueueSize",
    "startAcceptSendRequestTimeStamp",
)
NUMBERS = (
    "commitLogDiskRatio",
    "consumeQueueDiskRatio",
    "putLatency99",
    "putLatency999",
    "putMessageAverageSize",
)
RATES = ("getFoundTps", "getMissTps", "getTotalTps", "getTransferedTps", "putTps")


@pytest.fixture(params=HeaderForm, ids=lambda form: form.name)
async def figures(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[dict[str, str]]:
    async with Bench(tmp_path, request.param) as bench:
        await bench.client.send(b"x", properties={"DELAY": "1"})
        yield (await bench.client.call(GetBrokerRuntimeInfo())).body.table


async def test_every_figure_is_there_and_can_be_read(figures: dict[str, str]) -> None:
    assert {key: int(figures[key]) for key in WHOLE_NUMBERS}
    assert {key: float(figures[key]) for key in NUMBERS}
    for key in RATES:
        assert len([float(part) for part in figures[key].split(" ")]) == 3, key


async def test_figures_that_are_phrases_have_their_words_where_they_are_looked_for(
    figures: dict[str, str],
) -> None:
    words = figures["commitLogDirCapacity"].split(" ")
    assert (float(words[2]), float(words[6])) > (0, 0)
    assert (words[3][-3:], words[7][-3:]) == ("iB,", "iB.")
    count, unit = figures["remainHowManyDataToFlush"].split(" ")
    assert float(count) >= 0
    assert unit.endswith("B")
    times = dict(part.split(":") for part in figures["putMessageDistributeTime"].split(" "))
    assert len(times) == 13
    assert all(int(count) >= 0 for count in times.values())
    assert figures["runtime"].startswith("[ 0 days, ")
