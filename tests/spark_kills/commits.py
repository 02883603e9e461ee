"""Brokers die while Spark commits to a transactional topic, masters are taken over, queries are stopped.

    python -m tests.spark_kills.commits [--kills N] [--minutes M] [--seed S] [--each K] [--directory D]

One Spark session runs all queries. A round has a cluster of its own, two brokers or a master and its replica,
and kills `--each` times, mostly between the decision about a batch and its end. Each time the query runs to
its end afterwards, and each row must be in the topic once. A failure ends the campaign.
"""

import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Final, Literal

from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from tests.spark_kills.changes import Changes
from tests.spark_kills.rounds import is_starved
from tests.spark_kills.topics import Topics, topics_of
from tests.support.scratch import IN_MEMORY
from tests.support.spark_session import small_session
from tools.rounds import Rounds, options, say

from pyromq.spark.batch_journal import DIRECTORY
from pyromq.testing import RunningCluster, cluster

Way = Literal["back at once", "back when the query has failed", "stopped while it is away", "taken over"]

BATCH: Final = 200
ROWS: Final = 6 * BATCH
"""How many each query finds that are new."""
BETWEEN: Final = "between decision and end"
_LATER_S: Final = 0.02
_END_S: Final = 300
_PAUSE: Final = threading.Event()
_IMPATIENT: Final = {"fetchOffset.numRetries": "3", "fetchOffset.retryIntervalMs": "50"}
"""So that a query fails while a broker is away, or ends soon when it is stopped."""


@dataclass(frozen=True, slots=True)
class Victims:
    """The brokers of a cluster: two, or a master and the replica that takes over."""

    running: RunningCluster
    is_group: bool

    @property
    def masters(self) -> list[str]:
        addresses = self.running.broker_addresses
        return [addresses[self.running.master]] if self.is_group else addresses

    def kill(self, chance: Random) -> int:
        if self.is_group:
            return self.running.kill_master()
        victim = chance.choice((0, 1))
        self.running.kill_broker(victim)
        return victim

    def way(self, chance: Random) -> Way:
        if self.is_group:
            return chance.choice(("taken over", "taken over", "stopped while it is away"))
        return chance.choice(("back at once", "back when the query has failed", "stopped while it is away"))


class Query:
    """Numbers from one topic to another, in transactions."""

    def __init__(self, spark: SparkSession, victims: Victims, directory: Path, name: str) -> None:
        self._spark = spark
        self._victims = victims
        self._namesrv = victims.running.namesrv
        self._checkpoint = directory / f"checkpoint-{name}"
        (self._checkpoint / DIRECTORY).mkdir(parents=True)
        self._source, self._target = f"In-{name}", f"Out-{name}"
        self._total = 0
        for address in victims.masters:
            with topics_of(self._namesrv, address) as topics:
                topics.create(self._target)
        with self._topics() as topics:
            topics.create(self._source)

    @contextmanager
    def _topics(self) -> Iterator[Topics]:
        with topics_of(self._namesrv, self._victims.masters[0]) as topics:
            yield topics

    def more(self) -> None:
        with self._topics() as topics:
            topics.fill(self._source, map(str, range(self._total, self._total + ROWS)))
        self._total += ROWS

    def start(self, **options: str) -> StreamingQuery:
        server = {"namesrv": self._namesrv}
        reads = server | {"subscribe": self._source, "startingOffsets": "earliest"}
        reads["maxOffsetsPerTrigger"] = str(BATCH)
        rows = self._spark.readStream.format("rocketmq").options(**reads).load().select("value")
        writes = server | {"topic": self._target, "mode": "transactional"} | options
        writer = rows.writeStream.format("rocketmq").options(**writes)
        writer = writer.option("checkpointLocation", str(self._checkpoint))
        return writer.trigger(availableNow=True).start()

    def changes(self) -> Changes:
        return Changes(self._checkpoint / DIRECTORY)

    def is_between(self) -> bool:
        """Whether the last batch is decided and not ended."""
        names = {path.name for path in (self._checkpoint / DIRECTORY).iterdir()}
        decided = max((int(name) for name in names if name.isdecimal()), default=-1)
        return decided >= 0 and f"{decided}.ended" not in names

    def check(self) -> None:
        with self._topics() as topics:
            found = Counter(map(int, topics.bodies(self._target)))
        missing = [number for number in range(self._total) if number not in found]
        twice = {number: count for number, count in found.items() if count > 1}
        assert not missing, f"{len(missing)} of {self._total} are lost: {missing[:20]}"
        assert not twice, f"{len(twice)} of {self._total} are doubled: {list(twice.items())[:20]}"


def run_round(query: Query, victims: Victims, chance: Random, kills: int) -> Counter[str]:
    """How often it killed in each way; AssertionError if a row is lost or doubled, or a query is stuck."""
    done: Counter[str] = Counter()
    while done.total() - done[BETWEEN] < kills:
        query.more()
        way = victims.way(chance)
        problem = _strike(query, victims, way, chance, done)
        assert problem is None or not _is_survived(way) or is_starved(problem), f"the query failed: {problem}"
        while problem is not None:
            problem = _problem_of(query.start())
            assert problem is None or is_starved(problem), f"the next run failed: {problem}"
        query.check()
    return done


def _is_survived(way: Way) -> bool:
    return way in ("back at once", "taken over")


def _strike(query: Query, victims: Victims, way: Way, chance: Random, done: Counter[str]) -> str | None:
    """Kill while a query commits, again and again if it survives that; why it did not run to its end."""
    with query.changes() as changes:
        started = query.start(**({} if _is_survived(way) else _IMPATIENT))
        while _wait_for_decision(started, changes, chance):
            victim = victims.kill(chance)
            done[BETWEEN] += query.is_between()
            done[way] += 1
            if way == "stopped while it is away":
                started.stop()
            elif way == "back when the query has failed":
                _problem_of(started)
            victims.running.start_broker(victim)
            if victims.is_group:
                victims.running.wait_in_sync()
        return _problem_of(started) or ("stopped" if way == "stopped while it is away" else None)


def _wait_for_decision(started: StreamingQuery, changes: Changes, chance: Random) -> bool:
    """Mostly that moment or a little later, sometimes a little before it; False if the query ends first."""
    wanted = chance.choice(("decided", "decided", "decided", "unfinished"))
    while changes.next(0):
        pass  # what happened during the last strike
    while started.isActive:
        for name in changes.next(0.1):
            if name.isdecimal() if wanted == "decided" else name.endswith(".unfinished"):
                _PAUSE.wait(chance.choice((0.0, 0.0, chance.uniform(0, _LATER_S))))
                return True
    return False


def _problem_of(started: StreamingQuery) -> str | None:
    """Why a query failed; None if it ended well."""
    try:
        assert started.awaitTermination(_END_S), "the query did not end"
    except StreamingQueryException as problem:
        return str(problem)
    return None


def main(arguments: Sequence[str]) -> int:
    parser = options("spark commits", __doc__, minutes=30)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--each", type=int, default=10, help="how often a round kills")
    parser.add_argument("--directory", default=IN_MEMORY, help="where clusters and checkpoints are")
    chosen = parser.parse_args(arguments)
    total: Counter[str] = Counter()
    again = f"python -m tests.spark_kills.commits --minutes 0 --each {chosen.each} --seed"
    rounds = Rounds("spark commits", chosen, lambda seed: f"{again} {seed}")
    with tempfile.TemporaryDirectory(dir=chosen.directory, ignore_cleanup_errors=True) as scratch:
        spark = small_session(Path(scratch))
        spark.sparkContext.setLogLevel("OFF")  # queries are meant to fail

        def one_round(seed: int) -> int:
            chance, directory = Random(seed), Path(scratch, str(seed))
            brokers, replicas = (1, 2) if seed % 2 else (2, 1)
            with cluster(directory / "store", brokers=brokers, replicas=replicas) as running:
                victims = Victims(running, is_group=replicas > 1)
                query = Query(spark, victims, directory, str(seed))
                done = run_round(query, victims, chance, chosen.each)
            total.update(done)
            say(f"spark commits: seed {seed}: {_shown(done)}")
            return 0

        rounds.run(one_round, is_enough=lambda: total[BETWEEN] >= chosen.kills)
        spark.stop()
    return rounds.report(_shown(total))


def _shown(done: Counter[str]) -> str:
    return ", ".join(f"{count} × {way}" for way, count in done.most_common())


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
