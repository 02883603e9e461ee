"""The main job, end to end: `make demo`, or `python examples/demo.py --events 200000`.

1. `pyromq standalone` runs a name server and a broker as a process of its own.
2. Spark streams a topic of orders and adds up the revenue of each region and hour.
3. A producer sends a day of orders, seeded, a little out of order as real ones are.
4. Each hour that is complete goes into another topic and into a Parquet lake.
5. A push consumer gets the results. They, the lake and the orders must agree to the cent.

Prints what happens, a table of the totals, and `Totals agree to the cent.`
"""

import argparse
import json
import math
import random
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn
from pyspark.sql.streaming.query import StreamingQuery
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table

from pyromq import Message, Producer, PushConsumer, ReceivedMessage
from pyromq.spark.pipelines.plots import save
from pyromq.spark.pipelines.quiet import quiet_session
from pyromq.spark.pipelines.tallies import Tally

ORDERS, REVENUE = "Orders", "Revenue"
REGIONS = {"africa": 1, "americas": 5, "asia": 7, "europe": 4, "oceania": 1}
PRICES_CENTS = {"book": 1499, "coffee": 899, "headphones": 12_900, "lamp": 4_950, "shoes": 8_995, "tea": 349}
DAY = datetime(2026, 3, 2, tzinfo=UTC)
LATE = timedelta(minutes=20)
CLOSING = "closing"
"""The region of the last event of all: it lies so far ahead that every hour of the day is complete."""

READY = re.compile(r"name server (\S+), broker (\S+),")
Hour = tuple[str, str]
Cents = dict[Hour, int]

console = Console()


# The orders


def orders(count: int) -> Iterator[dict[str, Any]]:
    """A day of orders: few at night, many in the evening, some late, some given back."""
    chance = random.Random(2026)
    hours = [1.2 + math.sin((hour - 9) / 24 * 2 * math.pi) for hour in range(24)]
    moments = chance.choices(range(24), hours, k=count)
    regions = chance.choices(list(REGIONS), list(REGIONS.values()), k=count)
    items = chance.choices(list(PRICES_CENTS), k=count)
    starts = sorted(hour + chance.random() for hour in moments)
    for number, (start, region, item) in enumerate(zip(starts, regions, items, strict=True)):
        late = LATE * chance.random() if chance.random() < 0.1 else timedelta()
        at = max(DAY + timedelta(hours=start) - late, DAY)
        quantity = -1 if chance.random() < 0.02 else chance.randint(1, 4)
        yield {
            "order": f"o-{number:07}",
            "at": at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "region": region,
            "item": item,
            "quantity": quantity,
            "cents": quantity * PRICES_CENTS[item],
        }


def closing_event() -> dict[str, Any]:
    at = (DAY + timedelta(days=3)).isoformat().replace("+00:00", "Z")
    return {"order": "none", "at": at, "region": CLOSING, "item": "none", "quantity": 0, "cents": 0}


def message(order: dict[str, Any]) -> Message:
    return Message(ORDERS, json.dumps(order).encode(), tags=order["region"], keys=[order["order"]])


def send(namesrv: str, count: int, tell: Progress, bar: TaskID, *, at_once: int = 500) -> tuple[Cents, float]:
    """Send all orders; what each region has earned in each hour, and the time it took."""
    earned: Cents = defaultdict(int)
    started = time.monotonic()
    with Producer("demo-tills", namesrv=namesrv) as producer:
        waiting: list[Message] = []
        for order in orders(count):
            earned[order["region"], order["at"][:13]] += order["cents"]
            waiting.append(message(order))
            if len(waiting) == at_once:
                producer.send(waiting)
                tell.advance(bar, len(waiting))
                waiting = []
        if waiting:
            producer.send(waiting)
            tell.advance(bar, len(waiting))
        producer.send(message(closing_event()))
    return dict(earned), time.monotonic() - started


# The aggregation


def aggregation(spark: SparkSession, namesrv: str, lake: Path, checkpoint: Path) -> StreamingQuery:
    """Revenue by region and hour, to a topic and a lake."""
    stream = (
        spark.readStream.format("rocketmq")
        .option("namesrv", namesrv)
        .option("subscribe", ORDERS)
        .option("startingOffsets", "earliest")
        .option("valueFormat", "json")
        .option("valueSchema", "at timestamp, region string, cents bigint")
        .schema("value struct<at: timestamp, region: string, cents: bigint>")
        .load()
    )
    revenue = (
        stream.select("value.*")
        .withWatermark("at", "2 hours")
        .groupBy(fn.window("at", "1 hour"), "region")
        .agg(fn.sum("cents").alias("cents"), fn.count("*").alias("orders"))
        .select(fn.date_format("window.start", "yyyy-MM-dd'T'HH").alias("hour"), "region", "cents", "orders")
    )

    def write(frame: DataFrame, batch: int) -> None:
        kept = frame.persist()
        # Written again, a batch replaces itself in the lake, and has the same keys in the topic.
        kept.write.mode("overwrite").parquet(str(lake / f"batch={batch}"))
        rows = kept.selectExpr(
            "to_json(struct(*)) AS value", "concat(region, '@', hour) AS key", "region AS tags"
        )
        rows.write.format("rocketmq").option("namesrv", namesrv).option("topic", REVENUE).mode(
            "append"
        ).save()
        kept.unpersist()

    writer = revenue.writeStream.outputMode("append").option("checkpointLocation", str(checkpoint))
    return writer.foreachBatch(write).start()


# The results


@dataclass
class Results:
    """What the consumer has got; a result that comes twice counts once."""

    expected: int | None = None
    cents: Cents = field(default_factory=dict)
    is_complete: threading.Event = field(default_factory=threading.Event)

    def add(self, received: ReceivedMessage) -> None:
        result = json.loads(received.body)
        self.cents[result["region"], result["hour"]] = result["cents"]
        self.look()

    def look(self) -> None:
        if self.expected is not None and len(self.cents) >= self.expected:
            self.is_complete.set()


def lake_cents(spark: SparkSession, lake: Path) -> Cents:
    rows = spark.read.parquet(str(lake)).collect()
    return {(row.region, row.hour): row.cents for row in rows}


def by_region(cents: Cents) -> dict[str, int]:
    totals: dict[str, int] = defaultdict(int)
    for (region, _), amount in cents.items():
        totals[region] += amount
    return totals


def report(sent: Cents, consumed: Cents, lake: Cents) -> bool:
    table = Table("region", "sent", "consumed", "in the lake", "", title="Revenue by region")
    for column in table.columns[1:]:
        column.justify = "right"
    totals = [by_region(each) for each in (sent, consumed, lake)]
    for region in REGIONS:
        amounts = [each[region] for each in totals]
        verdict = "[green]equal" if len(set(amounts)) == 1 else "[red]DIFFERENT"
        table.add_row(region, *[f"{amount / 100:,.2f}" for amount in amounts], verdict)
    console.print(table)
    # Not only the totals: every hour of every region.
    return sent == consumed == lake


def draw(cents: Cents, path: Path) -> None:
    hours = sorted({hour for _, hour in cents})
    figure = Figure(figsize=(10, 5), layout="constrained")
    axes = figure.subplots()
    below = [0.0] * len(hours)
    for region in REGIONS:
        heights = [cents.get((region, hour), 0) / 100 for hour in hours]
        axes.bar([hour[-2:] for hour in hours], heights, bottom=below, label=region)
        below = [low + height for low, height in zip(below, heights, strict=True)]
    axes.set(title="Revenue by region and hour", xlabel="hour", ylabel="revenue")
    axes.legend()
    save(figure, path)


# All of it


@contextmanager
def standalone(store: Path) -> Iterator[str]:
    """A cluster of its own; where its name server is."""
    command = [sys.executable, "-m", "pyromq", "standalone", "--store", str(store)]
    command += ["--namesrv-port", "0", "--broker-port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            line = process.stdout.readline()
            found = READY.search(line)
            if found is None:
                raise SystemExit(f"the cluster did not start: {line!r}")
            yield found[1]
        finally:
            process.terminate()


def create_topics(namesrv: str) -> None:
    """Spark and the consumer want to see topics that exist; brokers make them when they are first named."""
    for topic in (ORDERS, REVENUE):
        command = [sys.executable, "-m", "pyromq", "admin", "updateTopic", "-n", namesrv, "-t", topic]
        subprocess.run(
            [*command, "-c", "DefaultCluster", "-r", "4", "-w", "4"], check=True, stdout=subprocess.DEVNULL
        )


def wait_for_results(
    query: StreamingQuery, results: Results, tally: Tally, tell: Progress, bars: list[TaskID]
) -> None:
    is_done = False
    while not is_done:
        is_done = results.is_complete.wait(0.2)
        for progress in query.recentProgress:
            tally.add(json.loads(progress.json))
        tally.tick()
        tell.update(bars[0], completed=tally.rows_in)
        tell.update(bars[1], completed=len(results.cents))
        if (problem := query.exception()) is not None:
            raise problem


def run(count: int, directory: Path, plot: Path) -> bool:
    began = time.monotonic()
    with standalone(directory / "store") as namesrv:
        create_topics(namesrv)
        console.print(f"cluster ready after {time.monotonic() - began:.1f} s: name server {namesrv}")
        spark = quiet_session("demo", "local[2]")
        console.print(f"Spark {spark.version} ready after {time.monotonic() - began:.1f} s")
        lake = directory / "lake"
        query = aggregation(spark, namesrv, lake, directory / "checkpoint")
        tally, results = Tally(), Results()
        consumer = PushConsumer("demo-results", namesrv=namesrv, start_from="first")
        consumer.on(REVENUE)(results.add)
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        try:
            with Progress(*columns, console=console) as tell, consumer:
                sent_bar = tell.add_task("orders sent", total=count)
                bars = [
                    tell.add_task("orders aggregated by Spark", total=count + 1),
                    tell.add_task("hours of regions consumed", total=None),
                ]
                sent, send_s = send(namesrv, count, tell, sent_bar)
                results.expected = len(sent)
                results.look()
                tell.update(bars[1], total=len(sent))
                wait_for_results(query, results, tally, tell, bars)
            query.stop()
            agrees = report(sent, results.cents, lake_cents(spark, lake))
        finally:
            spark.stop()
        draw(results.cents, plot)
    spark_rate = tally.rows_in / tally.seconds
    console.print(
        f"{count:,} orders: sent in {send_s:.1f} s ({count / send_s:,.0f}/s), aggregated meanwhile in "
        f"{tally.batches} batches ({spark_rate:,.0f}/s), {len(results.cents)} results consumed; "
        f"{time.monotonic() - began:.0f} s altogether",
        soft_wrap=True,
    )
    console.print(f"plot: {plot.absolute()}", soft_wrap=True)
    return agrees


def main() -> int:
    options = argparse.ArgumentParser(description="Run PyroMQ's main job end to end.")
    options.add_argument("--events", type=int, default=200_000, help="how many orders to send (200,000)")
    options.add_argument(
        "--plot", type=Path, default=Path("build/demo.png"), help="the picture (build/demo.png)"
    )
    chosen = options.parse_args()
    with tempfile.TemporaryDirectory(prefix="pyromq-demo-") as directory:
        agrees = run(chosen.events, Path(directory), chosen.plot)
    console.print("[bold green]Totals agree to the cent." if agrees else "[bold red]Totals differ.")
    return 0 if agrees else 1


if __name__ == "__main__":
    sys.exit(main())
