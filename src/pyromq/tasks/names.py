"""Names of frameworks as names that brokers allow."""

import hashlib
import re
from urllib.parse import quote

_OTHER = re.compile(r"[^a-zA-Z0-9_-]")
_MAX_CHARS = 80
_TAG = re.compile(r"[\w.:@#/-]{1,120}")


def legal(name: str) -> str:
    """As part of a topic or group: other characters are escaped; a hash ends a name that is too long."""
    escaped = _OTHER.sub(_escaped, name)
    if len(escaped) <= _MAX_CHARS:
        return escaped
    return f"{escaped[: _MAX_CHARS - 17]}-{hashlib.sha256(name.encode()).hexdigest()[:16]}"


def as_tag(text: str | None) -> str | None:
    """A tag by which brokers can filter; None if the text cannot be one."""
    return text if text and _TAG.fullmatch(text) else None


def as_key(text: object) -> tuple[str, ...]:
    """The key of a message; none if the text cannot be one."""
    return (text,) if isinstance(text, str) and text and " " not in text else ()


def _escaped(found: "re.Match[str]") -> str:
    """`quote` leaves `.` and `~` as they are, and brokers do not allow them."""
    return quote(found[0], safe="").replace(".", "%2E").replace("~", "%7E")
