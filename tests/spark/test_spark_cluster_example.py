"""The example of a standalone cluster does what it says; it shares no session with other tests."""

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


# Six JVMs: half a minute on a quiet machine, many on a busy one.
@pytest.mark.timeout(1800)
def test_a_query_survives_the_loss_of_a_worker(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / "spark_cluster.py")],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=False,
    )
    lines = done.stdout.splitlines()
    assert lines[0] == "killed a worker and its executor in batch 2", done.stderr[-4000:]
    assert lines[-1] == "Totals agree to the cent."
    assert len(lines) == 7
