"""The pytest fixture `rocketmq`: a cluster for one test, imported only on use."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyromq.testing.clusters import RunningCluster


@pytest.fixture
def rocketmq(tmp_path: Path) -> "Iterator[RunningCluster]":
    """A name server and a broker for the duration of the test."""
    from pyromq.testing.clusters import cluster

    with cluster(tmp_path / "rocketmq") as running:
        yield running
