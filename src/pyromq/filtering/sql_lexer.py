"""The words of an SQL92 filter expression, found one at a time.

Words are looked for only when the parser asks: what stands behind a complete expression is never read.
"""

import re
from typing import NamedTuple

from pyromq.errors import BadExpression

KEYWORDS = frozenset(
    ("NOT", "AND", "OR", "BETWEEN", "IN", "TRUE", "FALSE", "NULL", "IS", "CONTAINS", "STARTSWITH", "ENDSWITH")
)

_EXPONENT = r"[eE][+-]?+[0-9]++"
_TOKEN = re.compile(
    rf"""
    (?:[ \t\n\r\f]|--[^\n\r]*+[\n\r]|/\*.*?\*/)*+
    (?:
      (?P<float>[0-9]+\.[0-9]*+(?:{_EXPONENT})?|\.[0-9]++(?:{_EXPONENT})?|[0-9]+{_EXPONENT})
    | (?P<integer>0|[1-9][0-9]*+[lL]?)
    | (?P<string>'(?:''|[^'])*+')
    | (?P<word>[A-Za-z_$][A-Za-z0-9_$]*+)
    | (?P<symbol><>|>=|<=|[=<>(),+-])
    | (?P<end>\Z)
    )
    """,
    re.VERBOSE | re.DOTALL,
)
_SKIPPED = re.compile(r"(?:[ \t\n\r\f]|--[^\n\r]*+[\n\r]|/\*.*?\*/)*+", re.DOTALL)
_SHOWN_CHARS = 200


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
        ahead = self._ahead
        while len(ahead) <= distance:
            ahead.append(self._next())
        return ahead[distance]

    def take(self, *kinds: str) -> Token:
        token = self._ahead[0] if self._ahead else self.peek()
        if kinds and token.kind not in kinds:
            found = "the end" if token is END else repr(token.text[:_SHOWN_CHARS])
            raise BadExpression(f"expected {' or '.join(kinds)} but found {found} in {self._shown()}")
        return self._ahead.pop(0)

    def _next(self) -> Token:
        match = _TOKEN.match(self._text, self._position)
        if match is None:
            raise BadExpression(f"unexpected {self._unexpected()!r} in {self._shown()}")
        self._position = match.end()
        kind = match.lastgroup or ""
        if kind == "end":
            return END
        text = match[kind]
        if kind == "symbol":
            return Token(text, text)
        if kind == "word" and (upper := text.upper()) in KEYWORDS:
            return Token(upper, text)
        return Token(kind, text)

    def _unexpected(self) -> str:
        skipped = _SKIPPED.match(self._text, self._position)
        return self._text[skipped.end() if skipped else self._position]

    def _shown(self) -> str:
        """The expression as an error text tells it: there is no room for a long one."""
        shown = self._text[:_SHOWN_CHARS]
        return repr(shown if shown == self._text else f"{shown}…")
