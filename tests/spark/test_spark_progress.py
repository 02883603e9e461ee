"""How far a stream goes next, without Spark: a cluster that says what it is told, a clock that is moved."""

import json
from collections.abc import Callable, Iterable, Mapping
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from pyromq.clock import ManualClock
from pyromq.errors import ConfigError, ConnectFailed
from pyromq.spark.cluster import SparkCluster
from pyromq.spark.fetch import DataLoss
from pyromq.spark.lag import lag_of
from pyromq.spark.offsets import FIRST, Seen, ends_of, seen_of, spans_between
from pyromq.spark.options import Access, Selection, read_options
from pyromq.spark.progress import IDLE_WAIT_S, StreamProgress
from pyromq.spark.queues import Queue

if TYPE_CHECKING:
    from tests.spark.conftest import Topics

A0, A1, A2 = (Queue("Orders", "a", number) for number in range(3))
B0, B1 = Queue("Orders", "b", 0), Queue("Orders", "b", 1)
EVERYTHING = ReadAllAvailable()


class ToldCluster(SparkCluster):
    """Its queues are what a test says they are."""

    def __init__(self) -> None:
        super().__init__(Access(("127.0.0.1:1",)))
        self.first: dict[Queue, int] = {A0: 0, A1: 0}
        self.last: dict[Queue, int] = {A0: 0, A1: 0}
        self.born_ms: dict[Queue, int] = {}
        self.away: set[str] = set()
        self.gone: set[Queue] = set()
        self.name_servers_away = False
        self.questions = 0

    def queues(self, selection: Selection, *, patient: bool = True) -> list[Queue]:
        if self.name_servers_away:
            raise ConnectFailed("no name server")
        return sorted(self.last)

    def latest(self, queues: Iterable[Queue]) -> dict[Queue, int]:
        self.questions += 1
        return {queue: self.last[queue] for queue in queues}

    def latest_of_reachable(self, queues: Iterable[Queue]) -> dict[Queue, int]:
        return self.latest([queue for queue in queues if queue.broker not in self.away])

    def deleted(self, queues: Iterable[Queue]) -> list[Queue]:
        return [queue for queue in queues if queue in self.gone]

    def earliest(self, queues: Iterable[Queue]) -> dict[Queue, int]:
        return {queue: self.first[queue] for queue in queues}

    def at_time(self, timestamps: Mapping[Queue, int]) -> dict[Queue, int | None]:
        found = {q: max(self.first[q], time - self.born_ms.get(q, 0)) for q, time in timestamps.items()}
        return {queue: offset if offset < self.last[queue] else None for queue, offset in found.items()}

    def committed(self, group: str, queues: Iterable[Queue]) -> dict[Queue, int]:
        return {queue: 20 for queue in queues if queue.queue_id == 0}

    def record_bytes(self, queue: Queue, offset: int) -> int:
        return 100

    def stored_ms(self, offsets: Mapping[Queue, int], *, patient: bool = True) -> dict[Queue, int]:
        """Messages are stored one by one each millisecond, from the birth of their queue on."""
        return {
            queue: self.born_ms.get(queue, 0) + offset
            for queue, offset in offsets.items()
            if self.first.get(queue, 0) <= offset < self.last.get(queue, 0)
        }


class Stream:
    def __init__(self, **options: str) -> None:
        self.cluster, self.clock = ToldCluster(), ManualClock()
        base = {"namesrv": "127.0.0.1:1", "subscribe": "Orders", "fetchOffset.numRetries": "1"}
        named = {name.replace("__", "."): value for name, value in options.items()}
        self.options = read_options(base | named, streaming=True)
        self.progress = self.restarted()

    def restarted(self) -> StreamProgress:
        self.progress = StreamProgress(self.options, self.cluster, self.clock, self.clock.advance)
        return self.progress

    def next(self, start: dict[str, Any], limit: Any = None) -> dict[str, Any]:
        # Spark journals offsets as text.
        told: dict[str, Any] = json.loads(json.dumps(start))
        return self.progress.latest(told, limit or self.progress.default_limit())


def sizes(start: dict[str, Any], end: dict[str, Any]) -> dict[Queue, int]:
    return {span.queue: span.size for span in spans_between(start, end) if span.size}


@pytest.mark.parametrize("restart", [False, True], ids=["asked twice", "restarted"])
def test_trap_latest_means_the_moment_of_the_first_decision(restart: bool) -> None:
    """Spark asks for the first offset twice, and again after a restart inside of batch 0."""
    stream = Stream(startingOffsets="latest")
    stream.cluster.last = {A0: 100, A1: 7}
    end = stream.next(FIRST)
    stream.cluster.last = {A0: 150, A1: 7}
    if restart:
        stream.restarted()  # batch 0 is journalled: Spark plans it again from the same end
    else:
        assert stream.next(FIRST)["from"] == end["from"]
    assert sizes(FIRST, end) == {}
    assert sizes(end, stream.next(end)) == {A0: 50}


def test_trap_equal_positions_are_equal_text() -> None:
    """Spark compares offsets as text: another order of keys would be a batch without end."""
    stream = Stream(startingOffsets="earliest")
    stream.cluster.last = {B0: 1, A1: 2, A0: 3}
    stream.cluster.first = dict.fromkeys(stream.cluster.last, 0)
    one = json.dumps(stream.next(FIRST))
    other = Stream(startingOffsets="earliest")
    other.cluster.last = {A0: 3, B0: 1, A1: 2}
    other.cluster.first = dict.fromkeys(other.cluster.last, 0)
    assert json.dumps(other.next(FIRST)) == one


def test_trap_an_idle_query_waits_inside_the_question() -> None:
    """Spark asks again every few milliseconds otherwise."""
    stream = Stream(startingOffsets="earliest")
    end = stream.next(FIRST)
    before = stream.clock.monotonic()
    assert stream.next(end) == end
    assert stream.clock.monotonic() - before >= IDLE_WAIT_S


def test_trap_progress_is_published_when_the_next_batch_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark's own commit never comes for the last batch."""
    from pyromq.spark.group_progress import GroupProgress

    published: list[dict[Queue, int]] = []
    record: Callable[..., None] = lambda self, positions: published.append(dict(positions))  # noqa: E731
    monkeypatch.setattr(GroupProgress, "publish", record)
    stream = Stream(startingOffsets="earliest", consumerGroup="lake", commitOffsets="true")
    stream.cluster.last = {A0: 5, A1: 0}
    stream.progress.fix_target()
    end = stream.next(FIRST)
    assert stream.next(end) == end
    assert published[-1] == {A0: 5, A1: 0}


def test_trap_everything_available_has_no_other_limits() -> None:
    """A trigger of `once` passes no limit of ours, and takes all in one batch."""
    stream = Stream(startingOffsets="earliest", maxOffsetsPerTrigger="10", minOffsetsPerTrigger="5")
    stream.cluster.last = {A0: 3, A1: 100}
    first = stream.next(FIRST, EVERYTHING)
    assert sizes(FIRST, first) == {A0: 3, A1: 100}


def test_new_queues_and_new_brokers_are_read_from_their_beginning() -> None:
    stream = Stream(startingOffsets="latest")
    stream.cluster.last = {A0: 10, A1: 10}
    end = stream.next(FIRST)
    stream.clock.advance(2)
    stream.cluster.last |= {B0: 40, A2: 3}
    stream.cluster.first |= {B0: 15, A2: 0}
    stream.cluster.born_ms |= {B0: stream.clock.now_ms(), A2: 0}
    later = stream.next(end)
    assert sizes(end, later) == {A2: 3, B0: 25}
    assert later["from"] == {"Orders": {"a": [None, None, 0], "b": [15]}}


@pytest.mark.parametrize("restart", [False, True])
def test_what_a_broker_had_before_the_start_is_not_new_when_it_comes_back(restart: bool) -> None:
    stream = Stream(startingOffsets="latest")
    started_ms = stream.clock.now_ms()
    stream.cluster.last = {A0: 10}
    end = stream.next(FIRST)
    stream.clock.advance(2)
    stream.cluster.last |= {A0: 11}
    end = stream.next(end)
    if restart:
        stream.restarted()
    stream.clock.advance(2)
    # A message each millisecond, the last of them 30 ms behind the start.
    stream.cluster.last |= {B0: 1_000_030, B1: 5}
    stream.cluster.first |= {B0: 0, B1: 0}
    stream.cluster.born_ms |= {B0: started_ms - 1_000_000, B1: started_ms - 1_000_000}
    later = stream.next(end)
    assert sizes(end, later) == {B0: 30}
    assert later["from"] == {"Orders": {"b": [1_000_000, 5]}}


def test_a_broker_that_was_down_at_the_start_is_read_from_that_time_on(topics_of_two: "Topics") -> None:
    topics = topics_of_two
    for broker in (0, 1):
        topics.create("Orders", queues=1, broker=broker)
        topics.fill("Orders", 0, [b"old"] * 100, broker=broker)
    topics.running.stop_broker(1)
    cluster = SparkCluster(topics.access)
    progress = StreamProgress(read_options(topics.options("Orders"), streaming=True), cluster)
    end = progress.latest(FIRST, EVERYTHING)
    topics.running.start_broker(1)
    topics.fill("Orders", 0, [b"new"] * 3, broker=1)
    later = end
    while later == end:
        later = progress.latest(end, EVERYTHING)
    cluster.close()
    assert [(span.start, span.end) for span in spans_between(end, later) if span.size] == [(100, 103)]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"startingOffsets": "earliest"}, [0, 0]),
        ({"startingOffsets": "group", "consumerGroup": "g"}, [20, 0]),
        ({"startingTimestamp": "7"}, [7, 7]),
    ],
)
def test_a_broker_that_was_away_at_the_start_begins_where_the_others_did(
    options: dict[str, str], expected: list[int]
) -> None:
    stream = Stream(**options)
    stream.cluster.last = {A0: 50}
    end = stream.next(FIRST)
    stream.clock.advance(2)
    stream.cluster.last |= {B0: 40, B1: 40}
    stream.cluster.first |= {B0: 0, B1: 0}
    assert stream.next(end)["from"] == {"Orders": {"b": expected}}


def test_a_new_queue_without_messages_is_no_reason_for_a_batch() -> None:
    stream = Stream(startingOffsets="latest")
    end = stream.next(FIRST)
    stream.clock.advance(2)
    stream.cluster.last |= {B0: 0}
    stream.cluster.first |= {B0: 0}
    assert stream.next(end) == end


def test_queues_of_a_broker_that_is_away_wait_while_others_go_on() -> None:
    stream = Stream(startingOffsets="earliest")
    stream.cluster.last = {A0: 10, B0: 10}
    stream.cluster.first = {A0: 0, B0: 0}
    end = stream.next(FIRST)
    stream.cluster.away = {"b"}
    stream.cluster.last = {A0: 15, B0: 10}
    without = stream.next(end)
    assert sizes(end, without) == {A0: 5}
    stream.cluster.away = set()
    stream.cluster.last = {A0: 15, B0: 30}
    assert sizes(without, stream.next(without)) == {B0: 20}


def test_the_lag_counts_queues_that_cannot_be_reached_and_names_them() -> None:
    stream = Stream(startingOffsets="earliest", maxOffsetsPerTrigger="10")
    stream.cluster.last = {A0: 100, B0: 100}
    stream.cluster.first = {A0: 0, B0: 0}
    end = stream.next(FIRST)
    report = {"endOffset": end, "latestOffset": stream.progress.newest()}
    lag = lag_of(report)
    assert lag is not None
    assert (lag.total, lag.unreachable) == (190, ())
    stream.cluster.away = {"b"}
    stream.cluster.last = {A0: 101, B0: 200}
    for _ in range(2):
        lag = lag_of(report | {"latestOffset": stream.progress.newest()})
        assert lag is not None
        assert (lag.total, lag.unreachable) == (191, ("Orders@b:0",))
        # A broker that has been away for long is in no route.
        stream.clock.advance(2)
        stream.cluster.last = {A0: 101}
    stream.restarted().latest(end, ReadMaxRows(10))
    lag = lag_of(report | {"latestOffset": stream.progress.newest()})
    assert lag is not None
    assert lag.unreachable == ("Orders@b:0",)


@pytest.mark.parametrize("fails", [True, False])
def test_a_topic_that_is_deleted_under_an_idle_query_is_noticed(fails: bool, topics: "Topics") -> None:
    topics.create("Orders", queues=1)
    topics.create("Payments", queues=1)
    topics.fill("Orders", 0, [b"x"] * 3)
    cluster, clock = SparkCluster(topics.access), ManualClock()
    given = topics.options("Orders,Payments", startingOffsets="earliest", failOnDataLoss=str(fails).lower())
    progress = StreamProgress(read_options(given, streaming=True), cluster, clock, clock.advance)
    end = progress.latest(FIRST, EVERYTHING)
    assert progress.latest(end, EVERYTHING) == end
    topics.delete("Orders")
    clock.advance(2)
    if fails:
        with pytest.raises(DataLoss, match=r"the topic of Orders@.*:0 was deleted"):
            progress.latest(end, EVERYTHING)
    else:
        assert progress.latest(end, EVERYTHING) == end
        assert "away" not in progress.newest(), "a topic that is gone is not unreachable"
        topics.create("Orders", queues=1)
        topics.fill("Orders", 0, [b"x"] * 4)
        clock.advance(2)
        assert sum(sizes(end, progress.latest(end, EVERYTHING)).values()) == 4
    cluster.close()


def test_a_queue_taken_from_the_route_stays_where_it_is_until_it_comes_back() -> None:
    stream = Stream(startingOffsets="earliest")
    stream.cluster.last = {A0: 10, B0: 10}
    stream.cluster.first = {A0: 0, B0: 0}
    end = stream.next(FIRST)
    stream.clock.advance(2)
    stream.cluster.last = {A0: 15}
    without = stream.next(end)
    assert ends_of(without) == {A0: 15, B0: 10}
    stream.clock.advance(2)
    stream.cluster.last = {A0: 15, B0: 12}
    assert sizes(without, stream.next(without)) == {B0: 2}


def test_name_servers_may_be_away_while_brokers_are_read() -> None:
    stream = Stream(startingOffsets="earliest")
    end = stream.next(FIRST)
    stream.cluster.name_servers_away = True
    stream.clock.advance(5)
    stream.cluster.last = {A0: 3, A1: 0}
    assert sizes(end, stream.next(end)) == {A0: 3}


def test_few_messages_wait_until_there_are_enough() -> None:
    stream = Stream(startingOffsets="earliest", minOffsetsPerTrigger="10", maxTriggerDelay="1h")
    end = stream.next(FIRST)
    stream.cluster.last = {A0: 6, A1: 3}
    assert stream.next(end) == end
    stream.cluster.last = {A0: 6, A1: 4}
    assert sizes(end, stream.next(end)) == {A0: 6, A1: 4}


@pytest.mark.parametrize(("delay", "wait_s"), [("20m", 1201), (None, 901)])
def test_few_messages_wait_no_longer_than_the_delay(delay: str | None, wait_s: float) -> None:
    given = {"maxTriggerDelay": delay} if delay is not None else {}
    stream = Stream(startingOffsets="earliest", minOffsetsPerTrigger="10", **given)
    end = stream.next(FIRST)
    stream.cluster.last = {A0: 1, A1: 0}
    stream.clock.advance(wait_s - 60)
    assert stream.next(end) == end
    stream.clock.advance(60)
    assert sizes(end, stream.next(end)) == {A0: 1}


def test_a_batch_takes_no_more_than_its_limit_and_shares_it_between_queues() -> None:
    stream = Stream(startingOffsets="earliest", maxOffsetsPerTrigger="30", minOffsetsPerTrigger="5")
    stream.cluster.last = {A0: 80, A1: 20}
    end = stream.next(FIRST)
    assert sizes(FIRST, end) == {A0: 24, A1: 6}


def test_bytes_limit_a_batch_beside_the_number_of_messages() -> None:
    stream = Stream(startingOffsets="earliest", maxBytesPerTrigger="1k", maxOffsetsPerTrigger="50")
    stream.cluster.last = {A0: 1000, A1: 0}
    assert sizes(FIRST, stream.next(FIRST)) == {A0: 10}


def test_available_now_ends_where_queues_ended_at_its_start() -> None:
    stream = Stream(startingOffsets="earliest", maxOffsetsPerTrigger="15", minOffsetsPerTrigger="10")
    stream.cluster.last = {A0: 20, A1: 0}
    stream.progress.fix_target()
    stream.cluster.last = {A0: 99, A1: 99}
    first = stream.next(FIRST)
    second = stream.next(first)
    assert [sizes(FIRST, first), sizes(first, second)] == [{A0: 15}, {A0: 5}]
    assert stream.next(second) == second


@pytest.mark.parametrize("fails", [True, False])
def test_a_queue_that_ends_before_its_position_has_lost_messages(fails: bool) -> None:
    stream = Stream(startingOffsets="earliest", failOnDataLoss=str(fails).lower())
    stream.cluster.last = {A0: 100, A1: 0}
    end = stream.next(FIRST)
    stream.cluster.last = {A0: 20, A1: 0}
    if fails:
        with pytest.raises(DataLoss, match="Orders@a:0 ends at 20 now and was read up to 100"):
            stream.next(end)
    else:
        assert sizes(end, stream.next(end)) == {A0: 20}


def test_queues_that_lost_their_end_are_waited_for_together() -> None:
    stream = Stream(startingOffsets="earliest", failOnDataLoss="false", fetchOffset__retryIntervalMs="1000")
    stream.cluster.first = {Queue("Orders", "a", number): 0 for number in range(16)}
    stream.cluster.last = dict.fromkeys(stream.cluster.first, 100)
    end = stream.next(FIRST)
    stream.cluster.last = dict.fromkeys(stream.cluster.first, 0)
    before = stream.clock.monotonic()
    assert set(ends_of(stream.next(end)).values()) == {0}
    assert stream.clock.monotonic() - before < 2


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"a:0": 5}, "an entry for every queue; Orders@a:1 are missing"),
        ({"a:0": 5, "a:1": 0, "a:2": 7}, "queues that are read; Orders@a:2 are not"),
    ],
)
def test_starts_that_are_not_those_of_the_queues_are_named(given: dict[str, int], expected: str) -> None:
    text = json.dumps({"Orders": given})
    with pytest.raises(ConfigError) as caught:
        Stream(startingOffsets=text).next(FIRST)
    assert str(caught.value) == f"startingOffsets={text}: expected {expected}"


@pytest.mark.parametrize("fails", [True, False])
def test_a_start_behind_the_end_of_a_queue_is_named_and_nothing_before_it_is_read(fails: bool) -> None:
    given = json.dumps({"Orders": {"a:0": 50, "a:1": 0}})
    stream = Stream(startingOffsets=given, failOnDataLoss=str(fails).lower())
    stream.cluster.last = {A0: 20, A1: 3}
    if fails:
        said = "Orders@a:0 ends at 20 now, before the start at 50 that startingOffsets gives"
        with pytest.raises(DataLoss, match=said):
            stream.next(FIRST)
        return
    end = stream.next(FIRST)
    assert sizes(FIRST, end) == {A1: 3}
    stream.cluster.last = {A0: 25, A1: 3}
    assert sizes(end, stream.next(end)) == {A0: 5}


@pytest.mark.parametrize("fails", [True, False])
def test_a_topic_made_anew_is_noticed_although_it_is_longer_than_the_old_one(fails: bool) -> None:
    stream = Stream(startingOffsets="earliest", failOnDataLoss=str(fails).lower(), maxOffsetsPerTrigger="100")
    stream.cluster.last = {A0: 60, A1: 40}
    end = stream.next(FIRST)
    stream.restarted()
    stream.cluster.born_ms[A0] = 5_000
    stream.cluster.last = {A0: 90, A1: 50}
    if fails:
        with pytest.raises(DataLoss, match=r"of Orders@a:0 .*created again: .* from 60 on was not read"):
            stream.next(end)
        return
    after = stream.next(end)
    assert sizes(end, after) == {A0: 90, A1: 10}
    assert after["from"] == {"Orders": {"a": [0]}}
    stream.cluster.last = {A0: 95, A1: 50}
    assert sizes(after, stream.next(after)) == {A0: 5}


def test_a_topic_made_anew_may_end_where_the_old_one_ended() -> None:
    stream = Stream(startingOffsets="earliest", failOnDataLoss="false", maxOffsetsPerTrigger="60")
    stream.cluster.last = {A0: 60, A1: 0}
    end = stream.next(FIRST)
    stream.cluster.born_ms[A0], stream.cluster.last = 5_000, {A0: 90, A1: 0}
    after = stream.next(end)
    assert sizes(end, after) == {A0: 60}
    assert sizes(after, stream.next(after)) == {A0: 30}


def test_a_topic_made_anew_is_noticed_if_nothing_of_the_old_one_was_read() -> None:
    stream = Stream(startingOffsets="latest")
    stream.cluster.last = {A0: 60, A1: 0}
    end = stream.next(FIRST)
    stream.cluster.born_ms[A0], stream.cluster.last = 5_000, {A0: 70, A1: 0}
    with pytest.raises(DataLoss, match="created again"):
        stream.next(end)


def test_messages_that_were_deleted_by_age_do_not_make_a_queue_a_new_one() -> None:
    stream = Stream(startingOffsets="earliest")
    stream.cluster.last = {A0: 60, A1: 0}
    end = stream.next(FIRST)
    stream.cluster.first, stream.cluster.last = {A0: 60, A1: 0}, {A0: 70, A1: 0}
    later = stream.next(end)
    assert sizes(end, later) == {A0: 10}
    stream.cluster.born_ms[A0], stream.cluster.first, stream.cluster.last = 9, {A0: 0, A1: 0}, {A0: 99, A1: 0}
    with pytest.raises(DataLoss, match="created again"):
        stream.next(later)


def test_a_checkpoint_from_before_queues_were_told_apart_is_continued() -> None:
    stream = Stream()
    stream.cluster.last = {A0: 60, A1: 0}
    old = {"v": 1, "q": {"Orders": {"a:0": 50, "a:1": 0}}}
    end = stream.next(old)
    assert sizes(old, end) == {A0: 10}
    assert seen_of(end) == {A0: Seen(59, 59)}


def test_a_checkpoint_of_the_first_version_is_continued_with_what_it_has_seen() -> None:
    stream = Stream()
    stream.cluster.last = {A0: 50, A1: 7}
    old = {"v": 1, "since": 5, "q": {"Orders": {"a:0": 50, "a:1": 7}}, "seen": {"Orders": {"a:0": [40, 40]}}}
    assert stream.next(old) == old  # nothing is new: no batch, only because the form is
    assert seen_of(old) == {A0: Seen(40, 40)}
    stream.cluster.last = {A0: 50, A1: 9}
    end = stream.next(old)
    assert (end["v"], end["since"], end["q"]) == (2, 5, {"Orders": {"a": [50, 9]}})
    assert sizes(old, end) == {A1: 2}
    assert seen_of(end) == {A0: Seen(40, 40), A1: Seen(8, 8)}
    stream.cluster.born_ms[A0], stream.cluster.last = 5_000, {A0: 90, A1: 9}
    with pytest.raises(DataLoss, match="created again"):
        stream.next(old)


def test_offsets_of_a_thousand_queues_are_small() -> None:
    stream = Stream(startingOffsets="earliest")
    chance = Random(1)
    queues = [Queue("Orders", "broker-a", number) for number in range(1000)]
    stream.cluster.first = dict.fromkeys(queues, 0)
    stream.cluster.last = {queue: chance.randrange(1_000_000, 9_000_000) for queue in queues}
    stream.cluster.born_ms = {queue: 1_700_000_000_000 + chance.randrange(600_000) for queue in queues}
    busy = stream.next(FIRST)
    assert len(json.dumps(busy["q"])) < 9_100
    assert len(json.dumps(busy["seen"])) < 9_100
    stream.cluster.last = {queue: 22 if queue.queue_id < 5 else 0 for queue in queues}
    stream.restarted()
    idle = stream.next(FIRST)
    assert len(json.dumps(idle)) < 300


def test_the_limit_of_a_trigger_is_told_to_spark() -> None:
    assert isinstance(Stream().progress.default_limit(), ReadAllAvailable)
    limit = Stream(maxOffsetsPerTrigger="7").progress.default_limit()
    assert isinstance(limit, ReadMaxRows)
    assert limit.max_rows == 7


def test_an_offset_of_another_version_is_refused() -> None:
    with pytest.raises(ConfigError, match="an offset of version 3: expected one that this release"):
        spans_between(FIRST, {"v": 3, "q": {}})
    with pytest.raises(ConfigError, match="an offset of version 3"):
        Stream().next({"v": 3, "q": {}})
