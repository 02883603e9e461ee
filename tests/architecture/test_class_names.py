"""A public class name means one thing: a reader who searches for it finds one class.

The exceptions are the blocking twins of asyncio's classes.
"""

import ast
from collections import defaultdict
from pathlib import Path

import pyromq

ROOT = Path(pyromq.__file__).parent


def _classes() -> dict[str, list[str]]:
    found: dict[str, list[str]] = defaultdict(list)
    for path in sorted(ROOT.rglob("*.py")):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found[node.name].append(path.relative_to(ROOT).as_posix())
    return found


def _are_twins(paths: list[str]) -> bool:
    """One is for asyncio, the other for plain programs."""
    return len(paths) == 2 and sum(Path(path).stem.startswith("blocking") for path in paths) == 1


def test_no_two_public_classes_have_the_same_name() -> None:
    twice = {name: paths for name, paths in _classes().items() if len(paths) > 1 and not _are_twins(paths)}
    assert not twice
