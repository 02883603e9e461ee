"""Filters that we apply ourselves, after the broker's: a text in the body, or a value at a path of a JSON
body.

They are parsed here; nothing that a person writes is ever run.
"""

import re
from typing import Any, cast

import msgspec

from pyromq.errors import ConfigError

_STEP = re.compile(r"\.([^.\[\]=]+)|\[(\d{1,9})\]")
_EXPECTED = 'a path and a value, such as $.order.items[0].sku="A-7" or $.paid=true'


class BodyFilter:
    """`matches(body)`. Both filters must hold; without any, every message does."""

    def __init__(self, text: str = "", json_path: str = "") -> None:
        self._text = text.casefold()
        self._steps: list[str | int] = []
        self._value: Any = None
        if json_path:
            self._steps, self._value = parse_json_path(json_path)
        self._has_path = bool(json_path)

    def __repr__(self) -> str:
        return f"<BodyFilter text={self._text!r} steps={self._steps!r}>"

    def matches(self, body: bytes) -> bool:
        if self._text and self._text not in body.decode("utf-8", "replace").casefold():
            return False
        return not self._has_path or self._is_there(body)

    def _is_there(self, body: bytes) -> bool:
        try:
            found: Any = msgspec.json.decode(body)
        except (msgspec.DecodeError, RecursionError):
            return False
        for step in self._steps:
            if isinstance(step, str):
                if not isinstance(found, dict) or step not in found:
                    return False
            elif not isinstance(found, list) or step >= len(found):
                return False
            found = cast(Any, found)[step]
        # True equals 1 in Python, but not in JSON.
        return bool(found == self._value) and isinstance(found, bool) == isinstance(self._value, bool)


def parse_json_path(text: str) -> tuple[list[str | int], Any]:
    """`$.a[0].b=VALUE` as steps and a value; a value that is not JSON is a text. ConfigError if it is not a
    path."""
    path, equals, value = text.strip().partition("=")
    path = path.strip()
    rest = path.removeprefix("$")
    if not equals or rest == path:
        raise ConfigError("json", text, _EXPECTED)
    steps: list[str | int] = []
    position = 0
    while position < len(rest):
        step = _STEP.match(rest, position)
        if step is None:
            raise ConfigError("json", text, _EXPECTED)
        steps.append(step[1] if step[1] is not None else int(step[2]))
        position = step.end()
    try:
        return steps, msgspec.json.decode(value.strip())
    except msgspec.DecodeError:
        return steps, value.strip()
