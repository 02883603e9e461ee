"""The words of an SQL92 filter expression, found one at a time.

Words are looked for only when the parser asks: what stands behind a complete expression is never read.
"""

import re
from typing import NamedTuple

from pyromq.errors import BadExpression

KEYWORDS = frozenset(
    ("NOT", "AND", "OR", "BETWEEN", "IN", "TRUE", "FALSE", "NULL", "IS", "CONTAINS", "STARTSWITH", "ENDSWITH")
)

_EXPONENT = r"[eE][+-]?[0-9]+"
_SKIPPED = re.compile(r"(?:[ \t\n\r\f]|--[^\n\r]*[\n\r]|/\*.*?\*/)*", re.DOTALL)
_TOKEN = re.compile(
    rf"""
      (?P<float>[0-9]+\.[0-9]*(?:{_EXPONENT})?|\.[0-9]+(?:{_EXPONENT})?|[0-9]+{_EXPONENT})
    | (?P<integer>0|[1-9][0-9]*[lL]?)
    | (?P<string>'(?:''|[^'])*')
    | (?P<word>[A-Za-z_$][A-Za-z0-9_$]*)
    | (?P<symbol><>|>=|<=|[=<>(),+-])
    """,
    re.VERBOSE,
)


class Token(NamedTuple):
    """`kind` is `float`, `integer`, `string`, `word`, `end`, or the keyword or symbol itself."""

    kind: str
    text: str


END = Token("end", "")


class Tokens:
    """The words of one expression, with a look ahead as far as the parser wants it."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._position = 0
        self._ahead: list[Token] = []

    def peek(self, distance: int = 0) -> Token:
        while len(self._ahead) <= distance:
            self._ahead.append(self._next())
        return self._ahead[distance]

    def take(self, *kinds: str) -> Token:
        token = self.peek()
        if kinds and token.kind not in kinds:
            found = "the end" if token is END else repr(token.text)
            raise BadExpression(f"expected {' or '.join(kinds)} but found {found} in {self._text!r}")
        return self._ahead.pop(0)

    def _next(self) -> Token:
        skipped = _SKIPPED.match(self._text, self._position)
        self._position = skipped.end() if skipped else self._position
        if self._position >= len(self._text):
            return END
        match = _TOKEN.match(self._text, self._position)
        if match is None:
            raise BadExpression(f"unexpected {self._text[self._position]!r} in {self._text!r}")
        self._position = match.end()
        kind, text = match.lastgroup or "", match.group()
        if kind == "word" and text.upper() in KEYWORDS:
            return Token(text.upper(), text)
        return Token(text if kind == "symbol" else kind, text)
