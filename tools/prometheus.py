"""Prometheus and promtool: those of this machine, or else of Debian's package, which is only unpacked.

python -m tools.prometheus (downloads the package by apt where it may)

Exit status 3 says that they cannot be had.
"""

import shutil
import subprocess
import sys
from typing import Final

from tests.support.places import ROOT

UNAVAILABLE: Final = 3
_UNPACKED: Final = ROOT / "build" / "prometheus"
_TIMEOUT_S: Final = 300


def program(name: str) -> str:
    """The path of `prometheus` or `promtool`."""
    found = shutil.which(name) or shutil.which(name, path=str(_UNPACKED / "usr" / "bin"))
    if found is None:
        raise FileNotFoundError(f"there is no {name}: python -m tools.prometheus")
    return found


def main() -> int:
    try:
        program("promtool")
        return 0
    except FileNotFoundError:
        _UNPACKED.mkdir(parents=True, exist_ok=True)
    for command in (["apt-get", "download", "prometheus"], ["sh", "-c", "dpkg -x prometheus_*.deb ."]):
        done = subprocess.run(
            command, cwd=_UNPACKED, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
        )
        if done.returncode:
            sys.stderr.write(f"Prometheus cannot be had here: {done.stderr.strip()}\n")
            return UNAVAILABLE
    return 0


if __name__ == "__main__":
    sys.exit(main())
