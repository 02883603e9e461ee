"""Options stand in one place: everything else that lists them is made from it."""

from pathlib import Path

import pytest
from tools.option_types import WRITTEN, fresh
from tools.spark_options import PAGE, page


@pytest.mark.parametrize("path", WRITTEN, ids=lambda path: path.name)
def test_the_types_of_client_options_are_fresh(path: Path) -> None:
    assert path.read_text() == fresh(path), "run `make docs`"


def test_the_page_of_spark_options_is_fresh() -> None:
    assert PAGE.read_text() == page(), "run `make docs`"
