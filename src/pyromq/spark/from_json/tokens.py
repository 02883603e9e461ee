"""The tokens of a JSON text as Spark's parser gives them, also those that come after a mistake.

It continues behind a mistake if it is asked to, and `from_json` asks: what a row then holds depends on where
it stands. The name of a field and the beginning of its value are one step, and a text is read when it is
wanted.
"""

import re
from typing import Final

from pyromq.spark.from_json.scalars import MOST_DIGITS, Number, bytes_of
from pyromq.spark.from_json.unfit import Unfit

OBJECT, OBJECT_END, ARRAY, ARRAY_END = "{", "}", "[", "]"
NAME, TEXT, NUMBER, WORD = "name", "text", "number", "word"

_MOST_DEPTH = 1000
_MOST_NAME = 50_000
_PLAIN = re.compile(r'[^"\'\\\x00-\x1f]*')
_BLANKS = re.compile(r"[ \t\r\n]*")
_NUMBER = re.compile(r"-?([0-9]+)(?:(\.)([0-9]*))?(?:([eE])([+-]?)([0-9]*))?")
_ESCAPES = {
    "b": "\b",
    "t": "\t",
    "n": "\n",
    "f": "\f",
    "r": "\r",
    '"': '"',
    "/": "/",
    "\\": "\\",
    "'": "'",
}
_HEX = re.compile(r"[0-9a-fA-F]{4}")
_WORDS: Final = {"t": ("true", True), "f": ("false", False), "n": ("null", None)}
_BASE64 = re.compile(r"[A-Za-z0-9+/]")


class Mistake(Unfit):
    """The text is not JSON here."""


class _Scope:
    """An object or an array that is open, or the whole document."""

    __slots__ = ("entries", "kind", "name")

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.name: str | None = None
        self.entries = 0


class JsonTokens:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._scopes = [_Scope("")]
        self._ahead: str | None = None
        """The value that belongs to a name."""
        self._is_unread = False
        """Whether the current text has not been read yet."""
        self.kind: str | None = None
        self.value: bool | int | Number | str | None = None

    def __repr__(self) -> str:
        return f"<JsonTokens {self.kind} at={self._at} of={len(self._text)}>"

    def next(self) -> str | None:
        """The kind of the next token; None at the end, and once after a mistake in the value of a name."""
        if self.kind == NAME:
            self.kind, self._ahead = self._ahead, None
            if self.kind in (OBJECT, ARRAY):
                self._open(self.kind)
            return self.kind
        if self._is_unread:
            self._is_unread = False
            self._read_text('"')
        char = self._after_blanks()
        if not char:
            if len(self._scopes) > 1:
                raise Mistake("the text ends too early")
            self.kind = None
            return None
        if char in "]}":
            return self._close(char)
        scope = self._scopes[-1]
        scope.entries += 1
        if scope.kind and scope.entries > 1:
            if char != ",":
                raise Mistake(f"{char!r} instead of a comma")
            char = self._after_blanks()
        if scope.kind == OBJECT:
            scope.name = self._name(char)
            self.kind = NAME
            if self._after_blanks() != ":":
                raise Mistake("no colon after a name")
            self._ahead = self._begin(self._after_blanks())
            return NAME
        kind = self._begin(char)
        if kind in (OBJECT, ARRAY):
            self._open(kind)
        self.kind = kind
        return kind

    @property
    def name(self) -> str | None:
        """The field that the current token belongs to."""
        if self.kind in (OBJECT, ARRAY):
            return self._scopes[-2].name
        return self._scopes[-1].name

    def text(self) -> str:
        """The current text, read to its end."""
        if self._is_unread:
            self._is_unread = False
            self.value = self._read_text('"')
        return str(self.value)

    def binary(self) -> bytes:
        """The current text as base64. A mistake in it leaves the rest of the text unread."""
        if not self._is_unread:
            return bytes_of(self.text())
        quads: list[str] = []
        place = 0
        while True:
            char = self._text[self._at : self._at + 1]
            self._at += 1
            if place == 0 and char == '"':
                self._is_unread = False
                return bytes_of("".join(quads))
            if char == '"' and place > 1:
                self._at -= 1
            elif char == "\\":
                char = self._escaped()
            if place == 0 and "" < char <= " ":
                continue
            is_padding = char == "=" and (place == 3 or (place == 2 and self._pads()))
            if not is_padding and (not char or _BASE64.match(char) is None):
                raise Mistake(f"{char!r} in base64")
            quads.append("==" if is_padding and place == 2 else char)
            place = 0 if is_padding else (place + 1) % 4

    def _pads(self) -> bool:
        self._at += 1
        return self._text[self._at - 1 : self._at] == "="

    def skip_children(self) -> None:
        if self.kind not in (OBJECT, ARRAY):
            return
        depth = 1
        while depth:
            kind = self.next()
            if kind is None:
                return
            depth += (kind in (OBJECT, ARRAY)) - (kind in (OBJECT_END, ARRAY_END))

    # Characters

    def _after_blanks(self) -> str:
        """The next character that is none, or nothing at the end."""
        match = _BLANKS.match(self._text, self._at)
        at = match.end() if match is not None else self._at
        char = self._text[at : at + 1]
        self._at = at + len(char)
        if char and (char < " " or char == "/"):
            raise Mistake(f"{char!r} between values")
        return char

    def _open(self, kind: str) -> None:
        self._scopes.append(_Scope(kind))
        if len(self._scopes) - 1 > _MOST_DEPTH:
            raise Mistake(f"more than {_MOST_DEPTH} levels")

    def _close(self, char: str) -> str:
        if self._scopes[-1].kind != (OBJECT if char == OBJECT_END else ARRAY):
            raise Mistake(f"{char!r} closes nothing")
        self._scopes.pop()
        self.kind = char
        return char

    def _name(self, char: str) -> str:
        if char not in ('"', "'"):
            raise Mistake(f"{char!r} instead of a name")
        name = self._read_text(char)
        if len(name) > _MOST_NAME:
            raise Mistake(f"a name of more than {_MOST_NAME} characters")
        return name

    def _begin(self, char: str) -> str:
        if char == '"':
            self._is_unread = True
            return TEXT
        if char in (OBJECT, ARRAY):
            return char
        if char in _WORDS:
            word, self.value = _WORDS[char]
            self._match(word, 1)
            return WORD
        if char == "-" or "0" <= char <= "9":
            return self._number()
        if char == "'":
            self.value = self._read_text("'")
            return TEXT
        if char == "N":
            self._match("NaN", 1)
            self.value = Number("NaN")
            return NUMBER
        if char == "I":
            self._match("Infinity", 1)
            self.value = Number("Infinity")
            return NUMBER
        if char == "+":
            return self._infinity("+")
        if char.isidentifier():
            self._pass_word()
        raise Mistake(f"{char!r} begins no value")

    def _match(self, word: str, done: int) -> None:
        for char in word[done:]:
            if self._text[self._at : self._at + 1] != char:
                self._pass_word()
                raise Mistake(f"not {word}")
            self._at += 1
        following = self._text[self._at : self._at + 1]
        if following >= "0" and _is_word_part(following):
            self._pass_word()
            raise Mistake(f"{word} continues")

    def _pass_word(self) -> None:
        most = self._at + 255
        while self._at < min(len(self._text), most) and _is_word_part(self._text[self._at]):
            self._at += 1

    def _infinity(self, sign: str) -> str:
        following = self._text[self._at : self._at + 2]
        self._at += min(len(following), 1)
        if following in ("IN", "In"):
            self._at += 1
            word = sign + ("INF" if following == "IN" else "Infinity")
            self._match(word, 3)
            self.value = Number(word)
            return NUMBER
        self._at += following[:1] == "I" and len(following) > 1
        raise Mistake(f"no digit after {sign}")

    def _number(self) -> str:
        start = self._at - 1
        match = _NUMBER.match(self._text, start)
        if match is None:
            return self._infinity("-")
        whole, point, fraction, exponent, _, power = match.groups()
        if len(whole) > 1 and whole[0] == "0":
            self._at = match.start(1) + 1
            raise Mistake("a number with a zero before it")
        if (point and not fraction) or (exponent and not power):
            # java: numbers that begin with zero are read another way, and stop elsewhere
            stop = match.end(2) if point and not fraction else match.end()
            self._at = min(stop + 1, len(self._text)) if whole == "0" else match.end(2 if point else 4)
            raise Mistake("a number without its last digits")
        self._at = match.end()
        digits = len(whole) + len(fraction or "") + len(power or "")
        if whole == "0" and (point or exponent):
            digits -= (not point) + (not exponent)
        if digits > MOST_DIGITS:
            raise Mistake(f"a number of more than {MOST_DIGITS} digits")
        self.value = Number(match[0]) if point or exponent else int(match[0])
        return NUMBER

    def _read_text(self, quote: str) -> str:
        """From behind a quote to behind the next one."""
        parts: list[str] = []
        has_units = False
        while True:
            match = _PLAIN.match(self._text, self._at)
            assert match is not None
            parts.append(match[0])
            char = self._text[match.end() : match.end() + 1]
            self._at = match.end() + len(char)
            if char == quote:
                break
            if char == "\\":
                escaped = self._escaped()
                has_units |= "\ud800" <= escaped <= "\udfff"
                parts.append(escaped)
            elif char in ('"', "'"):
                parts.append(char)
            else:
                raise Mistake("the text ends too early" if not char else f"{char!r} in a text")
        text = "".join(parts)
        if has_units:
            # Two halves, each escaped, are one character.
            text = text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")
        return text

    def _escaped(self) -> str:
        char = self._text[self._at : self._at + 1]
        self._at += len(char)
        if char == "u":
            digits = self._text[self._at : self._at + 4]
            if _HEX.fullmatch(digits) is None:
                good = next(
                    (i for i, each in enumerate(digits) if each not in "0123456789abcdefABCDEF"), None
                )
                self._at += len(digits) if good is None else good + 1
                raise Mistake(f"\\u{digits} is not a character")
            self._at += 4
            return chr(int(digits, 16))
        if char not in _ESCAPES:
            raise Mistake(f"\\{char} is not a character")
        return _ESCAPES[char]


def _is_word_part(char: str) -> bool:
    return char.isalnum() or char in "_$" or (not char.isspace() and (char < " " or "\x7f" <= char <= "\x9f"))
