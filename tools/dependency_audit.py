"""Known weaknesses of the pinned dependencies: python -m tools.dependency_audit PROGRAM (pip-audit)

pip-audit succeeds, too, if it could look up nothing. Here that fails: exit status 0 says that every one was
looked up and has no known weakness, 1 that some have one, 3 that some could not be looked up.
"""

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec
from tools.rounds import say

CLEAN, WEAK, UNKNOWN = 0, 1, 3
_PINNED: Final = Path(__file__).resolve().parents[1] / "constraints.txt"
_TIMEOUT_S: Final = 600


def verdict(report: Mapping[str, Any], pinned: int) -> tuple[int, list[str]]:
    """The exit status for a report of pip-audit about so many dependencies, and what to say."""
    listed = report.get("dependencies", [])
    weak = [
        f"{each['name']} {each['version']}: {found['id']}, mended in {' or '.join(found['fix_versions'])}"
        for each in listed
        for found in each.get("vulns", ())
    ]
    looked_up = sum("vulns" in each for each in listed)
    if weak:
        return WEAK, weak
    if looked_up < pinned:
        return UNKNOWN, [f"the audit could not run: {looked_up} of {pinned} dependencies could be looked up"]
    return CLEAN, [f"{looked_up} dependencies, none with a known weakness"]


def main(program: str) -> int:
    pinned = [line for line in _PINNED.read_text().splitlines() if "==" in line]
    command = [
        program,
        "-r",
        str(_PINNED),
        "--no-deps",
        "--disable-pip",
        "-f",
        "json",
        "--progress-spinner",
        "off",
    ]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
        report = msgspec.json.decode(done.stdout)
    except (OSError, subprocess.TimeoutExpired, msgspec.DecodeError) as problem:
        report = {}
        say(f"pip-audit failed: {problem}")
    status, lines = verdict(report, len(pinned))
    say("\n".join(lines))
    return status


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1]))
