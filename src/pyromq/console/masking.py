"""Masks: fields of JSON and MessagePack bodies, and properties, whose values are hidden on every page.

A body that begins like JSON but is not JSON is hidden as a whole, since its fields cannot be found. Filters
of the console look at what is left; those of the brokers (tags, SQL92) look at properties as they are.
"""

import json
import re
from collections.abc import Iterable, Mapping
from fnmatch import translate
from typing import Any

from pyromq.admin.matching import BodyFilter
from pyromq.config.options import HIDDEN
from pyromq.console.packed import as_json, packed_map, unique_pairs

UNREADABLE = b"(hidden: fields are masked, and this is no valid JSON)"


class Masks:
    """`patterns` are names, with `*` and `?`, of any case; none masks nothing."""

    def __init__(self, patterns: Iterable[str] = ()) -> None:
        wanted = [translate(each) for each in patterns]
        self._hidden = re.compile("|".join(wanted), re.IGNORECASE) if wanted else None

    def __repr__(self) -> str:
        return f"<Masks {self._hidden}>"

    def __bool__(self) -> bool:
        return self._hidden is not None

    def body(self, body: bytes) -> bytes:
        """The body without the values of masked fields; the same bytes if it has none."""
        if self._hidden is None:
            return body
        if not _begins_like_json(body):
            packed = packed_map(body)
            masked = None if packed is None else self._masked(packed)
            return body if masked == packed else as_json(masked).encode()
        try:
            found = json.loads(body, object_pairs_hook=unique_pairs)
            masked = self._masked(found)
        except (ValueError, RecursionError):
            return UNREADABLE
        return body if masked == found else json.dumps(masked, ensure_ascii=False).encode()

    def _masked(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {
                key: HIDDEN if self._is_hidden(str(key)) else self._masked(each)
                for key, each in value.items()
            }
        return [self._masked(each) for each in value] if isinstance(value, list) else value

    def properties(self, properties: Mapping[str, str]) -> dict[str, str]:
        return {key: HIDDEN if self._is_hidden(key) else value for key, value in properties.items()}

    def _is_hidden(self, name: object) -> bool:
        return self._hidden is not None and self._hidden.fullmatch(str(name)) is not None

    def filter(self, text: str, json_path: str) -> BodyFilter:
        """A filter that cannot find out what is masked."""
        return _MaskedFilter(self, text, json_path)


def _begins_like_json(body: bytes) -> bool:
    # Every encoding of JSON may begin with a mark, and with any number of spaces.
    return body.lstrip(b"\xef\xbb\xbf\xfe\xff\x00 \t\r\n")[:1] in (b"{", b"[")


class _MaskedFilter(BodyFilter):
    def __init__(self, masks: Masks, text: str, json_path: str) -> None:
        super().__init__(text, json_path)
        self._masks = masks

    def matches(self, body: bytes) -> bool:
        return super().matches(self._masks.body(body))
