"""Which header lists are well formed (RFC 9113, sections 8.2 and 8.3; RFC 8441): checked before use."""

import re

from pyromq.compiled import twin
from pyromq.http2.hpack import Header

_native = twin("http2.twin_hpack")

_NAME = re.compile(rb"[!#$%&'*+\-.^_`|~0-9a-z]+")
_BAD_VALUE = re.compile(rb"[\x00\r\n]|^[ \t]|[ \t]$")
_PSEUDO = frozenset((b":method", b":scheme", b":path", b":authority"))
_PROTOCOL = b":protocol"
_REQUIRED = frozenset((b":method", b":scheme", b":path"))
_OF_CONNECTIONS = frozenset(
    (b"connection", b"keep-alive", b"proxy-connection", b"transfer-encoding", b"upgrade")
)

GOOD_NAMES: set[bytes] = set()
_MAX_GOOD_NAMES = 1000
"""Names are few and repeat: most need no second look."""


def problem_of_request(headers: list[Header], *, takes_protocols: bool = False) -> str | None:
    """The fault in the headers of a request, if there is one. `takes_protocols`: CONNECT may have one."""
    if _native is not None and _native.is_well_formed(headers, GOOD_NAMES):
        return None
    return problem_by_rule(headers, takes_protocols=takes_protocols)


def problem_by_rule(headers: list[Header], *, takes_protocols: bool = False) -> str | None:
    """The same, looked at rule by rule."""
    known = _PSEUDO | {_PROTOCOL} if takes_protocols else _PSEUDO
    pseudo: dict[bytes, bytes] = {}
    has_ordinary = False
    for name, value in headers:
        if name[:1] == b":":
            if has_ordinary or name in pseudo or name not in known:
                return f"the pseudo-header {name!r} is unknown, repeated or late"
            pseudo[name] = value
            continue
        has_ordinary = True
        if problem := _problem(name, value):
            return problem
    if not pseudo.keys() >= _REQUIRED or not pseudo[b":path"]:
        return "a request needs :method, :scheme and :path"
    if _PROTOCOL in pseudo and pseudo[b":method"] != b"CONNECT":
        return "only CONNECT may have :protocol"
    return None


def problem_of_trailers(headers: list[Header]) -> str | None:
    for name, value in headers:
        if problem := _problem(name, value):
            return problem
    return None


def _problem(name: bytes, value: bytes) -> str | None:
    if name not in GOOD_NAMES:
        if not _NAME.fullmatch(name) or name in _OF_CONNECTIONS:
            return f"the header name {name!r} is not allowed"
        if len(GOOD_NAMES) < _MAX_GOOD_NAMES:
            GOOD_NAMES.add(name)
    # Blanks alone count as an empty value, as with other servers: callers learn what is missing.
    if _BAD_VALUE.search(value) and value.strip(b" \t"):
        return f"the value of the header {name!r} is not allowed"
    if name == b"te" and value != b"trailers":
        return "the header te may only be trailers"
    return None
