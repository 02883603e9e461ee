"""The examples for Spark do what they say, each as a program of its own."""

import re
import subprocess
import sys
from pathlib import Path

from pyromq import Message, Producer
from pyromq.testing import RunningCluster

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def send(running: RunningCluster, *tags: str) -> None:
    with Producer("tills", namesrv=running.namesrv) as producer:
        for tag in tags:
            producer.send(Message("Orders", b"an order", tags=tag))


def test_archive(broker: RunningCluster, tmp_path: Path) -> None:
    send(broker, "Created", "Paid", "Created")
    lake = tmp_path / "lake"
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / "spark_archive.py"), broker.namesrv, "Orders", str(lake)],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert f"3 messages archived in {lake}" in done.stdout
    assert list(lake.rglob("*.parquet"))


def test_stream(broker: RunningCluster, tmp_path: Path) -> None:
    send(broker, "Created", "Paid", "Created")
    with subprocess.Popen(
        [sys.executable, str(EXAMPLES / "spark_stream.py"), broker.namesrv, "Orders"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        cwd=tmp_path,
    ) as process:
        try:
            assert process.stdout is not None
            counts: dict[str, int] = {}
            while len(counts) < 2:
                line = process.stdout.readline()
                assert line, "the example ended"
                if found := re.match(r"\|\s*(Created|Paid)\|\s*(\d+)\|", line):
                    counts[found[1]] = int(found[2])
        finally:
            process.kill()
    assert counts == {"Created": 2, "Paid": 1}
