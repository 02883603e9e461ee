"""Finds the compiled versions of hot code, if they are installed.

`pyromq-native` is optional: callers get its module or None, and then use their own Python version.
`PYROMQ_NATIVE=0` in the environment turns it off.
"""

import os
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Final

REVISION: Final = 26
"""The revision of `pyromq_native` that matches this source."""

MODULES: Final = (
    "answers",
    "appending",
    "checksums",
    "counting",
    "dispatching",
    "fast_acks",
    "fast_ends",
    "fast_path",
    "fast_pulls",
    "fast_sends",
    "front_acks",
    "front_calls",
    "front_received",
    "front_sends",
    "gathering",
    "growing",
    "handler_runs",
    "hashing",
    "headers",
    "hpack",
    "in_flight",
    "known_queues",
    "plain_messages",
    "quick_sends",
    "received",
    "records",
    "requests",
    "route_lookup",
    "rows",
    "rows_to_entries",
    "send_answers",
    "sent",
    "signatures",
    "slicing",
    "taking",
    "unique_keys",
)

_AGAIN = "install pyromq-native again"


def _probe() -> tuple[bool, str]:
    if os.environ.get("PYROMQ_NATIVE", "1") == "0":
        return False, "turned off by PYROMQ_NATIVE=0"
    try:
        found = getattr(import_module("pyromq_native"), "REVISION", None)
    except ImportError as error:
        return False, f"not installed ({error})"
    if found != REVISION:
        return False, f"revision {found} is installed, {REVISION} is needed: {_AGAIN}"
    missing = [name for name in MODULES if find_spec(f"pyromq_native.{name}") is None]
    if missing:
        return False, f"revision {REVISION} is installed without {', '.join(missing)}: {_AGAIN}"
    return True, f"revision {REVISION}"


IS_COMPILED, WHY = _probe()


def twin(name: str) -> ModuleType | None:
    """The module `pyromq_native.<name>`, or None if the Python version must be used."""
    global IS_COMPILED, WHY
    if not IS_COMPILED:
        return None
    try:
        return import_module(f"pyromq_native.{name}")
    except Exception as error:  # built for another Python, for another machine or from other source
        IS_COMPILED = False
        WHY = f"revision {REVISION} is installed, but {name} cannot be loaded ({error}): {_AGAIN}"
        return None
