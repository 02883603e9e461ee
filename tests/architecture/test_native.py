"""The compiled core repeats nothing by hand, and its files are where those of the source are."""

import re
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


def test_the_newest_entry_of_the_changelog_is_this_version_with_its_date() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    newest = re.search(r"(?m)^## .*", (ROOT / "CHANGELOG.md").read_text())
    assert newest is not None
    assert re.fullmatch(rf"## {re.escape(version)} \(\d{{4}}-\d\d-\d\d\)", newest[0])
