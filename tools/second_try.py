"""The tests, and those that failed once more, alone.

    python -m tools.second_try PYTEST ARGUMENTS

Tests that start servers share a machine with each other and with strangers, and machines have bad moments. A
few tests that failed are tried once more, one after the other, when everything else is done. They are
named in the end, whatever came of it: a test that is named twice in a week has a defect, or shows one.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

MOST: Final = 8
"""More failures than these are no bad moment."""
SOME_FAILED: Final = 1
_KEPT: Final = "v/cache/lastfailed"


def main(arguments: Sequence[str]) -> int:
    with tempfile.TemporaryDirectory(prefix="pyromq-second-try-") as cache:
        status = _run(cache, arguments)
        failed = failures(Path(cache))
        if status != SOME_FAILED or not 0 < len(failed) <= MOST:
            return status
        _say("Failed beside the others, tried once more alone:", failed)
        status = _run(cache, ["-n", "0", *failed])
        if status == 0:
            _say("FAILED ONCE, and passed alone:", failed)
        return status


def failures(cache: Path) -> list[str]:
    """The tests that the last run left in its cache as failed."""
    kept = cache / _KEPT
    return sorted(json.loads(kept.read_text())) if kept.exists() else []


def _run(cache: str, arguments: Sequence[str]) -> int:
    command = [sys.executable, "-m", "pytest", "-o", f"cache_dir={cache}", *arguments]
    return subprocess.run(command, check=False).returncode


def _say(line: str, tests: Sequence[str]) -> None:
    sys.stdout.write("\n".join(["", line, *(f"  {test}" for test in tests), ""]))
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
