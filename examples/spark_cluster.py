"""A Spark cluster loses one of two workers, and not a cent is lost: `python examples/spark_cluster.py`.

1. A Spark master and two workers start, each as a process of its own, and a RocketMQ cluster.
2. A streaming query adds up the orders of each region, with an executor on each worker. Its state is in the
   checkpoint, which every worker must be able to reach.
3. When a batch has begun, one worker is killed with SIGKILL, together with its executor. The other one does
   its work, and gets the state from the checkpoint.
4. The totals agree with what was sent, to the cent.
"""

import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from pyromq import Message, Producer
from pyromq.spark import session
from pyromq.spark.session import prepare_environment
from pyromq.testing import cluster

ORDERS, ORDERS_PER_BATCH, DEADLY_BATCH = 1000, 200, 2
REGIONS = ("africa", "americas", "asia", "europe", "oceania")
Revenue = dict[str, int]
QUICK_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


# The cluster


@dataclass
class SparkCluster:
    master: str
    workers: list["subprocess.Popen[bytes]"]

    def kill(self, number: int) -> None:
        """SIGKILL, for a worker and the executors that it started."""
        os.killpg(self.workers[number].pid, signal.SIGKILL)
        self.workers[number].wait()


@contextmanager
def spark_cluster(directory: Path, workers: int) -> Iterator[SparkCluster]:
    """Spark's own programs, as they are in the package: a master, and workers with a core each."""
    prepare_environment()
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    settings = {"SPARK_DAEMON_JAVA_OPTS": QUICK_JVM, "SPARK_DAEMON_MEMORY": "256m"}
    environment = os.environ | settings
    started: list[subprocess.Popen[bytes]] = []

    def start(program: str, *arguments: str) -> Path:
        log = directory / f"{len(started)}.log"
        command = [f"{os.environ['SPARK_HOME']}/bin/spark-class", f"org.apache.spark.deploy.{program}"]
        command += ["--host", "127.0.0.1", "--port", "0", "--webui-port", "0", *arguments]
        with log.open("wb") as output:
            process = subprocess.Popen(
                command, stdout=output, stderr=output, env=environment, start_new_session=True
            )
        started.append(process)
        return log

    def wait(log: Path, words: str) -> str:
        while (found := re.search(words, log.read_text())) is None:
            if any(process.poll() is not None for process in started):
                raise SystemExit(f"Spark did not start:\n{log.read_text()}")
            time.sleep(0.1)
        return found[0]

    try:
        master = wait(start("master.Master"), r"spark://\S+:\d+")
        size = ("--cores", "1", "--memory", "600m", "--work-dir", str(directory))
        for log in [start("worker.Worker", *size, master) for _ in range(workers)]:
            wait(log, "Successfully registered with master")
        yield SparkCluster(master, started[1:])
    finally:
        for process in started:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def session_on(master: str) -> SparkSession:
    return session(
        "cluster",
        master=master,
        spark__driver__host="127.0.0.1",
        spark__driver__bindAddress="127.0.0.1",
        spark__driver__extraJavaOptions=QUICK_JVM,
        spark__executor__extraJavaOptions=QUICK_JVM,
        spark__executor__memory="512m",
        spark__sql__shuffle__partitions="2",
        # The first job waits until both executors are there.
        spark__scheduler__minRegisteredResourcesRatio="1.0",
        spark__scheduler__maxRegisteredResourcesWaitingTime="300s",
    )


# The job


def send_orders(namesrv: str) -> Revenue:
    chance = random.Random(2026)
    revenue: Revenue = dict.fromkeys(REGIONS, 0)
    with Producer("tills", namesrv=namesrv) as producer:
        for _ in range(ORDERS):
            region, cents = chance.choice(REGIONS), chance.randint(100, 50_000)
            producer.send(Message.of("Orders", {"region": region, "cents": cents}))
            revenue[region] += cents
    return revenue


def add_up(spark: SparkSession, namesrv: str, checkpoint: str, workers: SparkCluster) -> Revenue:
    orders = (
        spark.readStream.format("rocketmq")
        .option("namesrv", namesrv)
        .option("subscribe", "Orders")
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", ORDERS_PER_BATCH)
        .option("valueFormat", "json")
        .option("valueSchema", "region string, cents bigint")
        .load()
    )
    revenue: Revenue = {}

    def keep(frame: DataFrame, batch: int) -> None:
        if batch == DEADLY_BATCH:
            workers.kill(0)
            print(f"killed a worker and its executor in batch {batch}")
        # In the mode "complete" these are the totals after all batches so far.
        revenue.update({row.region: row.cents for row in frame.collect()})

    totals = orders.groupBy("value.region").sum("value.cents").toDF("region", "cents")
    writer = totals.writeStream.foreachBatch(keep).outputMode("complete")
    query = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
    query.awaitTermination()
    return revenue


def main() -> int:
    with (
        tempfile.TemporaryDirectory(prefix="pyromq-spark-") as directory,
        cluster() as running,
        spark_cluster(Path(directory), workers=2) as workers,
        session_on(workers.master) as spark,
    ):
        sent = send_orders(running.namesrv)
        revenue = add_up(spark, running.namesrv, f"{directory}/checkpoint", workers)
    for region in REGIONS:
        print(f"{region}: {sent[region]} cents sent, {revenue[region]} added up")
    print("Totals agree to the cent." if revenue == sent else "Totals differ.")
    return 0 if revenue == sent else 1


if __name__ == "__main__":
    sys.exit(main())
