"""Secrets, and what is made of them, are compared in constant time: by `hmac.compare_digest`, never by `==`.

A comparison that ends at the first difference tells a patient stranger how much of a guess was right.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pyromq

ROOT = Path(pyromq.__file__).parent
SECRET = re.compile(
    r"(password|secret|signature|hmac|digest|credential|csrf|(^|_)(token|hash)$)", re.IGNORECASE
)
UNRELATED = {
    "spark/ddl.py": "the words of a table's definition",
    "tier/packing.py": "the checksum of a log file",
    "store/index/index_file.py": "Java's hash of a key",
}
"""Files in which such a name means something that nobody keeps secret, and what."""


def comparisons(source: str) -> Iterator[tuple[int, str]]:
    """The lines that compare something with a telling name, except with a constant."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Compare) and any(isinstance(each, ast.Eq | ast.NotEq) for each in node.ops):
            sides = [node.left, *node.comparators]
            if any(map(_is_constant, sides)):
                continue
            names = [name for side in sides for name in _names(side)]
            if any(map(SECRET.search, names)):
                yield node.lineno, ast.unparse(node)


def _is_constant(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) or any(name.isupper() for name in _names(node))


def _names(node: ast.expr) -> Iterator[str]:
    """What is compared is called: `user.password`, `sign(content)`, `found["Signature"]`."""
    if isinstance(node, ast.Name):
        yield node.id
    elif isinstance(node, ast.Attribute):
        yield node.attr
    elif isinstance(node, ast.Call):
        yield from _names(node.func)
        if isinstance(node.func, ast.Attribute):  # `digest(…).hex()`
            yield from _names(node.func.value)
    elif isinstance(node, ast.Subscript):
        yield from _names(node.value)
        if isinstance(node.slice, ast.Constant):
            yield str(node.slice.value)


def test_no_secret_is_compared_by_its_first_difference() -> None:
    found = {
        f"{path.relative_to(ROOT)}:{line}: {text}"
        for path in sorted(ROOT.rglob("*.py"))
        if str(path.relative_to(ROOT)) not in UNRELATED
        for line, text in comparisons(path.read_text())
    }
    assert found == set()


def test_such_comparisons_are_found() -> None:
    for text in ("a.password == b", "sign(x) != claimed", "h.digest().hex() == given", 'f["Signature"] == s'):
        code = text.replace("sign(x)", "signature_of(x)")
        assert list(comparisons(code)), text
    assert not list(comparisons("secret == ''"))
