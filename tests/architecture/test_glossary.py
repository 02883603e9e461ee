"""The glossary names classes that exist."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
GLOSSARY = ROOT / "docs" / "concepts" / "words.md"
NAMED_CLASS = re.compile(r"`([A-Z][a-z]+(?:[A-Z][a-z]+)*)`")


@pytest.fixture(scope="module")
def source() -> str:
    return "".join(path.read_text() for path in (ROOT / "src").rglob("*.py"))


@pytest.mark.parametrize("name", sorted(set(NAMED_CLASS.findall(GLOSSARY.read_text()))))
def test_every_class_in_the_glossary_exists(name: str, source: str) -> None:
    assert re.search(rf"^class {name}\b", source, re.MULTILINE), name
