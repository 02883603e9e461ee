"""Java's properties text: `parse` reads what `java.util.Properties` would read; `render` is its inverse.

`rewrite` changes some values of a text that people have written, and leaves the rest as it was.
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from pyromq.errors import ConfigError

_BLANKS = " \t\f"
_LINE = re.compile(r"([^\r\n]*)(?:\r\n|\n|\r|\Z)")
_KEY_END = re.compile(r"(?:\\.|[^\\=: \t\f])*")
_SEPARATOR = re.compile(r"[ \t\f]*[=:]?[ \t\f]*")
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.|$)", re.DOTALL)
_PLAIN_VALUE = re.compile(r"(?! )[ -\[\]-~]*")
_PLAIN_KEY = re.compile(r"(?![#!])[!-9;<>-\[\]-~]*")
_ESCAPED_CONTROL = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_CONTROL_ESCAPED = {"\t": "\\t", "\n": "\\n", "\r": "\\r", "\f": "\\f", "\\": "\\\\"}


def parse(text: str) -> dict[str, str]:
    """Every key of the text with its value; the last of several equal keys wins."""
    return {key: value for key, value, _, _ in _entries(text)}


def read(path: Path) -> dict[str, str]:
    """Parse a file; one that cannot be read is a bad setting like any other."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ConfigError("configFile", path, f"a readable properties file ({error.strerror})") from error
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = data.decode("iso-8859-1")  # java: Properties.load(InputStream) knows no other encoding
    try:
        return parse(text)
    except ConfigError as error:
        error.add_note(f"in {path}")
        raise


def render(values: Mapping[str, str]) -> str:
    """The text, sorted by key, that `parse` (and Java) reads back as the same values."""
    return "".join(f"{_entry(key, values[key])}\n" for key in sorted(values))


def rewrite(text: str, changes: Mapping[str, str]) -> str:
    """The text with these values: lines of other keys, comments and the order stay as they are."""
    places = {key: (value, start, end) for key, value, start, end in _entries(text) if key in changes}
    for key, (value, start, end) in sorted(places.items(), key=lambda each: -each[1][1]):
        if value != changes[key]:
            text = text[:start] + _entry(key, changes[key]) + text[end:]
    added = "".join(f"{_entry(key, changes[key])}\n" for key in sorted(changes.keys() - places.keys()))
    return f"{text}\n{added}" if added and text and text[-1] not in "\r\n" else text + added


def _entries(text: str) -> Iterator[tuple[str, str, int, int]]:
    """Each key and value, with the start and the end of the lines that it takes in the text."""
    for line_number, line, start, end in _logical_lines(text):
        key_text = line[: _key_length(line)]
        value_text = line[_separator_end(line, len(key_text)) :]
        yield _unescape(key_text, line_number), _unescape(value_text, line_number), start, end


def _logical_lines(text: str) -> Iterator[tuple[int, str, int, int]]:
    """Lines with continuations joined and comments dropped: number of the first, content, start, end."""
    pending: str | None = None
    first = start = end = 0
    for number, match in enumerate(_LINE.finditer(text), start=1):
        line = match[1].lstrip(_BLANKS)
        if pending is None:
            if not line or line[0] in "#!":
                continue
            pending, first, start = "", number, match.start()
        end = match.end(1)
        if _continues(line):
            pending += line[:-1]
            continue
        yield first, pending + line, start, end
        pending = None
    if pending:
        yield first, pending, start, end


def _continues(line: str) -> bool:
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1


def _key_length(line: str) -> int:
    match = _KEY_END.match(line)
    return match.end() if match else 0


def _separator_end(line: str, start: int) -> int:
    match = _SEPARATOR.match(line, start)
    return match.end() if match else start


def _unescape(text: str, line_number: int) -> str:
    if "\\" not in text:
        return text

    def replace(match: re.Match[str]) -> str:
        escaped = match[1]
        if len(escaped) == 5:
            return chr(int(escaped[1:], 16))
        if escaped == "u":
            raise ConfigError(f"line {line_number}", text, "four hexadecimal digits after \\u")
        return _ESCAPED_CONTROL.get(escaped, escaped)

    unescaped = _ESCAPE.sub(replace, text)
    # Characters beyond the basic plane are written as two \u escapes, a surrogate pair.
    return unescaped.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _entry(key: str, value: str) -> str:
    return f"{_escape_key(key)}={_escape_value(value)}"


def _escape_value(text: str) -> str:
    if _PLAIN_VALUE.fullmatch(text):
        return text
    escaped = "".join(map(_escape_char, text))
    return f"\\{escaped}" if escaped.startswith(" ") else escaped


def _escape_key(text: str) -> str:
    if _PLAIN_KEY.fullmatch(text):
        return text
    escaped = "".join(f"\\{char}" if char in " =:" else _escape_char(char) for char in text)
    return f"\\{escaped}" if escaped.startswith(("#", "!")) else escaped


def _escape_char(char: str) -> str:
    if char in _CONTROL_ESCAPED:
        return _CONTROL_ESCAPED[char]
    if " " <= char <= "~":
        return char
    # java: a file is read as ISO-8859-1, so everything outside ASCII travels escaped.
    units = char.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))
