"""Fuzzes one target in this process: python -m tests.native_fuzz.one_target NAME [OPTIONS OF LIBFUZZER]

Started by `python -m tests.native_fuzz`, which sees to the sanitizers.
"""

import sys

import atheris  # type: ignore[import-not-found, import-untyped, unused-ignore]
from tests.native_fuzz.targets import TARGETS, AtASocket

_MAX_HOLD_S = 0.2
"""Under sanitizers code takes several times as long."""

if __name__ == "__main__":
    AtASocket.max_hold_s = _MAX_HOLD_S
    atheris.Setup([sys.argv[0], *sys.argv[2:]], TARGETS[sys.argv[1]].fuzz)
    atheris.Fuzz()
