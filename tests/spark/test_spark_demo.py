"""`make demo` does what it says, with fewer orders."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_the_demo_agrees_to_the_cent_and_leaves_a_plot(tmp_path: Path) -> None:
    plot = tmp_path / "plots" / "demo.png"
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / "demo.py"), "--events", "3000", "--plot", str(plot)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Totals agree to the cent." in done.stdout
    assert "DIFFERENT" not in done.stdout
    assert plot.read_bytes().startswith(b"\x89PNG")
    assert str(plot) in done.stdout
