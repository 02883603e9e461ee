"""Servers are killed here in the middle of what they do: their files lie on a disk, where syncs take time."""

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    with TemporaryDirectory(prefix="pyromq-chaos-", dir="/var/tmp") as directory:
        yield Path(directory)
