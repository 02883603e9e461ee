"""The TypedDicts of client options, written from the settings in the same file.

Editors and type checkers know keyword arguments from a TypedDict only, and none can be derived in a way that
they understand.

python -m tools.option_types    (writes the classes anew)
"""

import ast
from pathlib import Path

from tests.support.places import ROOT

_CLIENT = ROOT / "src" / "pyromq" / "client"
WRITTEN = {
    _CLIENT / "settings.py": ["Client"],
    _CLIENT / "producer_settings.py": ["Producer"],
    _CLIENT / "consumer" / "settings.py": ["Consumer", "Push", "Pull", "Simple"],
}
_GIVEN_APART = "namesrv"


def fresh(path: Path) -> str:
    """The file as it should be."""
    text = path.read_text()
    for name in WRITTEN[path]:
        text = _with_options(text, name)
    return text


def _with_options(text: str, name: str) -> str:
    classes = {node.name: node for node in ast.parse(text).body if isinstance(node, ast.ClassDef)}
    options = classes[f"{name}Options"]
    rows = [
        f"    {ast.unparse(node.target)}: {ast.unparse(node.annotation)}"
        for node in classes[f"{name}Settings"].body
        if isinstance(node, ast.AnnAssign) and ast.unparse(node.target) != _GIVEN_APART
    ]
    docstring = options.body[0]
    lines = text.splitlines()
    assert docstring.end_lineno is not None
    assert options.end_lineno is not None
    lines[docstring.end_lineno : options.end_lineno] = ["", *rows]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    for path in WRITTEN:
        path.write_text(fresh(path))
