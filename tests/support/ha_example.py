"""The example of deploy/ha on ports that no other process takes."""

import importlib.util
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support.places import ROOT

from pyromq.testing.held_ports import held_port

_SCRIPT = ROOT / "deploy" / "ha" / "cluster.py"
_PORTS = (0, 1, 2, *(broker + distance for broker in (10, 20, 30, 40) for distance in (-2, 0, 1, 5)))


def load() -> Any:
    """The script as a module."""
    spec = importlib.util.spec_from_file_location("ha_cluster", _SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@contextmanager
def ha_example(directory: Path) -> Iterator[Any]:
    """All of its servers, its topic and its users."""
    with held_port(_PORTS) as port:
        cluster = load().Cluster(directory, port)
        cluster.make()
        try:
            cluster.start_all()
            cluster.grant()
            yield cluster
        finally:
            cluster.stop_all()
