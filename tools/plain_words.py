"""Finds prose that a native reader stumbles over, in everything that a user reads, docstrings and comments.

`python -m tools.plain_words` lists the findings, `… FILE` those of one file. There must not be any.
"""

import ast
import functools
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tests.support.places import ROOT

MAX_WORDS = 30

_SOURCE = ROOT / "src" / "pyromq"
_ENGLISH = _SOURCE / "console" / "i18n" / "en.toml"
_REFERENCE = ROOT / "docs" / "reference"
_WRITTEN_BY_HAND = {_REFERENCE / "compatibility.md", _REFERENCE / "extensions.md"}

_CLAUSE = "a clause as the subject: begin with the thing"
FLAVOUR = {
    "told: say reported, or name who reports": r"\btold\b|\bun?told\b",
    "nobody: say who, or use the passive": r"\bnobody\b",
    "is no X: say is not an X": r"(?<!there )\b(?:is|are|was|were) no\b(?! longer| more\b)",
    "of its own: say its own": r"\bof (?:its|their|our) own\b",
    "beside: say next to, or compared with": r"\bbeside\b",
    "so many: say that many, or give the number": r"\bso (?:many|much)\b",
    "go on: say continue": r"\b(?:go|goes|going|went) on\b",
    "comes again: say is delivered again": r"\bcom(?:es?|ing) again\b",
    "left out: say omitted or skipped": r"\b(?:is|are|was|were|be) left out\b",
    "has to be: say must be": r"\b(?:has|have|had) to be\b",
    _CLAUSE: r"^(?:What|Who|Whoever|Whatever)\b.*[.:]$",
}
_FLAVOUR = {reason: re.compile(pattern, re.IGNORECASE) for reason, pattern in FLAVOUR.items()}
_INSIDE = re.compile(r'"""(.*?)"""|(?:^|  )# ([^\n]+)$', re.MULTILINE | re.DOTALL)
_PRONOUN = re.compile(r"^(?:It|Its|They|Them|Their|Theirs|These|Those|The same)\b")
_SENTENCE_END = re.compile(r"(?<=[.!?])[)\"'*_]*\s+(?=[\"'(*_`\[]*[A-Z0-9`])")


class Text(NamedTuple):
    path: str
    words: str
    is_setting: bool = False
    is_inside: bool = False
    """Read by developers only: the words count, the form of sentences does not."""


class Finding(NamedTuple):
    path: str
    reason: str
    sentence: str


@functools.cache
def findings() -> list[Finding]:
    texts = (*_in_source(), *_inside(), *_in_console(), *_in_pages())
    return [finding for text in texts for finding in judge(text)]


def judge(text: Text) -> Iterator[Finding]:
    if text.is_setting and _PRONOUN.match(text.words):
        yield Finding(text.path, "a setting stands alone: begin with its subject", text.words)
    for sentence in sentences(text.words):
        for reason, pattern in _FLAVOUR.items():
            if not (text.is_inside and reason == _CLAUSE):
                for _ in pattern.findall(sentence):
                    yield Finding(text.path, reason, sentence)
        if not text.is_inside and len(sentence.split()) > MAX_WORDS:
            yield Finding(text.path, f"more than {MAX_WORDS} words", sentence)


def sentences(words: str) -> list[str]:
    return [each for each in _SENTENCE_END.split(" ".join(words.split())) if each]


def _in_source() -> Iterator[Text]:
    for file in sorted(_SOURCE.rglob("*.py")):
        path = str(file.relative_to(ROOT))
        has_commands = file.is_relative_to(_SOURCE / "cli") or file.is_relative_to(_SOURCE / "apps")
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
                for argument in (*node.exc.args, *(each.value for each in node.exc.keywords)):
                    yield Text(path, _words(argument))
            elif isinstance(node, ast.Call):
                called = getattr(node.func, "id", getattr(node.func, "attr", ""))
                if called in ("setting", "flag", "option") and len(node.args) > 1:
                    yield Text(path, _words(node.args[1]), is_setting=called == "setting")
                for each in node.keywords:
                    if each.arg in ("help", "epilog"):
                        yield Text(path, _words(each.value))
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and (
                has_commands and node.decorator_list
            ):
                yield Text(path, (ast.get_docstring(node) or "").partition("\b")[0])
    for file in sorted((_SOURCE / "config" / "inert").iterdir()):
        path = str(file.relative_to(ROOT))
        yield from (Text(path, line[2:]) for line in file.read_text().splitlines() if line.startswith("# "))


def _inside() -> Iterator[Text]:
    """Docstrings and comments."""
    for folder in ("src", "native/src"):
        for file in sorted((ROOT / folder).rglob("*.p*")):
            if file.suffix in {".py", ".pyi", ".pyx", ".pxd"}:
                for docstring, comment in _INSIDE.findall(file.read_text()):
                    words = re.sub(r"`[^`]*`", "X", docstring or comment)
                    yield Text(str(file.relative_to(ROOT)), words, is_inside=True)


def _words(node: ast.expr) -> str:
    """The text of a literal; a gap in it counts as one word."""
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=parts):
            return "".join("X" if isinstance(each, ast.FormattedValue) else _words(each) for each in parts)
        case ast.BinOp(left=left, right=right):
            return f"{_words(left)} {_words(right)}"
    return ""


def _in_console() -> Iterator[Text]:
    path = str(_ENGLISH.relative_to(ROOT))
    for value in tomllib.loads(_ENGLISH.read_text()).values():
        for text in value.values() if isinstance(value, dict) else [value]:
            yield Text(path, text)


def _in_pages() -> Iterator[Text]:
    news = (ROOT / name for name in ("README.md", "CHANGELOG.md", "SECURITY.md"))
    for page in (*news, *sorted((ROOT / "changes").glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))):
        if not page.is_relative_to(_REFERENCE) or page in _WRITTEN_BY_HAND:
            path = str(page.relative_to(ROOT))
            yield from (Text(path, each) for each in paragraphs(page.read_text()))


def paragraphs(page: str) -> list[str]:
    """The prose of a page without its code. Headings, items of lists and cells of tables stand alone."""
    page = re.sub(r"^ *```.*?^ *```", "", page, flags=re.MULTILINE | re.DOTALL)
    page = re.sub(r"<!--.*?-->", "", page, flags=re.DOTALL)
    page = re.sub(r"`[^`\n]+`(?:[,;]\s`[^`\n]+`)*", "X", page)
    page = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", page)
    found: list[str] = [""]
    for line in page.splitlines():
        if line.lstrip().startswith("|"):
            found += [*(cell.strip() for cell in line.strip().strip("|").split("|")), ""]
        elif not line.strip() or re.match(r"\s*(?:[-*+]|\d+\.|#+|>)\s", line):
            found.append(re.sub(r"^\s*(?:[-*+]|\d+\.|#+|>)\s+", "", line))
        else:
            found[-1] += f" {line.strip()}"
    return [each.strip() for each in found if each.strip()]


def main(arguments: list[str]) -> None:
    wanted = {str(Path(each).resolve().relative_to(ROOT)) for each in arguments}
    for each in findings():
        if not wanted or each.path in wanted:
            sys.stdout.write(f"{each.path}: {each.reason}\n    {each.sentence}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
