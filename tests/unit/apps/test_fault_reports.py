"""A process that ends by a fault says so."""

import subprocess
import sys
from pathlib import Path

_TOUCH_WHAT_IS_GONE = """
import mmap, os, sys
from pyromq.apps.serving import report_faults
report_faults()
descriptor = os.open(sys.argv[1], os.O_RDWR)
mapped = mmap.mmap(descriptor, 0)
os.ftruncate(descriptor, 0)
mapped[5000] = 1
"""


def test_the_end_by_a_touch_of_bytes_that_were_cut_off_is_told_on_stderr(tmp_path: Path) -> None:
    path = tmp_path / "mapped"
    path.write_bytes(bytes(8192))
    ended = subprocess.run(
        [sys.executable, "-c", _TOUCH_WHAT_IS_GONE, str(path)], capture_output=True, text=True, check=False
    )
    assert ended.returncode != 0
    assert "Fatal Python error: Bus error" in ended.stderr
    assert 'File "<string>", line 8' in ended.stderr
