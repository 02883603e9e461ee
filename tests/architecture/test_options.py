"""Options stand in one place: everything else that lists them is made from it."""

from pathlib import Path

import pytest
from tests.support.option_types import WRITTEN, fresh


@pytest.mark.parametrize("path", WRITTEN, ids=lambda path: path.name)
def test_the_types_of_client_options_are_fresh(path: Path) -> None:
    assert path.read_text() == fresh(path), "run `make docs`"
