"""A job that signs its requests: its secret is in nothing that Spark writes or shows.

The job is a program of its own, with the event log and the user interface on: batch and stream, reading and
writing, views and tables, a plan explained, a task that fails.
"""

import json
import os
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from tests.support.access import ROOT, SECURE
from tests.support.places import ROOT as REPOSITORY
from tests.support.quick_jvm import QUICK_JVM

from pyromq import Message, Producer
from pyromq.testing import cluster

SECRET = ROOT.secret_key
PAGES = ("/jobs/", "/stages/", "/environment/", "/executors/", "/SQL/", "/StreamingQuery/", "/storage/")


def say(*values: object) -> None:
    sys.stdout.write(" ".join(map(str, values)) + "\n")


def job(place: Path, options: dict[str, str], key_file: str) -> None:
    """The program."""
    from pyspark.errors import PySparkException
    from pyspark.sql import DataFrame

    from pyromq.spark import session

    spark = session(
        "secrets",
        master="local[2]",
        memory="600m",
        **{
            "spark.eventLog.enabled": "true",
            "spark.eventLog.dir": f"file://{place}/events",
            "spark.eventLog.compress": "false",
            "spark.ui.enabled": "true",
            "spark.ui.port": "0",
            "spark.sql.warehouse.dir": str(place / "warehouse"),
            "spark.sql.shuffle.partitions": "1",
            "spark.driver.extraJavaOptions": QUICK_JVM,
        },
    )
    spark.sparkContext.setLogLevel("INFO")

    def read(**more: str) -> DataFrame:
        return spark.read.format("rocketmq").options(**options | {"subscribe": "Orders"} | more).load()

    def explained(frame: DataFrame) -> None:
        for mode in ("extended", "formatted", "cost", "codegen"):
            frame.explain(mode)
        frame.printSchema()
        say(frame.schema.json(), frame, frame._jdf.queryExecution().toString())

    explained(read())
    assert read().count() == 3
    writer = read(valueFormat="string").select("value").write.format("rocketmq")
    writer.options(**options | {"topic": "Copies"}).mode("append").save()
    stream = spark.readStream.format("rocketmq")
    stream = stream.options(**options | {"subscribe": "Orders", "startingOffsets": "earliest"})
    for number, sink in enumerate(({"format": "rocketmq", "topic": "Copies"}, {"format": "parquet"})):
        given = options | {"topic": "Copies"} if sink["format"] == "rocketmq" else {}
        query = (
            stream.load()
            .select("value")
            .writeStream.format(sink["format"])
            .options(**given)
            .option("checkpointLocation", str(place / f"checkpoint{number}"))
            .trigger(availableNow=True)
        )
        running = query.start() if given else query.start(str(place / "parquet"))
        running.awaitTermination()
        running.explain(True)
        say(running.recentProgress, running.status, running.lastProgress)
    listed = ", ".join(f"`{key}` '{value}'" for key, value in (options | {"subscribe": "Orders"}).items())
    spark.sql(f"CREATE TEMPORARY VIEW seen USING rocketmq OPTIONS ({listed})")
    explained(spark.sql("SELECT count(*) FROM seen"))
    spark.sql("SELECT count(*) FROM seen").collect()
    for statement in ("DESCRIBE EXTENDED seen", "SHOW TABLES"):
        say(spark.sql(statement).collect())
    kept = f"namesrv '{options['namesrv']}', subscribe 'Orders', keyFile '{key_file}'"
    spark.sql(f"CREATE TABLE kept USING rocketmq OPTIONS ({kept})")
    assert spark.sql("SELECT value FROM kept").count() == 3
    spark.sql("SELECT value FROM kept").write.parquet(str(place / "from-table"))
    say(spark.sql("DESCRIBE EXTENDED kept").collect(), spark.sql("SHOW CREATE TABLE kept").collect())
    with pytest.raises(PySparkException, match="keyFile"):
        spark.sql(f"CREATE TABLE told USING rocketmq OPTIONS ({listed})")
    for wrong in ({"subscribe": "Missing"}, {"minPartitions": "x"}, {"secretKeyy": options["secretKey"]}):
        try:
            read(**wrong).count()
        except PySparkException as problem:
            say(problem)
    told = shown_by(spark.sparkContext.uiWebUrl or "", spark.sparkContext.applicationId)
    (place / "pages.txt").write_text(told)
    spark.stop()


def shown_by(url: str, application: str) -> str:
    """The user interface and its REST interface."""

    def get(path: str) -> str:
        with urllib.request.urlopen(url + path) as answer:
            return str(answer.read().decode())

    rest = f"/api/v1/applications/{application}"
    found = [get(page) for page in PAGES]
    found += [
        get(rest + path) for path in ("/jobs", "/stages", "/environment", "/executors", "/sql?length=1000")
    ]
    executions = json.loads(get(f"{rest}/sql?length=1000"))
    found += [get(f"/SQL/execution/?id={each['id']}") for each in executions]
    found += [
        get(f"/stages/stage/?id={each['stageId']}&attempt=0") for each in json.loads(get(f"{rest}/stages"))
    ]
    return "\n".join(found)


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The directory of the job, and what it printed."""
    place = tmp_path_factory.mktemp("secrets")
    (place / "events").mkdir()
    key_file = place / "admin.properties"
    key_file.write_text(f"AccessKey={ROOT.access_key}\nSecretKey={SECRET}\n")
    with cluster(place / "store", **SECURE) as running:
        with Producer("tests", running.namesrv, credentials=ROOT) as producer:
            for number in range(3):
                producer.send(Message("Orders", b"%d" % number))
            producer.send(Message("Copies", b"first"))
        options = {"namesrv": running.namesrv, "accessKey": ROOT.access_key, "secretKey": SECRET}
        given = json.dumps([str(place), options, str(key_file)])
        run = subprocess.run(
            [sys.executable, "-m", "tests.spark.test_spark_secrets"],
            input=given,
            capture_output=True,
            text=True,
            check=False,
            cwd=place,
            env=os.environ | {"SPARK_LOCAL_IP": "127.0.0.1", "PYTHONPATH": str(REPOSITORY)},
            timeout=500,
        )
    assert run.returncode == 0, run.stdout[-3000:] + run.stderr[-6000:]
    return place, run.stdout + run.stderr


def with_secret(directory: Path) -> list[Path]:
    secret = SECRET.encode()
    return [path for path in directory.rglob("*") if path.is_file() and secret in path.read_bytes()]


def test_the_secret_is_in_no_plan_no_output_and_no_log(done: tuple[Path, str]) -> None:
    _, printed = done
    assert "== Physical Plan ==" in printed
    assert [line for line in printed.splitlines() if SECRET in line] == []


@pytest.mark.parametrize(
    "what", ["events", "checkpoint0", "checkpoint1", "parquet", "from-table", "warehouse"]
)
def test_the_secret_is_in_no_file(done: tuple[Path, str], what: str) -> None:
    """The event log, the checkpoints of a source and of a sink, files with rows of a topic and of a table."""
    place, _ = done
    assert any((place / what).rglob("*")) or what == "warehouse"
    assert with_secret(place / what) == []


def test_the_secret_is_on_no_page(done: tuple[Path, str]) -> None:
    place, _ = done
    pages = (place / "pages.txt").read_text()
    assert len(pages) > 10_000
    assert SECRET not in pages


if __name__ == "__main__":
    words: Any = json.loads(sys.stdin.readline())
    job(Path(words[0]), words[1], words[2])
