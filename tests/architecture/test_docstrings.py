"""A docstring names the thing or says what is done; it does not begin as an answer to a question."""

import re
from pathlib import Path

import pytest

ROOTS = ("src", "native/src")
OPENS_AS_ANSWER = re.compile(r'^\s*"""(?:What|Who)\b', re.MULTILINE)


@pytest.mark.parametrize("root", ROOTS)
def test_no_docstring_begins_with_what_or_who(root: str) -> None:
    found = [
        f"{path}: {match[0].strip()}"
        for path in sorted(Path(root).rglob("*"))
        if path.suffix in {".py", ".pyx", ".pxd", ".pyi"}
        for match in OPENS_AS_ANSWER.finditer(path.read_text())
    ]
    assert not found
