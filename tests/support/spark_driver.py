"""A streaming query as a program of its own, to be watched, held and killed.

It reads one line of JSON and says on its standard output what happens. Each batch lands in a directory of its
own, written over if the batch is repeated: what lies there in the end is what an idempotent sink would hold.
"""

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, Any

from tests.support.quick_jvm import QUICK_JVM

ROOT = Path(__file__).parents[2]
ANSWER_TIMEOUT_S = 300.0


@dataclass
class Job:
    """What the program is asked to do."""

    master: str
    options: dict[str, str]
    checkpoint: str
    out: str
    held: bool = False
    """Whether each batch waits for a word before it is written."""
    deadly: str | None = None
    """A file: the first task that does not find it makes it, and kills the JVM it runs in."""
    write: dict[str, str] | None = None
    """Options of a topic to which everything read is also written."""
    settings: dict[str, str] = field(default_factory=dict)


class SparkDriver:
    """The program, seen from a test; leaving the `with` block kills it."""

    def __init__(self, job: Job, log: Path) -> None:
        self._job = job
        self._log = log
        self._process: subprocess.Popen[str] | None = None
        self._lines: queue.SimpleQueue[str] = queue.SimpleQueue()

    def __enter__(self) -> "SparkDriver":
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.support.spark_driver"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                cwd=ROOT,
                start_new_session=True,
                env=os.environ | {"SPARK_LOCAL_IP": "127.0.0.1"},
            )
        self._listener = threading.Thread(target=self._listen, args=(self._process.stdout,), daemon=True)
        self._listener.start()
        self.say(json.dumps(asdict(self._job)))
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def say(self, line: str = "") -> None:
        stdin = self._running.stdin
        assert stdin is not None
        stdin.write(line + "\n")
        stdin.flush()

    def hear(self, expected: str) -> None:
        """Wait for a line; lines before it are passed over."""
        while (line := self._next_line()) != expected:
            if not line:
                raise AssertionError(f"{expected!r} was never heard:\n{self._log.read_text()[-4000:]}")

    def _next_line(self) -> str:
        try:
            return self._lines.get(timeout=ANSWER_TIMEOUT_S)
        except queue.Empty:
            return ""

    def _listen(self, stdout: IO[str]) -> None:
        with stdout:
            for line in stdout:
                self._lines.put(line.strip())
        self._lines.put("")

    def finish(self) -> None:
        """Wait for the end of the query."""
        self.hear("done")
        assert self._running.wait(ANSWER_TIMEOUT_S) == 0

    def kill(self) -> None:
        """SIGKILL for the driver, its JVM and whatever they started."""
        process = self._process
        if process is None:
            return
        with contextlib.suppress(ProcessLookupError):  # it may have ended by itself
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        self._listener.join()
        if process.stdin is not None:
            process.stdin.close()
        self._process = None

    @property
    def _running(self) -> "subprocess.Popen[str]":
        assert self._process is not None
        return self._process


def found(out: Path) -> list[int]:
    """The numbers in all batches that were written, sorted."""
    import pyarrow.parquet as pq

    numbers: list[int] = []
    for path in out.glob("*/*.parquet"):
        numbers += [int(value) for value in pq.read_table(path).column("value").to_pylist()]
    return sorted(numbers)


# The program


def _parent_of(pid: int) -> int:
    stat = Path(f"/proc/{pid}/stat")
    if stat.exists():
        return int(stat.read_text().rpartition(")")[2].split()[1])
    return int(subprocess.check_output(["ps", "-o", "ppid=", "-p", str(pid)]))


def _kill_own_jvm_once(mark: str, rows: Iterable[Any]) -> Iterator[Any]:
    """Hand out some rows, then end the executor, which is the parent of the parent of this process."""
    for number, row in enumerate(rows):
        if number == 5 and not os.path.exists(mark):
            Path(mark).touch()
            os.kill(_parent_of(os.getppid()), signal.SIGKILL)
        yield row


def main(lines: IO[str], said: IO[str]) -> None:
    from pyspark.sql import DataFrame

    from pyromq.spark import session

    job = Job(**json.loads(lines.readline()))
    settings = {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraJavaOptions": QUICK_JVM,
        "spark.executor.extraJavaOptions": QUICK_JVM,
        "spark.executor.memory": "512m",
        "spark.sql.shuffle.partitions": "1",
    } | job.settings
    spark = session("pyromq-tests", master=job.master, memory="600m", **settings)

    def say(line: str) -> None:
        said.write(line + "\n")
        said.flush()

    def land(frame: DataFrame, batch_id: int) -> None:
        say(f"batch {batch_id} begins")
        if job.held:
            lines.readline()
        rows = frame.selectExpr("cast(value as string) as value", "queueId", "offset")
        mark = job.deadly
        if mark is not None:
            moved = rows.rdd.mapPartitions(lambda part: _kill_own_jvm_once(mark, part))
            rows = spark.createDataFrame(moved, "value string, queueId int, offset bigint")
        rows.write.mode("overwrite").parquet(f"{job.out}/{batch_id}")
        if job.write is not None:
            writer = frame.select("value").write.format("rocketmq").options(**job.write)
            writer.mode("append").save()
        say(f"batch {batch_id} ends")

    say("session")
    stream = spark.readStream.format("rocketmq").options(**job.options).load()
    writer = stream.writeStream.foreachBatch(land).option("checkpointLocation", job.checkpoint)
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    spark.stop()
    say("done")


if __name__ == "__main__":
    main(sys.stdin, sys.stdout)
