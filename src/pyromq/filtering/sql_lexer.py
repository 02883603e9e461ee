"""The words of an SQL92 filter expression, found one at a time.

Words are looked for as the parser goes: what stands behind a complete expression is never read.
"""

import re
from typing import NamedTuple

from pyromq.errors import BadExpression

KEYWORDS = frozenset(
    ("NOT", "AND", "OR", "BETWEEN", "IN", "TRUE", "FALSE", "NULL", "IS", "CONTAINS", "STARTSWITH", "ENDSWITH")
)

_EXPONENT = r"[eE][+-]?+[0-9]++"
_STEP = r"(?:\.[A-Za-z_$][A-Za-z0-9_$]*+|\[(?:0|[1-9][0-9]*+)\]|\['(?:''|[^'])*+'\])"
_TOKEN = re.compile(
    rf"""
    (?:[ \t\n\r\f]|--[^\n\r]*+[\n\r]|/\*.*?\*/)*+
    (?:
      (?P<float>[0-9]+\.[0-9]*+(?:{_EXPONENT})?|\.[0-9]++(?:{_EXPONENT})?|[0-9]+{_EXPONENT})
    | (?P<integer>0|[1-9][0-9]*+[lL]?)
    | (?P<string>'(?:''|[^'])*+')
    | (?P<path>body{_STEP}++)
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
    """`kind` is `float`, `integer`, `string`, `path`, `word`, `end`, or the keyword or symbol itself."""

    kind: str
    text: str


END = Token("end", "")
_SYMBOLS = {symbol: Token(symbol, symbol) for symbol in ("<>", ">=", "<=", *"=<>(),+-")}


class SqlTokens:
    """The words of one expression. `kind` is that of the next one, which `take` takes."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._position = 0
        self._next = self._read()
        self._after: Token | None = None
        self.kind = self._next.kind

    def kind_after(self) -> str:
        """The kind of the word behind the next one."""
        if self._after is None:
            self._after = self._read()
        return self._after.kind

    def take(self) -> Token:
        token = self._next
        self._next = self._after or self._read()
        self._after = None
        self.kind = self._next.kind
        return token

    def take_one_of(self, *kinds: str) -> Token:
        if self.kind not in kinds:
            found = "the end" if self._next is END else repr(self._next.text[:_SHOWN_CHARS])
            raise BadExpression(f"expected {' or '.join(kinds)} but found {found} in {self._shown()}")
        return self.take()

    def _read(self) -> Token:
        match = _TOKEN.match(self._text, self._position)
        if match is None:
            raise BadExpression(f"unexpected {self._unexpected()!r} in {self._shown()}")
        self._position = match.end()
        kind = match.lastgroup
        if kind == "symbol":
            return _SYMBOLS[match[6]]
        if kind == "path":
            self._check_end_of_path()
        if kind == "word":
            text = match[5]
            if text == "body":
                self._check_end_of_path()
            return Token(upper, text) if (upper := text.upper()) in KEYWORDS else Token("word", text)
        if kind == "end" or kind is None:
            return END
        return Token(kind, match[kind])

    def _check_end_of_path(self) -> None:
        if self._text[self._position : self._position + 1] in (".", "["):
            raise BadExpression(
                f"a field of a body is written body.name, body['any name'] or body.list[0] in {self._shown()}"
            )

    def expect_end(self) -> None:
        if self._next is not END:
            raise BadExpression(
                f"{self._next.text[:_SHOWN_CHARS]!r} follows the complete expression in {self._shown()}"
            )

    def refuse(self, token: Token) -> BadExpression:
        """The error for a word that begins no value."""
        if token is END:
            return BadExpression("the expression is incomplete")
        return BadExpression(f"expected a value but found {token.text[:_SHOWN_CHARS]!r}")

    def _unexpected(self) -> str:
        skipped = _SKIPPED.match(self._text, self._position)
        return self._text[skipped.end() if skipped else self._position]

    def _shown(self) -> str:
        """The expression as error texts show it, cut if it is long."""
        shown = self._text[:_SHOWN_CHARS]
        return repr(shown if shown == self._text else f"{shown}…")
