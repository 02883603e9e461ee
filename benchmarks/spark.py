"""Rows per second between topics and Spark, beside the same rows in uncompressed Parquet and in Kafka.

    python -m benchmarks.spark [--rows 2000000] [--sizes 100,1024] [--rounds 5] [--quick] [--report FILE]
    python -m benchmarks.spark --scaling [--rows 2000000] [--rounds 5] [--report FILE]
    python -m benchmarks.spark --all [--quick] [--report FILE]

One session on `local[2]`, one `pyromq standalone` with its defaults; the sink of reads is `noop`. Cases take
turns, round by round; a figure is the median of the rounds, a ratio the median of the ratios within rounds.
"""

import argparse
import contextlib
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pyspark
from benchmarks.kafka_source import KafkaSource, fetch_kafka_source
from benchmarks.process_cpu import cpu_seconds, cpu_seconds_of_tree
from benchmarks.spark_least_source import OneByOneSource
from benchmarks.spark_scaling import scaling
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamReader
from tests.support.apache_releases import PeerUnavailable
from tests.support.kafka import KAFKA_VERSION, KafkaBroker

from pyromq.compiled import WHY
from pyromq.spark import session

MAX_BYTES = 700 * 1024 * 1024
WRITTEN_PART = 4
"""Every round of writes stays in the log: they take a part of the rows."""
ID_BYTES = 10
"""Of a value; the rest is the same in all rows."""
TRIGGERS, QUICK_TRIGGERS = 60, 9
PARQUET, BATCH, STREAM, FEW = "Parquet", "batch", "stream", "batch, value and offset"
KAFKA_BATCH, KAFKA_STREAM = "Kafka, batch", "Kafka, stream"
KAFKA_COLUMNS = "key string, value binary, topic string, queueId int, offset bigint, timestamp timestamp"
PROGRAMS = ("JVM", "Python", "broker", "Kafka")
AS_KAFKA, STREAM_AS_KAFKA = "batch, columns of Kafka", "stream, columns of Kafka"
COUNT = "count of offsets"
STRICT = "batch, strict"
SCALED_ROWS, SCALED_ROUNDS = 300_000, 3
"""Of the second table, if both are made."""
DOCUMENT = "id bigint, name string, price double, paid boolean, at timestamp"
RATE, LEAST = "rate source", "least source in Python"
BETWEEN = "\n---\n"
FROM_JSON, JSON = "from_json", "valueFormat=json"

Cpu = dict[str, float]
Options = dict[str, str]
Case = Callable[[], float | None]
"""Something to measure; it may say itself how many seconds count."""


@contextlib.contextmanager
def standalone() -> Iterator[tuple[str, int]]:
    """The address of a name server, and the process that is the whole cluster."""
    with tempfile.TemporaryDirectory(prefix="pyromq-bench-") as store:
        program = "from pyromq.apps.pyromq import main; main()"
        ports = ["--namesrv-port", "0", "--broker-port", "0"]
        command = [sys.executable, "-c", program, "standalone", *ports, "--store", store]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            try:
                said = process.stdout.readline()
                yield said.partition("name server ")[2].partition(",")[0], process.pid
            finally:
                process.terminate()


@dataclass
class Measured:
    """What one case needed, round by round."""

    rows: int
    seconds: list[float] = field(default_factory=list)
    cpu: list[Cpu] = field(default_factory=list)

    @property
    def mrows_per_s(self) -> float:
        return self.rows / statistics.median(self.seconds) / 1e6

    def cpu_us_per_row(self) -> Cpu:
        least = min(self.cpu, key=lambda used: sum(used.values()))
        return {who: seconds / self.rows * 1e6 for who, seconds in least.items()}

    def of(self, other: "Measured") -> float:
        """Our rate as a part of another's, of the same rounds."""
        pairs = zip(self.seconds, other.seconds, strict=True)
        return statistics.median(theirs / ours for ours, theirs in pairs)


@dataclass
class Bench:
    spark: SparkSession
    namesrv: str
    broker_pid: int
    kafka: KafkaBroker | None
    directory: Path
    rounds: int
    trigger_count: int
    missing: list[str]

    def cpu(self) -> Cpu:
        gateway = self.spark.sparkContext._gateway
        assert gateway is not None
        jvm: int = gateway.proc.pid
        used = {"JVM": cpu_seconds(jvm), "Python": cpu_seconds_of_tree(jvm) - cpu_seconds(jvm)}
        used["broker"] = cpu_seconds(self.broker_pid)
        if self.kafka is not None and self.kafka.pid is not None:
            used["Kafka"] = cpu_seconds(self.kafka.pid)
        return used

    def take_turns(self, rows: int, cases: Mapping[str, Case]) -> dict[str, Measured]:
        found = {name: Measured(rows) for name in cases}
        for name, case in cases.items():
            case()  # a JVM has to see everything once
            say(f"  warmed up: {name}")
        for number in range(self.rounds):
            order = list(cases)[:: 1 if number % 2 else -1]
            for name in order:
                before, start = self.cpu(), time.perf_counter()
                own_seconds = cases[name]()
                seconds = time.perf_counter() - start
                found[name].seconds.append(seconds if own_seconds is None else own_seconds)
                after = self.cpu()
                # A process that ends takes what it had used out of the sum.
                found[name].cpu.append({who: max(after[who] - before[who], 0.0) for who in after})
            say("  " + ", ".join(f"{name} {rows / m.seconds[-1] / 1e6:.2f}" for name, m in found.items()))
        return found

    # What is measured

    def options(self, topic: str) -> Options:
        return {"namesrv": self.namesrv, "subscribe": topic}

    def kafka_options(self, topic: str) -> Options:
        assert self.kafka is not None
        return {"kafka.bootstrap.servers": self.kafka.address, "subscribe": topic}

    def rows_to_write(self, rows: int, size: int) -> DataFrame:
        # Padding a row by itself would take as long as writing it.
        padding = "x" * (size - ID_BYTES)
        return self.spark.range(0, rows, numPartitions=2).selectExpr(
            f"cast(concat(rpad(cast(id as string), {ID_BYTES}, 'x'), '{padding}') as binary) as value",
            "concat('key', id) as key",
            "'bench' as tags",
        )

    def writes(self, rows: int, size: int) -> dict[str, Measured]:
        source = self.rows_to_write(rows, size)
        turn = iter(range(1000))
        cases: dict[str, Case] = {
            "Parquet": lambda: source.write.option("compression", "uncompressed").parquet(
                str(self.directory / f"written{size}-{next(turn)}")
            ),
            "ours": lambda: (
                source.write.format("rocketmq")
                .option("namesrv", self.namesrv)
                .mode("append")
                .save(f"Written{size}")
            ),
        }
        if self.kafka is not None:
            options = self.kafka_options(f"Written{size}")
            to_kafka = source.select("key", "value").write.format("kafka")
            cases["Kafka"] = lambda: to_kafka.options(**options).option("topic", f"Written{size}").save()
        found = self.take_turns(rows, cases)
        stored = self.spark.read.format("rocketmq").options(**self.options(f"Written{size}"))
        total = stored.schema("offset bigint").load().count()
        assert total == rows * (self.rounds + 1), f"{total} rows were stored"
        return found

    def reads(self, rows: int, size: int) -> dict[str, Measured]:
        topic = f"Read{size}"
        source = self.rows_to_write(rows, size)
        source.write.format("rocketmq").option("namesrv", self.namesrv).mode("append").save(topic)
        options = self.options(topic)
        lake = str(self.directory / topic)
        ours = self.spark.read.format("rocketmq").options(**options)
        ours.load().write.option("compression", "uncompressed").parquet(lake)
        assert self.spark.read.parquet(lake).count() == rows
        strict = self.spark.read.format("rocketmq").options(**options, nullability="strict")
        few = self.spark.read.format("rocketmq").options(**options)
        as_kafka = self.spark.read.format("rocketmq").options(**options)
        cases: dict[str, Case] = {
            PARQUET: lambda: noop(self.spark.read.parquet(lake)),
            BATCH: lambda: noop(ours.load()),
            STRICT: lambda: noop(strict.load()),
            STREAM: lambda: self.drain(self.spark.readStream.format("rocketmq").options(**options)),
            AS_KAFKA: lambda: noop(as_kafka.schema(KAFKA_COLUMNS).load()),
            STREAM_AS_KAFKA: lambda: self.drain(
                self.spark.readStream.format("rocketmq").options(**options).schema(KAFKA_COLUMNS)
            ),
            FEW: lambda: noop(few.schema("value binary, offset bigint").load()),
            COUNT: lambda: self.counted(options, rows),
        }
        if self.kafka is not None and self._fill_kafka(source, topic):
            theirs = self.kafka_options(topic)
            reader = self.spark.read.format("kafka").options(**theirs)
            assert reader.load().count() == rows
            cases[KAFKA_BATCH] = lambda: noop(reader.load())
            cases[KAFKA_STREAM] = lambda: self.drain(self.spark.readStream.format("kafka").options(**theirs))
        return self.take_turns(rows, cases)

    def counted(self, options: Options, rows: int) -> None:
        reader = self.spark.read.format("rocketmq").options(**options).schema("offset bigint")
        assert reader.load().count() == rows

    def documents(self, rows: int) -> dict[str, Measured]:
        """JSON as `from_json` reads it from the bodies, and as the source does."""
        source = self.spark.range(0, rows, numPartitions=2).selectExpr(
            "to_json(struct(id, concat('name', id) as name, id / 7 as price, id % 2 = 0 as paid,"
            " timestamp_seconds(1767355200 + id) as at)) as value"
        )
        source.write.format("rocketmq").option("namesrv", self.namesrv).mode("append").save("Documents")
        reader = self.spark.read.format("rocketmq").options(**self.options("Documents"))
        json = self.spark.read.format("rocketmq").options(**self.options("Documents"))
        json = json.option("valueFormat", "json").option("valueSchema", DOCUMENT)
        bodies = reader.schema("value binary").load()
        parsed = bodies.selectExpr(f"from_json(cast(value as string), '{DOCUMENT}') as value")
        ours = json.schema(f"value struct<{DOCUMENT}>")
        return self.take_turns(rows, {FROM_JSON: lambda: noop(parsed), JSON: lambda: noop(ours.load())})

    def _fill_kafka(self, source: DataFrame, topic: str) -> bool:
        """Whether Kafka has taken the rows; on a machine that is too busy its producers give up."""
        to_kafka = source.select("key", "value").write.format("kafka").options(**self.kafka_options(topic))
        try:
            to_kafka.option("topic", topic).save()
        except Py4JJavaError as problem:
            why = str(problem.java_exception.getMessage()).splitlines()[0]
            self.missing.append(f"Kafka with {topic}: its sink failed ({why})")
            return False
        return True

    def drain(self, reader: DataStreamReader) -> float:
        """The seconds of its micro-batches: a stream is started once, and then runs."""
        stream = reader.option("startingOffsets", "earliest").load()
        with tempfile.TemporaryDirectory(dir=self.directory) as checkpoint:
            writer = stream.writeStream.format("noop").option("checkpointLocation", checkpoint)
            query = writer.trigger(availableNow=True).start()
            query.awaitTermination()
            reports = [report for report in query.recentProgress if report.numInputRows]
        return sum(report.durationMs["triggerExecution"] for report in reports) / 1000

    def triggers(self) -> dict[str, list[Cpu]]:
        """Durations in ms of micro-batches of one row each."""
        rows = self.spark.range(2 * self.trigger_count).selectExpr(
            "cast(id as string) as value", "0 as queueId"
        )
        rows.write.format("rocketmq").option("namesrv", self.namesrv).mode("append").save("OneByOne")
        ours = self.spark.readStream.format("rocketmq").options(**self.options("OneByOne"))
        ours = ours.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", "1")
        rate = self.spark.readStream.format("rate-micro-batch").option("rowsPerBatch", "1")
        self.spark.dataSource.register(OneByOneSource)
        least = self.spark.readStream.format(OneByOneSource.name())
        streams = {RATE: rate, "ours": ours, LEAST: least}
        if self.kafka is not None:
            theirs = self.kafka_options("OneByOne")
            to_kafka = rows.selectExpr("value", "0 as partition").write.format("kafka")
            to_kafka.options(**theirs).option("topic", "OneByOne").save()
            kafka = self.spark.readStream.format("kafka").options(**theirs)
            kafka = kafka.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", "1")
            streams["Kafka"] = kafka
        found: dict[str, list[Cpu]] = {name: [] for name in streams}
        for _ in range(2):
            for name, stream in streams.items():
                found[name] += self._durations(stream.load())
                say(f"  {name}: {median_of(found[name], 'triggerExecution'):.0f} ms")
        return found

    def _durations(self, frame: DataFrame) -> list[Cpu]:
        with tempfile.TemporaryDirectory(dir=self.directory) as checkpoint:
            writer = frame.writeStream.format("noop").option("checkpointLocation", checkpoint)
            query = writer.start()
            try:
                while len(query.recentProgress) < self.trigger_count:
                    if query.awaitTermination(1):
                        break
                reports = [report for report in query.recentProgress if report.numInputRows == 1]
            finally:
                query.stop()
        return [dict(report.durationMs) for report in reports[self.trigger_count // 3 :]]


def noop(frame: DataFrame) -> None:
    frame.write.format("noop").mode("overwrite").save()


def median_of(durations: list[Cpu], what: str) -> float:
    return statistics.median(each.get(what, 0) for each in durations)


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


# The report


Compared = dict[str, dict[str, dict[str, float]]]
"""Rates beside a peer's, as `benchmarks.behind` reads them."""


def report(bench: Bench, sizes: list[int], rows: int, compared: Compared) -> str:
    lines = [
        f"PySpark {pyspark.__version__}, Python {platform.python_version()}, {os.cpu_count()} cores,"
        f" {platform.machine()}; compiled twins: {WHY}. Median of {bench.rounds} rounds in turns, million"
        " rows per second; in brackets the share of Parquet's rate in the same rounds."
    ]
    goals: list[tuple[str, bool]] = []
    cpu_rows: list[str] = []
    reads, writes, headings = [], [], list[str]()
    for size in sizes:
        count = min(rows, MAX_BYTES // (size + 200))
        say(f"writes of {size} B, {count // WRITTEN_PART:,} rows")
        written = bench.writes(count // WRITTEN_PART, size)
        writes.append(
            f"| {size} B, {count // WRITTEN_PART:,} rows | "
            + " | ".join(f"{m.mrows_per_s:.2f}" for m in written.values())
            + " |"
        )
        if "Kafka" in written:
            ratio = written["ours"].of(written["Kafka"])
            compared[f"Spark writes {size} B"] = beside(written["ours"], written["Kafka"])
            goals.append((f"write at {size} B: {ratio:.2f} × Kafka's sink; 2 wanted", ratio >= 2))
        say(f"reads of {size} B, {count:,} rows")
        read = bench.reads(count, size)
        parquet = read[PARQUET]
        cells = [
            f"{m.mrows_per_s:.2f}" + (f" ({m.of(parquet):.0%})" if name != PARQUET else "")
            for name, m in read.items()
        ]
        headings = headings if len(headings) > len(read) else list(read)
        reads.append(f"| {size} B, {count:,} rows | " + " | ".join(cells) + " |")
        goals += [
            (
                f"{name} at {size} B: {read[name].of(parquet):.0%} of Parquet; 80 % wanted",
                read[name].of(parquet) >= 0.8,
            )
            for name in (BATCH, STRICT, STREAM)
        ]
        for name, theirs in (
            (BATCH, KAFKA_BATCH),
            (STREAM, KAFKA_STREAM),
            (AS_KAFKA, KAFKA_BATCH),
            (STREAM_AS_KAFKA, KAFKA_STREAM),
        ):
            if theirs in read:
                ratio = read[name].of(read[theirs])
                compared[f"Spark reads {size} B: {name}"] = beside(read[name], read[theirs])
                goals.append((f"{name} at {size} B: {ratio:.2f} × Kafka's source; 1.5 wanted", ratio >= 1.5))
        for what, found in (("write", written), ("read", read)):
            for name, m in found.items():
                used = m.cpu_us_per_row()
                shares = " | ".join(
                    f"{used.get(who, 0.0):.2f}" for who in ("JVM", "Python", "broker", "Kafka")
                )
                cpu_rows.append(f"| {what} {size} B: {name} | {sum(used.values()):.2f} | {shares} |")
    lines += ["", "| read | " + " | ".join(headings) + " |", "|---" * (len(headings) + 1) + "|", *reads]
    lines += ["", "| write | " + " | ".join(written) + " |", "|---" * (len(written) + 1) + "|", *writes]
    say("micro-batches of one row")
    durations = bench.triggers()
    parts = ["triggerExecution", "latestOffset", "queryPlanning", "addBatch", "walCommit", "commitOffsets"]
    lines += ["", "| ms for a micro-batch of one row | " + " | ".join(parts) + " |", "|---" * 7 + "|"]
    for name, each in durations.items():
        lines.append(f"| {name} | " + " | ".join(f"{median_of(each, part):.0f}" for part in parts) + " |")
    ratio, least = (
        median_of(durations["ours"], parts[0]) / median_of(durations[other], parts[0])
        for other in (RATE, LEAST)
    )
    goals.append(
        (
            f"micro-batch of one row: {ratio:.2f} × the rate source; 1.15 at most wanted"
            f" ({least:.2f} × the least source in Python)",
            ratio <= 1.15,
        )
    )
    count = rows // WRITTEN_PART
    say(f"JSON, {count:,} documents")
    found = bench.documents(count)
    lines += ["", "| JSON | " + " | ".join(found) + " |", "|---" * (len(found) + 1) + "|"]
    lines.append(
        f"| {count:,} documents | " + " | ".join(f"{m.mrows_per_s:.2f}" for m in found.values()) + " |"
    )
    ratio = found[JSON].of(found[FROM_JSON])
    goals.append((f"valueFormat=json: {ratio:.2f} × from_json; ahead wanted", ratio > 1))
    lines += ["", "| CPU µs per row, least of the rounds | all | JVM | Python | broker | Kafka |"]
    lines += ["|---" * 6 + "|", *cpu_rows, ""]
    lines += [f"- {'reached' if is_reached else '**not reached**'}: {text}" for text, is_reached in goals]
    lines += [f"- not measured: {text}" for text in bench.missing]
    return "\n".join(lines) + "\n"


def beside(ours: Measured, kafka: Measured) -> dict[str, dict[str, float]]:
    return {
        name: {"rate": each.mrows_per_s * 1e6, "cpu_us": sum(each.cpu_us_per_row().values())}
        for name, each in (("pyromq", ours), ("Kafka's source", kafka))
    }


def start_kafka(directory: Path, missing: list[str]) -> tuple[KafkaSource | None, KafkaBroker | None]:
    try:
        source = fetch_kafka_source()
        return source, KafkaBroker(directory, jvm=("-Xms1g", "-Xmx1g"))
    except PeerUnavailable as problem:
        missing.append(f"Spark's Kafka source ({problem})")
        return None, None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=2_000_000, help="at most; fewer of large ones")
    parser.add_argument("--sizes", default="100,1024")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--without-kafka", action="store_true")
    parser.add_argument("--quick", action="store_true", help="only show that it works")
    parser.add_argument("--json", type=Path, help="write the rates beside Kafka's to this file")
    parser.add_argument("--scaling", action="store_true", help="only cores, queues and partitions")
    parser.add_argument("--all", action="store_true", help="the tables of both, one after the other")
    parser.add_argument(
        "--report", type=Path, help="write the tables into this file, between its lines '---' or below them"
    )
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.rows, arguments.rounds = 50_000, 1
    if not arguments.scaling:
        compare(arguments)
    if arguments.all:
        arguments.rows = min(arguments.rows, SCALED_ROWS)
        arguments.rounds = min(arguments.rounds, SCALED_ROUNDS)
    if arguments.all or arguments.scaling:
        with standalone() as (namesrv, _):
            table = scaling(namesrv, arguments.rows, arguments.rounds, say)
        publish(table, arguments.report, part=2)


def compare(arguments: argparse.Namespace) -> None:
    """With Parquet and Kafka."""
    missing: list[str] = []
    with contextlib.ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="pyromq-lake-")))
        source, kafka = None, None
        if arguments.without_kafka:
            missing.append("Spark's Kafka source (--without-kafka)")
        else:
            source, kafka = start_kafka(directory / "kafka", missing)
        jars = {} if source is None else {"spark__jars": ",".join(map(str, source.jars))}
        spark = session("benchmark", master="local[2]", memory="2g", **jars)
        stack.callback(spark.stop)
        spark.sparkContext.setLogLevel("ERROR")
        if kafka is not None:
            stack.enter_context(kafka)
        namesrv, pid = stack.enter_context(standalone())
        triggers = QUICK_TRIGGERS if arguments.quick else TRIGGERS
        bench = Bench(spark, namesrv, pid, kafka, directory, arguments.rounds, triggers, missing)
        sizes = [int(size) for size in arguments.sizes.split(",")]
        compared: Compared = {}
        text = report(bench, sizes, arguments.rows, compared)
        if source is not None:
            text += f"- Kafka {KAFKA_VERSION}, read by {source.names}\n"
    publish(text, arguments.report, part=1)
    if arguments.json:
        arguments.json.write_text(json.dumps(compared, indent=1) + "\n")


def publish(text: str, page: Path | None, part: int) -> None:
    """Print it, and make it the part of a page; lines '---' are between the parts."""
    print(text)
    if page is not None:
        parts = page.read_text().split(BETWEEN)
        parts[part : part + 1] = [f"\n{text}"]
        page.write_text(BETWEEN.join(parts))


if __name__ == "__main__":
    main()
