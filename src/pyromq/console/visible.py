"""Hostile text made visible: control and direction characters of bodies, tags and names are shown, not
obeyed.
"""

import re

_INVISIBLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\ud800-\udfff]"
)
_C0 = 0x20


def visible(text: str) -> str:
    """The text with every character that could hide or reorder others replaced; lines and tabs stay."""
    return _INVISIBLE.sub(_shown, text)


def _shown(found: re.Match[str]) -> str:
    code = ord(found[0])
    return chr(0x2400 + code) if code < _C0 else f"⟨U+{code:04X}⟩"


def csv_cell(text: str) -> str:
    """A cell that no spreadsheet takes for a formula."""
    quoted = f"'{text}" if text[:1] in ("=", "+", "-", "@", "\t", "\r") else text
    return '"' + quoted.replace('"', '""') + '"'
