"""Finds the compiled versions of hot code, if they are installed.

`pyromq-native` is optional: callers get its module or None, and then use their own Python version.
`PYROMQ_NATIVE=0` in the environment turns it off.
"""

import os
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Final

REVISION: Final = 32
"""The revision of `pyromq_native` that matches this source."""

MODULES: Final = (
    "broker.counting",
    "broker.fast_acks",
    "broker.fast_ends",
    "broker.fast_path",
    "broker.fast_pulls",
    "broker.fast_sends",
    "broker.known_queues",
    "broker.send_answers",
    "client.fast_batches",
    "client.fast_sends",
    "client.plain_messages",
    "client.sent",
    "client.twin_in_flight_limit",
    "client.twin_pulled_message",
    "client.twin_runs",
    "client.twin_taking",
    "growing",
    "http2.twin_hpack",
    "nameserver.fast_path",
    "protocol.answers",
    "protocol.checksums",
    "protocol.headers",
    "protocol.records",
    "protocol.requests",
    "protocol.unique_keys",
    "proxy.calls",
    "proxy.fast_acks",
    "proxy.fast_incoming",
    "proxy.fast_sends",
    "security.fast_signature",
    "spark.fast_columns",
    "spark.fast_encode",
    "store.fast_appending",
    "store.fast_dispatch",
    "store.fast_key_hash",
    "store.fast_light",
    "store.fast_reading",
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
    missing = [name for name in MODULES if not _is_there(f"pyromq_native.{name}")]
    if missing:
        return False, f"revision {REVISION} is installed without {', '.join(missing)}: {_AGAIN}"
    return True, f"revision {REVISION}"


def _is_there(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except ModuleNotFoundError:  # its folder is missing
        return False


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
