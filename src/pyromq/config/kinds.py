"""Kinds of values: each turns text into a value or says what it expected, and writes it as Java would."""

import os
import re
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from numbers import Integral, Real
from pathlib import Path
from typing import Annotated, Any, Generic, Literal, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Kind:
    """How text becomes a value. `parse` raises ValueError; `expected` and `hint` describe valid texts."""

    expected: str
    parse: Callable[[str], Any]
    render: Callable[[Any], str] = str
    hint: str = ""
    is_path: bool = False
    python_type: type | None = None
    """The type that values given in code must have, if that is checked at all."""
    allows_none: bool = False
    choices: tuple[str, ...] = ()
    """The only values, if they are that few."""

    def fits(self, value: object) -> bool:
        if self.choices and value not in self.choices:
            return False
        return self.python_type is None or isinstance(value, self.python_type)


class BadValue(ValueError):
    """A text that is not a value, with the reason."""


@dataclass(frozen=True, slots=True)
class Check(Generic[T]):
    """A limit on the values of a kind; `expected` continues the sentence of the kind."""

    expected: str
    accepts: Callable[[T], bool]


def between(low: float, high: float) -> Check[float]:
    return Check(f"between {low} and {high}", lambda value: low <= value <= high)


def at_least(low: float) -> Check[float]:
    return Check(f"of at least {low}", lambda value: value >= low)


def above(low: float) -> Check[float]:
    return Check(f"above {low}", lambda value: value > low)


def _is_host(text: str) -> bool:
    try:
        return bool(text.encode("idna"))
    except UnicodeError:  # a label too long, or empty, or of characters no name may have
        return False


PORT = between(0, 65535)
POSITIVE = at_least(1)
NOT_NEGATIVE = at_least(0)
HOST = Check("that is an IP address or a host name", _is_host)

_INTEGER = re.compile(r"[+-]?[0-9]+")
_DECIMAL = re.compile(r"[0-9]+\.[0-9]+")
_QUANTITY = re.compile(r"([0-9]+)\s*([a-zA-Z]*)")
_INT32 = range(-(2**31), 2**31)
_INT64 = range(-(2**63), 2**63)


def _parse_whole(text: str, allowed: range) -> int:
    if not _INTEGER.fullmatch(text) or len(text) > 20:
        raise ValueError(text)
    value = int(text)
    if value not in allowed:
        raise ValueError(text)
    return value


def _parse_int(text: str) -> int:
    return _parse_whole(text, _INT32)


def _parse_int64(text: str) -> int:
    return _parse_whole(text, _INT64)


def _parse_float(text: str) -> float:
    value = float(text)
    if value != value or value in (float("inf"), float("-inf")):
        raise ValueError(text)
    return value


def _parse_bool(text: str) -> bool:
    # java: anything but "true" is quietly false there; a misspelt switch is an error here.
    lowered = text.lower()
    if lowered not in ("true", "false"):
        raise ValueError(text)
    return lowered == "true"


def _render_bool(value: bool) -> str:
    return "true" if value else "false"


def expand_path(text: str | os.PathLike[str]) -> Path:
    return Path(os.path.expanduser(text))


def quantity(expected: str, hint: str, factors: Mapping[str, int], unit: int = 1) -> Kind:
    """A number with an optional suffix; the value is a whole number of `unit`s."""

    def parse(text: str) -> int:
        match = _QUANTITY.fullmatch(text)
        if match is None or match[2].lower() not in factors or len(match[1]) > 20:
            raise ValueError(text)
        total = int(match[1]) * factors[match[2].lower()]
        if total % unit or total // unit not in _INT64:
            raise ValueError(text)
        return total // unit

    return Kind(expected, parse, hint=hint)


_SIZE_FACTORS = {
    name: 1024**power
    for power, names in enumerate((("", "b"), ("k", "kb", "kib"), ("m", "mb", "mib"), ("g", "gb", "gib")))
    for name in names
}
_MILLIS_FACTORS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}

# Plain numbers mean what they mean in RocketMQ's files; suffixes are for people.
SizeBytes = Annotated[int, quantity("a size in bytes", " (or like 64k, 16m, 1g)", _SIZE_FACTORS)]
Millis = Annotated[
    int, quantity("a time in milliseconds", " (or like 500ms, 5s, 2m)", _MILLIS_FACTORS | {"": 1})
]
Seconds = Annotated[
    int, quantity("a time in seconds", " (or like 5s, 2m, 1h)", _MILLIS_FACTORS | {"": 1000}, unit=1000)
]

TEXT = Kind("a text", str, python_type=str)

_PLAIN_KINDS: dict[object, Kind] = {
    int: Kind("a whole number", _parse_int, python_type=Integral),
    float: Kind("a number", _parse_float, repr, python_type=Real),
    bool: Kind("true or false", _parse_bool, _render_bool, python_type=bool),
    str: TEXT,
    Path: Kind("a path", expand_path, is_path=True),
}


def kind_of(annotation: object, *, in_code: bool = False) -> Kind:
    """The kind behind an annotation: a plain type, an Annotated alias, a Literal, or one | None.

    Values that are given `in_code` may be of any other type, too.
    """
    origin = typing.get_origin(annotation)
    if origin is Annotated:
        for extra in typing.get_args(annotation)[1:]:
            if isinstance(extra, Kind):
                return extra
    if origin is Literal:
        return _choice(typing.get_args(annotation))
    if origin in (typing.Union, types.UnionType):
        present = [part for part in typing.get_args(annotation) if part is not types.NoneType]
        if len(present) == 1:
            kind = kind_of(present[0], in_code=in_code)
            return replace(kind, hint=" or None", allows_none=True) if in_code else _optional(kind)
    if annotation in _PLAIN_KINDS:
        return _PLAIN_KINDS[annotation]
    if in_code:
        return _any_object(annotation)
    raise TypeError(f"no kind of setting has the type {annotation!r}")


def _any_object(annotation: object) -> Kind:
    if isinstance(annotation, type) and not getattr(annotation, "_is_protocol", False):
        return Kind(f"a value of type {annotation.__name__}", str, python_type=annotation)
    return Kind("", str)


_WHOLE_NUMBER_64 = Kind("a whole number", _parse_int64)


def kind_like(example: str) -> Kind:
    """The kind of which this text is a value; no text at all is a text that may be missing."""
    if not example:
        return _optional(TEXT)
    if example in ("true", "false"):
        return _PLAIN_KINDS[bool]
    if _INTEGER.fullmatch(example):
        return _WHOLE_NUMBER_64
    return _PLAIN_KINDS[float] if _DECIMAL.fullmatch(example) else TEXT


def _choice(names: Iterable[str]) -> Kind:
    by_lower = {name.lower(): name for name in names}

    def parse(text: str) -> str:
        if text.lower() not in by_lower:
            raise ValueError(text)
        return by_lower[text.lower()]

    return Kind("one of " + ", ".join(by_lower.values()), parse, choices=tuple(by_lower.values()))


def _optional(kind: Kind) -> Kind:
    """Empty text is None."""
    return Kind(
        kind.expected,
        lambda text: kind.parse(text) if text else None,
        lambda value: "" if value is None else kind.render(value),
        hint=f"{kind.hint} or nothing",
        is_path=kind.is_path,
        python_type=kind.python_type,
        allows_none=True,
        choices=kind.choices,
    )
