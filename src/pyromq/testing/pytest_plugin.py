"""The pytest fixture `rocketmq`: a cluster for one test."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from pyromq.testing.cluster import RunningCluster, cluster


@pytest.fixture
def rocketmq(tmp_path: Path) -> Iterator[RunningCluster]:
    """A name server and a broker, running while the test runs."""
    with cluster(tmp_path / "rocketmq") as running:
        yield running
