"""What one broker told: figures that come as changes, and the tables that Apache's brokers tell."""

from pyromq.admin.cluster import BrokerMember
from pyromq.console.watch.broker_part import BrokerPart, BrokerQueueLag
from pyromq.console.watch.values import BrokerKind
from pyromq.protocol.requests.inspection import Figures
from pyromq.protocol.requests.topics import TopicConfig

MEMBER = BrokerMember("c", "a", 0, "127.0.0.1:10911")


def part_with(*answers: Figures) -> BrokerPart:
    part = BrokerPart(MEMBER)
    for number, figures in enumerate(answers):
        part.take_figures(f"boot:{number}", figures, 100.0 + 5 * number)
    return part


def everything(at: int = 1000, stored: int = 100, read: int = 50) -> Figures:
    return Figures(
        at=at,
        has_all=True,
        topics={"t": [4, 4, 6, 0], "u": [1, 1, 4, 1]},
        types={"t": "FIFO"},
        queues={"t": [10, 110, 0, 0]},
        stored={"t": [stored, 5000]},
        lags={"t@g": [60, 900, read, 0]},
        groups={"g": [2, 0]},
    )


def test_the_first_answer_tells_everything_but_rates() -> None:
    part = part_with(everything())
    assert part.source is BrokerKind.PYROMQ
    assert part.topics["t"].shape.kind == "FIFO"
    assert part.topics["u"].shape.kind == "UNSPECIFIED"
    assert (part.topics["t"].held, part.topics["t"].in_per_s) == (100, None)
    pair = part.pairs["t", "g"]
    assert (pair.lag, pair.oldest_ms, pair.out_per_s, pair.lost) == (60, 900, None, 0)
    assert part.groups == {"g": (2, False)}


def test_rates_are_differences_by_the_clock_of_the_broker() -> None:
    part = part_with(
        everything(), Figures(at=3000, stored={"t": [300, 9000]}, lags={"t@g": [160, 900, 150, 0]})
    )
    assert part.topics["t"].in_per_s == 100.0
    assert part.topics["u"].in_per_s == 0.0
    assert part.pairs["t", "g"].out_per_s == 50.0


def test_entries_that_are_not_told_again_stand_still() -> None:
    moving = Figures(at=3000, stored={"t": [300, 9000]}, lags={"t@g": [160, 900, 150, 0]})
    part = part_with(everything(), moving, Figures(at=8000))
    assert part.topics["t"].in_per_s == 0.0
    assert part.pairs["t", "g"].out_per_s == 0.0
    assert part.pairs["t", "g"].lag == 160
    assert part.pairs["t", "g"].moved_at == 105.0


def test_empty_entries_are_gone() -> None:
    part = part_with(everything(), Figures(at=2000, topics={"t": []}, lags={"t@g": []}, groups={"g": []}))
    assert set(part.topics) == {"u"}
    assert not part.pairs
    assert not part.groups


def test_a_broker_that_started_again_has_no_rate_until_it_is_asked_again() -> None:
    again = everything(at=9000, stored=10, read=5)
    part = part_with(everything(), again)
    assert part.topics["t"].in_per_s is None
    part.take_figures("x:2", Figures(at=10_000, stored={"t": [20, 1]}), 120.0)
    assert part.topics["t"].in_per_s == 10.0


def test_all_figures_replace_what_was_known() -> None:
    part = part_with(everything(), Figures(at=2000, has_all=True, topics={"v": [1, 1, 6, 0]}))
    assert set(part.topics) == {"v"}
    assert not part.pairs
    assert not part.groups


def test_equal_shapes_are_one_object() -> None:
    part = part_with(Figures(at=1, has_all=True, topics={str(number): [8, 8, 6, 0] for number in range(100)}))
    assert len({id(each.shape) for each in part.topics.values()}) == 1


def config(name: str, **attributes: str) -> TopicConfig:
    return TopicConfig(
        topic_name=name,
        read_queue_nums=2,
        write_queue_nums=2,
        attributes={key.replace("_", "."): value for key, value in attributes.items()},
    )


def apache_part() -> BrokerPart:
    part = BrokerPart(MEMBER)
    part.take_topics({"t": config("t", message_type="DELAY"), "quiet": config("quiet")})
    part.take_offsets({("t", "g"): 100}, 100.0)
    part.take_lags(
        [BrokerQueueLag("t", "g", 0, 90, 60, 5000), BrokerQueueLag("t", "g", 1, 40, 40, 9000)],
        ["g", "h"],
        100.0,
    )
    return part


def test_apaches_tables_give_lag_and_the_time_of_the_last_message_read() -> None:
    part = apache_part()
    pair = part.pairs["t", "g"]
    assert (part.source, part.topics["t"].shape.kind) == (BrokerKind.APACHE, "DELAY")
    assert (pair.lag, pair.oldest_ms, pair.lost) == (30, 5000, None)
    assert part.groups == {"g": (None, None), "h": (None, None)}


def test_apaches_tables_give_rates_from_the_second_time_on() -> None:
    part = apache_part()
    assert (part.topics["t"].in_per_s, part.pairs["t", "g"].out_per_s) == (None, None)
    part.take_offsets({("t", "g"): 130}, 115.0)
    part.take_lags(
        [BrokerQueueLag("t", "g", 0, 690, 90, 5000), BrokerQueueLag("t", "g", 1, 40, 40, 9000)], ["g"], 160.0
    )
    assert part.topics["t"].in_per_s == 10.0
    assert part.pairs["t", "g"].out_per_s == 2.0


def test_a_topic_that_nobody_reads_has_no_rate_at_apaches_brokers() -> None:
    part = apache_part()
    assert part.topics["quiet"].in_per_s is None
    assert part.topics["quiet"].held is None
