"""The project for Declarative Pipelines runs, with Spark's own program for it."""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.support.brief_consumer import consume_with

from pyromq import GiveUp, Message, Producer, ReceivedMessage
from pyromq.testing import RunningCluster

if TYPE_CHECKING:
    from tests.spark.conftest import Topics

pytest.importorskip("grpc", reason="Declarative Pipelines need pyspark[pipelines]")
pytest.importorskip("yaml", reason="Declarative Pipelines need pyspark[pipelines]")

# Half a minute on a quiet machine, many on a busy one.
LONGEST_S = 1500
pytestmark = pytest.mark.timeout(1800)
PROJECT = Path(__file__).resolve().parents[2] / "examples" / "spark_declarative"


def run_project(running: RunningCluster, project: Path) -> tuple[int, str]:
    spec = (PROJECT / "spark-pipeline.yml").read_text()
    spec = spec.replace("127.0.0.1:9876", running.namesrv)
    spec = spec.replace("file:///tmp/pyromq-declarative", (project / "storage").as_uri())
    (project / "spark-pipeline.yml").write_text(spec)
    programs = Path(sys.executable).parent
    environment = os.environ | {
        "PATH": f"{programs}:{os.environ['PATH']}",
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    command = [str(programs / "spark-pipelines"), "run", "--spec", "spark-pipeline.yml"]
    command += ["--conf", "spark.python.unix.domain.socket.enabled=true"]
    with subprocess.Popen(
        command,
        cwd=project,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            said, _ = process.communicate(timeout=LONGEST_S)
        except BaseException:
            # It is a shell, a Python and a Java.
            os.killpg(process.pid, signal.SIGKILL)
            raise
    return process.returncode, said


def test_the_declared_pipelines_fill_tables_and_a_topic(topics: "Topics", tmp_path: Path) -> None:
    broker = topics.running
    topics.create("Revenue", queues=1)
    with Producer("tills", namesrv=broker.namesrv, trace=True) as producer:
        for number in range(12):
            order = {"region": "ab"[number % 2], "cents": number, "at": f"2026-03-01T12:{number:02}:00Z"}
            producer.send(Message("Orders", json.dumps(order).encode(), keys=[f"o-{number}"]))

    def give_up_on_the_first(message: ReceivedMessage) -> None:
        if message.keys[0] == "o-0":
            raise GiveUp("not this one")

    consume_with(broker, "clerks", "Orders", 12, give_up_on_the_first, trace=True)
    project = tmp_path / "project"
    shutil.copytree(PROJECT, project)
    code, said = run_project(broker, project)
    assert code == 0, said[-4000:]

    import pyarrow.parquet as pq

    def table(name: str) -> list[dict[str, object]]:
        found = [path for path in (project / "spark-warehouse").rglob(name) if path.is_dir()]
        files = [
            file for path in found for file in path.rglob("*.parquet") if not file.parent.name.startswith("_")
        ]
        return [row for file in files for row in pq.read_table(file).to_pylist()]

    assert sorted(str(row["cents"]) for row in table("orders")) == sorted(map(str, range(12)))
    # The last two minutes are not complete yet.
    assert len(table("revenue")) == 10
    assert [(row["group"], row["origin"], row["letters"]) for row in table("dead_letters")] == [
        ("clerks", "Orders", 1)
    ]
    assert [(row["group"], row["messages"]) for row in table("latencies")] == [("clerks", 12)]
    minutes: list[str] = []
    consume_with(broker, "readers", "Revenue", 10, lambda message: minutes.append(message.body.decode()))
    assert sorted(json.loads(minute)["cents"] for minute in minutes) == list(range(10))
