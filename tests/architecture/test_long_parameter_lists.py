"""A function takes at most seven parameters: what belongs together is passed as one value.

The command line is left out: there a parameter is an option.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

import pyromq

ROOT = Path(pyromq.__file__).parent
MAX_PARAMETERS = 7

KNOWN = {
    # Declarations: each parameter is a word of a small language.
    "config/options.py setting",
    # One call for each message: a value for its parameters would cost more than the call.
    "protocol/record.py pack_record_into",
    "store/appending.py LogAppending.append",
    "store/appending.py LogAppending.append_batch",
    "store/appending.py LogAppending.append_encoded_batch",
    "store/reading.py StoreReader._compiled_slices",
    # Called by users, with keywords.
    "spark/pipelines/changes.py apply_changes",
    "spark/pipelines/redrive.py redrive",
    "spark/pipelines/replay.py replay",
}
"""This list only gets shorter."""


def _functions(node: ast.AST, inside: str = "") -> Iterator[tuple[str, int]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            given = child.args
            names = [each.arg for each in (*given.posonlyargs, *given.args, *given.kwonlyargs)]
            count = len(names) - (names[:1] in (["self"], ["cls"]))
            yield inside + child.name, count + (given.vararg is not None) + (given.kwarg is not None)
        if isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield from _functions(child, f"{inside}{child.name}.")
        else:
            yield from _functions(child, inside)


def test_no_function_takes_more_than_seven_parameters() -> None:
    long = {
        f"{path.relative_to(ROOT).as_posix()} {name}"
        for package in ROOT.iterdir()
        if package.name not in ("apps", "cli")
        for path in ([package] if package.suffix == ".py" else package.rglob("*.py"))
        for name, count in _functions(ast.parse(path.read_text()))
        if count > MAX_PARAMETERS
    }
    assert long == KNOWN, "pass values, or take the mended ones off the list"
