"""Fuzzes one target in this process: python -m tests.native_fuzz.one_target NAME [OPTIONS OF LIBFUZZER]

Started by `python -m tests.native_fuzz`, which sees to the sanitizers.
"""

import sys

import atheris  # type: ignore[import-not-found, import-untyped, unused-ignore]
from tests.native_fuzz.targets import TARGETS

if __name__ == "__main__":
    atheris.Setup([sys.argv[0], *sys.argv[2:]], TARGETS[sys.argv[1]].fuzz)
    atheris.Fuzz()
