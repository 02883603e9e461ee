"""The pipelines that are killed: what each has to do, where kills hurt most, and what must be there then."""

import json
import re
from abc import ABC, abstractmethod
from collections import Counter
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Final

import pyarrow.parquet as pq
from pyarrow import fs
from tests.spark_kills.programs import BEGINS, Pipeline
from tests.spark_kills.stores import StoreChanges
from tests.spark_kills.topics import Topics

from pyromq.protocol.names import DLQ_PREFIX, RETRY_PREFIX
from pyromq.spark.object_stores import arrow_files

if TYPE_CHECKING:
    from tests.support.object_store import FaultyStore

ROWS: Final = 60
"""How many messages each run finds that are new."""
BATCH: Final = ROWS // 2

FIRST: Final = "*/metadata"
"""Only the first run makes it."""
CHECKPOINT: Final = (
    FIRST,
    "*/offsets/.*.tmp",
    BEGINS,
    "*/commits/.*.tmp",
    "*/commits/[0-9]*",
)
_LAKE: Final = ("*.spark-staging*", "*/topic=*", *CHECKPOINT)
_DECISION: Final = ("*/rocketmq-commits/*.unfinished", "*/rocketmq-commits/[0-9]*", *CHECKPOINT)
_STREAM: Final = (
    "CREATE TEMPORARY VIEW rows USING rocketmq OPTIONS"
    " (subscribe '{}', startingOffsets 'earliest', maxOffsetsPerTrigger '{}');"
)
_GROUPS: Final = 5
_SUMS: Final = (
    f"SELECT n % {_GROUPS} AS key_of, count(*) AS many, sum(n) AS total FROM"
    " (SELECT cast(cast(value AS string) AS int) AS n FROM rows) GROUP BY 1"
)


class Job(ABC):
    """Numbers from a topic, somewhere else."""

    places: ClassVar[tuple[str, ...]]
    """Changes of its files at which a kill is worth trying."""
    store: ClassVar["FaultyStore | None"] = None
    """Where the files of pipelines in S3 are."""
    is_in_store: ClassVar[bool] = False

    def __init__(self, topics: Topics, namesrv: str, directory: Path, name: str) -> None:
        self.topics = topics
        self.namesrv = namesrv
        self.directory = directory
        self.source, self.target = f"In-{name}", f"Out-{name}"
        self.total = 0
        directory.mkdir(parents=True)
        if self.is_in_store:
            assert self.store is not None
            self.bucket = self.store.new_bucket()
        topics.create(self.source)
        topics.create(self.target)
        self.pipeline = self.command()

    def more(self) -> None:
        self.topics.fill(self.source, map(str, range(self.total, self.total + ROWS)))
        self.total += ROWS

    @abstractmethod
    def command(self) -> Pipeline: ...

    @abstractmethod
    def check(self) -> None:
        """After a run that nobody disturbed."""

    def place(self, name: str) -> str:
        """A directory for its files."""
        return f"s3a://{self.bucket}/job/{name}" if self.is_in_store else str(self.directory / name)

    def files(self, name: str) -> dict[str, str]:
        """Where the files below such a directory are, by their paths in it."""
        system, root = arrow_files(self.place(name).rstrip("/"))
        found = system.get_file_info(fs.FileSelector(root, allow_not_found=True, recursive=True))
        return {each.path.removeprefix(f"{root}/"): each.path for each in found if each.is_file}

    def is_in_batch(self) -> bool:
        """Whether a batch has begun that is not done, by Spark's journal."""
        begun, done = (
            {
                (path.partition(f"{journal}/")[0], path.rpartition("/")[2])
                for path in self.files("")
                if re.search(rf"(^|/){journal}/\d+$", path)
            }
            for journal in ("offsets", "commits")
        )
        return bool(begun - done)

    def run(self, *arguments: str) -> Pipeline:
        prefix = f"/{self.bucket}/job/" if self.is_in_store else ""
        watch = partial(StoreChanges, self.store, prefix) if prefix and self.store else None
        return Pipeline(self.namesrv, self.directory, *arguments, watch=watch)

    def archived(self) -> list[str]:
        """All values of a lake, as every reader of Parquet sees them."""
        system, _ = arrow_files(self.place("lake"))
        found: list[str] = []
        for name, path in self.files("lake").items():
            if fnmatchcase(name, "topic=*/day=*/batch=*/*.parquet"):
                rows = pq.read_table(path, filesystem=system, partitioning=None)
                found += [value.decode() for value in rows.column("value").to_pylist()]
        return found

    def sql(self, query: str, *arguments: str) -> Pipeline:
        script = self.directory.with_name(f"{self.directory.name}.sql")
        script.write_text(_STREAM.format(self.source, BATCH) + query)
        checkpoint = self.place("checkpoint")
        return self.run("sql", str(script), "--once", "--checkpoint", checkpoint, *arguments)

    def check_once(self, found: list[str]) -> None:
        twice = {body: count for body, count in Counter(found).items() if count > 1}
        missing = {str(number) for number in range(self.total)} - set(found)
        assert not twice, f"more than once: {twice}"
        assert not missing, f"missing: {sorted(missing)}"

    def check_with_ids(self, target: str | None = None) -> None:
        """At least once; what is there twice has its id twice."""
        found = self.topics.ids(target or self.target)
        self.check_once([body for body, _ in found])

    def check_sums(self, target: str) -> None:
        """What each batch told of the groups that it changed."""
        told: dict[int, list[tuple[int, int]]] = {}
        for body in self.topics.bodies(target):
            row = json.loads(body)
            told.setdefault(row["key_of"], []).append((row["many"], row["total"]))
        for group in range(_GROUPS):
            numbers = range(group, self.total, _GROUPS)
            assert max(told[group]) == (len(numbers), sum(numbers)), (group, told[group])
            assert len(set(told[group])) == len(told[group]), f"told twice: {group} {sorted(told[group])}"


class Archive(Job):
    places = _LAKE

    def command(self) -> Pipeline:
        lake = self.place("lake")
        return self.run("archive", lake, "-t", self.source, "--rows-per-batch", str(BATCH))

    def check(self) -> None:
        self.check_once(self.archived())


class ArchiveInStore(Archive):
    is_in_store = True


class Files(Job):
    """Spark's own sink for files."""

    places = ("*/_spark_metadata/*", "*.parquet", *CHECKPOINT)

    def command(self) -> Pipeline:
        out = str(self.directory / "out")
        return self.sql("SELECT cast(value AS string) AS value FROM rows", "--sink", f"parquet={out}")

    def check(self) -> None:
        self.check_once(_committed_values(self.directory / "out"))


class Topic(Job):
    places = CHECKPOINT

    def command(self) -> Pipeline:
        return self.sql("SELECT value FROM rows", "--sink", f"topic={self.target}")

    def check(self) -> None:
        self.check_with_ids()


class TransactionalTopic(Job):
    places = _DECISION

    def command(self) -> Pipeline:
        sink = ("--sink", f"topic={self.target}", "--sink-option", "mode=transactional")
        return self.sql("SELECT value FROM rows", *sink)

    def check(self) -> None:
        self.check_once(self.topics.bodies(self.target))


class TransactionalInStore(TransactionalTopic):
    is_in_store = True


class State(Job):
    """Sums by group, in transactions: each batch tells of the groups that changed, once."""

    places = ("*/state/*.delta", *_DECISION)

    def command(self) -> Pipeline:
        options = f"topic '{self.target}', outputMode 'update', mode 'transactional'"
        return self.sql(
            f"CREATE TEMPORARY VIEW sums USING rocketmq OPTIONS ({options});INSERT INTO sums {_SUMS}"
        )

    def check(self) -> None:
        self.check_sums(self.target)


class Together(Job):
    """A script of four queries: whenever its driver dies, each of them is somewhere else."""

    places = ("*/state/*.delta", "*/_spark_metadata/*", *_DECISION)
    TOPICS: ClassVar[tuple[str, ...]] = ("plain", "once", "sums")

    def command(self) -> Pipeline:
        for name in self.TOPICS:
            self.topics.create(f"{self.target}-{name}")
        view = "CREATE TEMPORARY VIEW {} USING {} OPTIONS ({});".format
        once = "mode 'transactional'"
        return self.sql(
            view("files", "parquet", f"path '{self.directory / 'out'}'")
            + view("plain", "rocketmq", f"topic '{self.target}-plain'")
            + view("once", "rocketmq", f"topic '{self.target}-once', {once}")
            + view("sums", "rocketmq", f"topic '{self.target}-sums', outputMode 'update', {once}")
            + "INSERT INTO files SELECT cast(value AS string) AS value FROM rows;"
            + "INSERT INTO plain SELECT value FROM rows;"
            + "INSERT INTO once SELECT value FROM rows;"
            + f"INSERT INTO sums {_SUMS}"
        )

    def check(self) -> None:
        self.check_once(_committed_values(self.directory / "out"))
        self.check_with_ids(f"{self.target}-plain")
        self.check_once(self.topics.bodies(f"{self.target}-once"))
        self.check_sums(f"{self.target}-sums")


class Replay(Job):
    """A lake that somebody has archived before, to a topic."""

    places = ("*/_temporary*", "*_SUCCESS", "*.parquet")
    BATCHES: ClassVar[int] = 4

    def command(self) -> Pipeline:
        self.lake = self.directory.with_name(f"{self.directory.name}-lake")
        archive = ("archive", str(self.lake), "-t", self.source, "--rows-per-batch", str(BATCH))
        self._archive = Pipeline(self.namesrv, self.lake, *archive)
        checkpoint = str(self.directory / "checkpoint")
        return self.run("replay", str(self.lake), "--to", self.target, "--checkpoint", checkpoint)

    def more(self) -> None:
        if not self.total:  # Spark need not start for a few rows each time
            for _ in range(self.BATCHES):
                super().more()
            end = self._archive.run()
            assert end.code == 0, end.said

    def is_in_batch(self) -> bool:
        """Its journal has a row for each batch that was sent, and one for its beginning."""
        rows = len([*(self.directory / "checkpoint").glob("*.parquet")])
        batches = len([*self.lake.glob("_checkpoint/commits/[0-9]*")])
        return 0 < rows <= batches

    def check(self) -> None:
        self.check_with_ids()


class Redrive(Job):
    """Dead letters to the topic they came from."""

    places = CHECKPOINT

    def __init__(self, topics: Topics, namesrv: str, directory: Path, name: str) -> None:
        self.group = f"g-{name}"
        topics.create(DLQ_PREFIX + self.group)
        super().__init__(topics, namesrv, directory, name)

    def command(self) -> Pipeline:
        checkpoint = ("--redrive", "origin", "--checkpoint", str(self.directory / "checkpoint"))
        return self.run("dlq", "-g", self.group, *checkpoint, "-O", f"maxOffsetsPerTrigger={BATCH}")

    def more(self) -> None:
        bodies = map(str, range(self.total, self.total + ROWS))
        self.topics.fill(DLQ_PREFIX + self.group, bodies, f"DLQ_ORIGIN_TOPIC\x01{self.target}\x02")
        self.total += ROWS

    def check(self) -> None:
        self.check_with_ids()


class RedriveToGroup(Redrive):
    """Dead letters to their own group, which gets them again a second later."""

    def command(self) -> Pipeline:
        checkpoint = ("--redrive", "group", "--checkpoint", str(self.directory / "checkpoint"))
        return self.run("dlq", "-g", self.group, *checkpoint, "-O", f"maxOffsetsPerTrigger={BATCH}")

    def check(self) -> None:
        self.check_once(sorted(set(self.topics.bodies_soon(RETRY_PREFIX + self.group, self.total))))


class Trace(Job):
    """Traces to a lake, and the figures from there."""

    places = _LAKE

    def command(self) -> Pipeline:
        return self.run("trace", "--lake", str(self.directory / "lake"), "-t", self.source)

    def more(self) -> None:
        self.topics.fill(self.source, map(_traced, range(self.total, self.total + ROWS)))
        self.total += ROWS

    def check(self) -> None:
        self.check_once([body.split("\x01")[5] for body in self.archived()])


def _traced(number: int) -> str:
    """What a producer and a consumer tell of one message."""
    sent = [
        "Pub",
        "1000",
        "region",
        "tills",
        "Payments",
        str(number),
        "",
        "",
        "host",
        "3",
        "5",
        "0",
        "id",
        "true",
    ]
    begun = ["SubBefore", "1010", "region", "payers", f"r{number}", str(number), "0", ""]
    ended = ["SubAfter", f"r{number}", str(number), "7", "true", "", "0"]
    return "".join("\x01".join(record) + "\x02" for record in (sent, begun, ended))


def _committed_values(out: Path) -> list[str]:
    found: list[str] = []
    for path in _committed(out):
        found += map(str, pq.read_table(path, partitioning=None).column("value").to_pylist())
    return found


def _committed(out: Path) -> list[str]:
    """The files that Spark's sink calls its own: from the last compact list on, one list for each batch."""
    lists = {path.name: path for path in (out / "_spark_metadata").iterdir() if path.name[0].isdigit()}
    compact = max((int(name.split(".")[0]) for name in lists if name.endswith(".compact")), default=-1)
    chosen = [lists[f"{compact}.compact"]] if compact >= 0 else []
    chosen += [path for name, path in lists.items() if name.isdecimal() and int(name) > compact]
    return [
        json.loads(line)["path"].removeprefix("file://")
        for path in chosen
        for line in path.read_text().splitlines()[1:]
    ]
