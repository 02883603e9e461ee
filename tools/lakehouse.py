"""Our Delta and Iceberg tables, read by the connectors that users of Spark have, on a Spark that these know.

    python -m tools.lakehouse

Needs PyPI (older PySparks, into the user's cache directory) and Maven Central (the connectors). Exit status 3
says that these could not be had; everything else that is not 0 is our own fault.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Final, NamedTuple

from pyiceberg.table import StaticTable
from tests.support.apache_releases import UNAVAILABLE, PeerUnavailable, cache_directory, say
from tools.engines import changed

from pyromq import Message, Producer
from pyromq.spark.pipelines.archive import archive
from pyromq.spark.pipelines.compact import compact
from pyromq.spark.pipelines.quiet import quiet_session
from pyromq.spark.session import prepare_environment
from pyromq.testing import cluster


class Reader(NamedTuple):
    form: str
    pyspark: str
    package: str


READERS: Final = (
    Reader("delta", "4.2.0", "io.delta:delta-spark_4.2_2.13:4.4.0"),
    Reader("iceberg", "4.1.4", "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0"),
)
CHANGED: Final = "changed"
TOPICS: Final = {"Orders": 30, "Payments": 20}
_COUNTS: Final = """
import inspect, json, sys
from datetime import UTC
from pyspark.sql.datasource import DataSourceStreamReader
from pyspark.sql import SparkSession
form, package, lake, changed, cache = sys.argv[1:]
builder = SparkSession.builder.master("local[1]").config("spark.jars.packages", package)
builder = builder.config("spark.jars.ivy", cache).config("spark.ui.enabled", "false")
# A few rows need no 200 tasks.
builder = builder.config("spark.sql.shuffle.partitions", "1")
builder = builder.config("spark.databricks.delta.snapshotPartitions", "1")
if form == "delta":
    builder = builder.config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
    builder = builder.config(
        "spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog"
    )
spark = builder.getOrCreate()
frame = spark.read.format(form).load(lake)
frame.createOrReplaceTempView("lake")
rows = spark.sql("SELECT topic, count(*), sum(value.id) FROM lake GROUP BY topic").collect()
notes = frame.where("value.note is not null and day = to_date(timestamp)").count()
takes = list(inspect.signature(DataSourceStreamReader.latestOffset).parameters)[1:]
table = [row.asDict(recursive=True) for row in spark.read.format(form).load(changed).orderBy("id").collect()]
for row in table:
    row["at"] = row["at"].replace(tzinfo=UTC)
table = json.loads(json.dumps(table, default=str))
print("FOUND " + json.dumps([{row[0]: [row[1], row[2]] for row in rows}, notes, takes, table]))
"""
NEEDED: Final = ["start", "limit"]
"""What Spark must tell a stream for a batch to have an end: PySpark 4.1 does not."""


def main() -> int:
    try:
        pythons = {reader: _python(reader.pyspark) for reader in READERS}
    except PeerUnavailable as problem:
        say(f"NOT RUN: {problem}")
        return UNAVAILABLE
    with tempfile.TemporaryDirectory(prefix="pyromq-lakehouse-") as scratch:
        _make_tables(Path(scratch))
        rows = {reader.form: changed(reader.form, Path(scratch, CHANGED, reader.form)) for reader in READERS}
        deletes = StaticTable.from_metadata(str(Path(scratch, CHANGED, "iceberg"))).inspect.delete_files()
        assert deletes.num_rows, "the changed table has no delete files"
        for reader, python in pythons.items():
            try:
                found = _counts(reader, python, Path(scratch))
            except PeerUnavailable as problem:
                say(f"NOT RUN: {problem}")
                return UNAVAILABLE
            sums = {topic: [count, sum(range(count))] for topic, count in TOPICS.items()}
            suffices = reader.pyspark.split(".") >= ["4", "2"]
            expected = [sums, sum(TOPICS.values()) // 2, NEEDED if suffices else []]
            if found[:3] != expected:
                say(f"{reader}: {found[:3]} instead of {expected}")
                return 1
            if found[3] != rows[reader.form]:
                pairs = zip(found[3], rows[reader.form], strict=False)
                wrong = [pair for pair in pairs if pair[0] != pair[1]]
                say(f"{reader}: changed rows: {len(found[3])}, {len(wrong)} differ: {wrong[:2]}")
                return 1
            say(f"{reader.package} on PySpark {reader.pyspark} reads what we wrote")
    return 0


def _make_tables(directory: Path) -> None:
    """Two batches in each table, the second one with a new field, and their files joined."""
    spark = quiet_session("lakehouse", master="local[2]")
    schemas = ("id bigint", "id bigint, note string")
    with cluster(directory / "store") as running:
        options = {"namesrv": running.namesrv, "subscribe": ",".join(TOPICS), "valueFormat": "json"}
        for half, schema in enumerate(schemas):
            with Producer("lakehouse", namesrv=running.namesrv) as producer:
                for topic, count in TOPICS.items():
                    for number in range(half * count // 2, (half + 1) * count // 2):
                        producer.send(Message(topic, json.dumps({"id": number, "note": "hello"}).encode()))
            for reader in READERS:
                lake = str(directory / reader.form)
                archive(spark, options | {"valueSchema": schema}, lake, form=reader.form)
                if half:
                    say(f"{reader.form}: {compact(spark, lake)}")
    spark.stop()


def _python(version: str) -> Path:
    """A Python that has this PySpark; made once."""
    home = cache_directory().parent / "pyspark" / version
    python = home / "bin" / "python"
    if (home / "complete").exists():
        return python
    say(f"installing PySpark {version} ...")
    subprocess.run([sys.executable, "-m", "venv", "--clear", str(home)], check=True)
    wanted = [f"pyspark=={version}"]
    done = subprocess.run(
        [python, "-m", "pip", "install", "-q", *wanted], capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise PeerUnavailable(f"could not install PySpark {version}: {done.stderr.strip()[-300:]}")
    (home / "complete").touch()
    return python


def _counts(reader: Reader, python: Path, directory: Path) -> list[Any]:
    lake, changed_table = directory / reader.form, directory / CHANGED / reader.form
    ivy = cache_directory().parent / "ivy"
    prepare_environment()
    done = subprocess.run(
        [python, "-c", _COUNTS, reader.form, reader.package, str(lake), str(changed_table), str(ivy)],
        capture_output=True,
        text=True,
        check=False,
        env=_environment(python) | {"TZ": "UTC"},
    )
    for line in done.stdout.splitlines():
        if line.startswith("FOUND "):
            found: list[Any] = json.loads(line.removeprefix("FOUND "))
            return found
    if "unresolved dependency" in done.stderr or "download failed" in done.stderr:
        raise PeerUnavailable(f"could not fetch {reader.package} from Maven Central")
    raise AssertionError(f"{reader} found nothing:\n{done.stderr[-6000:]}")


def _environment(python: Path) -> dict[str, str]:
    """Nothing of the Spark that we have ourselves, but its Java."""
    kept = {name: value for name, value in os.environ.items() if name not in ("SPARK_HOME", "PYTHONPATH")}
    return kept | {"PYSPARK_PYTHON": str(python), "PYSPARK_DRIVER_PYTHON": str(python)}


if __name__ == "__main__":
    sys.exit(main())
