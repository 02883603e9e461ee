"""What is derived from the declarations and kept in the tree is fresh, and loads."""

from pathlib import Path

import pytest
from tests.support.places import ROOT

from pyromq.config.loading import file_layer, load
from pyromq.config.reference import example_file, markdown
from pyromq.config.settings import Settings
from pyromq.controller.settings import ControllerSettings
from pyromq.nameserver.settings import NameServerSettings

PARTS: list[type[Settings]] = [NameServerSettings, ControllerSettings]


@pytest.mark.parametrize("part", PARTS, ids=lambda part: part.PART)
def test_the_reference_page_is_fresh(part: type[Settings]) -> None:
    page = ROOT / "docs" / "reference" / f"{part.PART}-settings.md"
    assert page.read_text() == markdown(part), f"run: pyromq config {part.PART} --markdown > {page.name}"


@pytest.mark.parametrize("part", PARTS, ids=lambda part: part.PART)
def test_the_example_file_is_fresh_and_loads(part: type[Settings], tmp_path: Path) -> None:
    example = ROOT / "conf" / f"{part.PART}.conf"
    assert example.read_text() == example_file(part), (
        f"run: pyromq config {part.PART} --example > {example.name}"
    )
    assert load(part, [file_layer(example)]).settings.describe() == part().describe()

    uncommented = tmp_path / example.name
    uncommented.write_text(
        "".join(
            line.removeprefix("#")
            for line in example.read_text().splitlines(True)
            if not line.startswith("# ")
        )
    )
    loaded = load(part, [file_layer(uncommented)])
    assert loaded.notices == ()
    assert loaded.settings.describe() == part().describe()
