"""The example of a crash does what it says."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]


def test_a_killed_cluster_loses_not_a_cent() -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / "crash.py"), "--orders", "1500"],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "killed the cluster with SIGKILL" in done.stdout
    assert "Totals agree to the cent." in done.stdout
