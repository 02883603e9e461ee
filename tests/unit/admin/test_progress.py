"""Rates and histories of progress, without a cluster."""

from pyromq.admin.progress import ConsumeProgress, ProgressRates, QueueProgress
from pyromq.admin.rates import GaugeHistories
from pyromq.protocol.body import MessageQueue

QUEUE, OTHER = MessageQueue("t", "a", 0), MessageQueue("t", "a", 1)


def progress(**offsets: tuple[int, int]) -> ConsumeProgress:
    queues = {"queue": QUEUE, "other": OTHER}
    return ConsumeProgress(
        [
            QueueProgress("g", queues[name], broker_offset, consumer_offset, 0, 0)
            for name, (broker_offset, consumer_offset) in offsets.items()
        ],
        0.0,
        0,
        0,
    )


def test_messages_in_and_out_of_a_queue_have_rates_after_two_readings() -> None:
    rates = ProgressRates()
    rates.read(progress(queue=(100, 40)), 10.0)
    assert (rates.arriving(QUEUE), rates.leaving(QUEUE)) == (None, None)
    rates.read(progress(queue=(120, 80)), 12.0)
    assert (rates.arriving(QUEUE), rates.leaving(QUEUE)) == (10.0, 20.0)
    rates.read(progress(queue=(120, 90)), 13.0)
    assert rates.leaving_history(QUEUE) == [20.0, 10.0]


def test_a_queue_that_is_gone_has_no_rates() -> None:
    rates = ProgressRates()
    rates.read(progress(queue=(1, 1), other=(1, 1)), 1.0)
    rates.read(progress(queue=(2, 2)), 2.0)
    assert rates.leaving_history(OTHER) == []


def test_a_history_has_the_latest_values_of_gauges_that_are_still_there() -> None:
    lag: GaugeHistories[str] = GaugeHistories(remembered=2)
    for value in (5.0, 3.0, 1.0):
        lag.read({"shop": value, "office": value})
    assert lag.history("shop") == [3.0, 1.0]
    lag.read({"shop": 0.0})
    assert (lag.history("shop"), lag.history("office")) == ([1.0, 0.0], [])
