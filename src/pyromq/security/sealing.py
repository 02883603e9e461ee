"""Secrets in a file, unreadable without the key that is kept in another file.

A server must know the secrets of its users to check their signatures, so that they cannot be hashed. They
are encrypted with a keystream of HMAC-SHA256 and carry a check value: a changed one is noticed.
"""

import base64
import hmac
from secrets import token_bytes

from pyromq.errors import ConfigError

KEY_BYTES = 32
_NONCE_BYTES = 16
_TAG_BYTES = 16
_PREFIX = "sealed:"


def new_key() -> bytes:
    return token_bytes(KEY_BYTES)


def seal(secret: str, key: bytes, name: str) -> str:
    """The text to store. It belongs to `name`: it cannot be moved to another one."""
    nonce = token_bytes(_NONCE_BYTES)
    hidden = _mixed(secret.encode(), key, nonce)
    return _PREFIX + base64.b64encode(nonce + _tag(key, nonce, hidden, name) + hidden).decode()


def unseal(text: str, key: bytes, name: str) -> str:
    """Raises ConfigError if the text was not sealed with this key for this name."""
    if not text.startswith(_PREFIX):
        raise ConfigError(f"password of {name}", "(hidden)", "a sealed text")
    try:
        data = base64.b64decode(text.removeprefix(_PREFIX), validate=True)
    except ValueError:
        data = b""
    nonce, tag, hidden = (
        data[:_NONCE_BYTES],
        data[_NONCE_BYTES:][:_TAG_BYTES],
        data[_NONCE_BYTES + _TAG_BYTES :],
    )
    if not hmac.compare_digest(tag, _tag(key, nonce, hidden, name)):
        raise ConfigError(f"password of {name}", "(hidden)", "sealed with the key of this server")
    return _mixed(hidden, key, nonce).decode()


def _mixed(data: bytes, key: bytes, nonce: bytes) -> bytes:
    stream = b"".join(
        hmac.digest(key, b"stream" + nonce + block.to_bytes(4), "sha256")
        for block in range(len(data) // 32 + 1)
    )
    return bytes(a ^ b for a, b in zip(data, stream, strict=False))


def _tag(key: bytes, nonce: bytes, hidden: bytes, name: str) -> bytes:
    length = len(name.encode()).to_bytes(4)
    return hmac.digest(key, b"tag" + nonce + length + name.encode() + hidden, "sha256")[:_TAG_BYTES]
