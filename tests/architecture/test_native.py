"""The compiled core repeats nothing by hand, and its files are where those of the source are."""

import tomllib

from tests.support.places import ROOT
from tools.native_declarations import PACKAGE, PATH, fresh


def test_numbers_and_names_that_are_declared_in_the_source_are_fresh() -> None:
    assert PATH.read_text() == fresh(), "run `make docs`"


def test_its_folders_are_those_of_the_source() -> None:
    folders = {path.parent.name for path in PACKAGE.glob("*/*.pyx")}
    assert folders <= {path.name for path in (ROOT / "src" / "pyromq").iterdir() if path.is_dir()}


def test_both_distributions_have_the_same_version() -> None:
    files = (ROOT / "pyproject.toml", ROOT / "native" / "pyproject.toml")
    versions = {tomllib.loads(path.read_text())["project"]["version"] for path in files}
    assert len(versions) == 1
