"""Finds the compiled versions of hot code, if they are installed.

`pyromq-native` is optional: callers get its module or None, and then use their own Python version.
`PYROMQ_NATIVE=0` in the environment turns it off.
"""

import os
from importlib import import_module
from types import ModuleType
from typing import Final

REVISION: Final = 7
"""The revision of `pyromq_native` that matches this source."""


def _probe() -> tuple[bool, str]:
    if os.environ.get("PYROMQ_NATIVE", "1") == "0":
        return False, "turned off by PYROMQ_NATIVE=0"
    try:
        found = import_module("pyromq_native").REVISION
    except ImportError as error:
        return False, f"not installed ({error})"
    if found != REVISION:
        return False, f"revision {found} is installed, {REVISION} is needed: install pyromq-native again"
    return True, f"revision {REVISION}"


IS_COMPILED, WHY = _probe()


def twin(name: str) -> ModuleType | None:
    """The module `pyromq_native.<name>`, or None if the Python version must be used."""
    return import_module(f"pyromq_native.{name}") if IS_COMPILED else None
