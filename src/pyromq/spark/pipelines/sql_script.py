"""The words of a streaming job: statements of Spark's SQL, and what three of them mean here.

    CREATE TEMPORARY VIEW orders USING rocketmq OPTIONS (subscribe 'Orders');   -- read as a stream
    CREATE TEMPORARY VIEW totals USING rocketmq OPTIONS (topic 'Totals');       -- a place to write to
    INSERT INTO totals SELECT …;                                                -- a streaming query

Everything else is handed to Spark as it is. Watermarks are Spark's own clause: `FROM orders WATERMARK
bornTimestamp DELAY OF INTERVAL 10 SECONDS`.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from pyromq.errors import ConfigError

_TOKEN = re.compile(
    r"""
    (?P<comment> --[^\n]* | /\*.*?\*/ )
  | (?P<text>    '(?:[^'\\]|\\.|'')*' | "(?:[^"\\]|\\.)*" | `[^`]*` )
  | (?P<end>     ; )
  | (?P<other>   [^-/'"`;]+ | . )
    """,
    re.VERBOSE | re.DOTALL,
)
_NAME = r"(?:`[^`]+`|\w+)"
_VIEW = re.compile(
    rf"CREATE\s+(?:OR\s+REPLACE\s+)?TEMP(?:ORARY)?\s+VIEW\s+(?P<name>{_NAME})\s*"
    rf"(?:\((?P<columns>[^()]*(?:\([^()]*\)[^()]*)*)\)\s*)?USING\s+(?P<format>[\w.]+)\s*"
    r"(?:OPTIONS\s*\((?P<options>.*)\)\s*)?",
    re.IGNORECASE | re.DOTALL,
)
_OPTION = re.compile(
    r"\s*(?P<name>[\w.]+|`[^`]+`|'[^']+')(?:\s*=\s*|\s+|(?=['\"]))"
    r"(?P<value>'(?:[^'\\]|\\.|'')*'|\"(?:[^\"\\]|\\.)*\"|[\w.+-]+)\s*(?P<comma>,|$)",
    re.DOTALL,
)
_INSERT = re.compile(
    rf"INSERT\s+INTO\s+(?:TABLE\s+)?(?P<name>{_NAME})\s+(?P<query>.+)", re.IGNORECASE | re.DOTALL
)
_QUERY = re.compile(r"\(*\s*(SELECT|WITH|FROM|TABLE)\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class View:
    """A source or a sink."""

    name: str
    format: str
    options: dict[str, str] = field(default_factory=dict)
    columns: str | None = None
    statement: str = ""


@dataclass(frozen=True, slots=True)
class Insert:
    """A streaming query into a sink."""

    sink: str
    query: str


@dataclass(frozen=True, slots=True)
class Select:
    """A streaming query whose sink is chosen elsewhere."""

    query: str


@dataclass(frozen=True, slots=True)
class PlainStatement:
    """A statement that is Spark's own affair."""

    statement: str


Statement = View | Insert | Select | PlainStatement


def parse(script: str) -> list[Statement]:
    return [_understood(text) for text in split(script)]


def split(script: str) -> Iterator[str]:
    """The statements without comments; a semicolon in a text or a comment ends nothing."""
    parts: list[str] = []
    for token in _TOKEN.finditer(script):
        if token.lastgroup == "end":
            yield from _whole(parts)
            parts = []
        else:
            parts.append(" " if token.lastgroup == "comment" else token[0])
    yield from _whole(parts)


def _whole(parts: list[str]) -> Iterator[str]:
    text = "".join(parts).strip()
    if text:
        yield text


def _understood(text: str) -> Statement:
    if found := _VIEW.fullmatch(text):
        return View(
            _bare(found["name"]),
            found["format"].lower(),
            parse_options(found["options"] or ""),
            found["columns"],
            text,
        )
    if found := _INSERT.fullmatch(text):
        return Insert(_bare(found["name"]), found["query"])
    return Select(text) if _QUERY.match(text) else PlainStatement(text)


def parse_options(text: str) -> dict[str, str]:
    """`name 'value', other = 'value'`, with the quotes of SQL."""
    options: dict[str, str] = {}
    position = 0
    while position < len(text.rstrip()):
        found = _OPTION.match(text, position)
        if found is None:
            raise ConfigError("OPTIONS", text[position:].strip(), "name 'value', separated by commas")
        options[_bare(found["name"])] = _value(found["value"])
        position = found.end()
    return options


def _value(text: str) -> str:
    if text[0] not in "'\"":
        return text
    return re.sub(r"\\(.)|''", lambda found: found[1] or "'", text[1:-1], flags=re.DOTALL)


def _bare(name: str) -> str:
    return name.strip("`'")
