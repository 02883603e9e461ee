"""The modules that a filter may import: its process opens no files, so they are there before it begins."""

from typing import Final

MODULES: Final = (
    "base64",
    "binascii",
    "bisect",
    "collections",
    "dataclasses",
    "datetime",
    "decimal",
    "enum",
    "fnmatch",
    "fractions",
    "functools",
    "gzip",
    "hashlib",
    "heapq",
    "hmac",
    "html",
    "io",
    "ipaddress",
    "itertools",
    "json",
    "math",
    "msgspec",
    "operator",
    "re",
    "statistics",
    "string",
    "struct",
    "time",
    "typing",
    "unicodedata",
    "urllib.parse",
    "uuid",
    "zlib",
)
BEHIND: Final = ("_strptime", "ctypes")
"""Modules that those import only when they are used."""
ENCODINGS: Final = (
    *("ascii", "latin-1", "cp1252", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be"),
    *("gbk", "gb18030", "big5", "shift_jis", "euc_jp", "euc_kr"),
)
"""Encodings of text, which Python would load from files, too."""
