"""RocketMQ's signature: HMAC-SHA1 over the values of the ext fields, ordered by their names, and the body.

`full_signature` says what it does not protect.
"""

import base64
import hashlib
import hmac
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import msgspec

from pyromq.config.properties import parse
from pyromq.errors import ConfigError

ACCESS_KEY: Final = "AccessKey"
SECRET_KEY: Final = "SecretKey"
SECURITY_TOKEN: Final = "SecurityToken"
SIGNATURE: Final = "Signature"

_UNSIGNED_BY_OLD_CLIENTS: Final = "_UNIQUE_KEY_QUERY"
_BLOCK_BYTES: Final = 64
_PADS: Final = (0x36, 0x5C)


class Credentials(msgspec.Struct, frozen=True):
    """The keys that a client signs with."""

    access_key: str
    secret_key: str
    security_token: str | None = None

    def __repr__(self) -> str:
        return f"<Credentials {self.access_key}>"


def credentials_from_text(text: str) -> Credentials:
    """Read a key file: `AccessKey=`, `SecretKey=` and perhaps `SecurityToken=`, one on a line."""
    values = {key: value.strip() for key, value in parse(text).items()}
    for key in (ACCESS_KEY, SECRET_KEY):
        if not values.get(key):
            raise ConfigError(key, values.get(key, ""), "a line of the key file that sets it")
    return Credentials(values[ACCESS_KEY], values[SECRET_KEY], values.get(SECURITY_TOKEN) or None)


def signed_content(ext: Mapping[str, str], body: bytes = b"") -> bytes:
    """The bytes a signature is made over."""
    names = sorted(ext) if all(map(str.isascii, ext)) else sorted(ext, key=_utf16)
    # java: lone surrogates become question marks
    return "".join([ext[name] for name in names if name != SIGNATURE]).encode("utf-8", "replace") + body


def sign(content: bytes, secret_key: str) -> str:
    return base64.b64encode(hmac.digest(secret_key.encode("utf-8", "replace"), content, "sha1")).decode()


class SigningKey(NamedTuple):
    """A secret as HMAC uses it, prepared for many signatures: the hashes of its two pads, from hashlib."""

    inner: Any
    outer: Any

    def __repr__(self) -> str:
        return "<SigningKey>"


def signing_key(secret_key: str, hash_name: str = "sha1") -> SigningKey:
    key = secret_key.encode("utf-8", "replace")
    if len(key) > _BLOCK_BYTES:
        key = hashlib.new(hash_name, key).digest()
    padded = key.ljust(_BLOCK_BYTES, b"\0")
    inner, outer = (hashlib.new(hash_name, bytes(byte ^ pad for byte in padded)) for pad in _PADS)
    return SigningKey(inner, outer)


def user_fields(credentials: Credentials) -> dict[str, str]:
    """The ext fields that say who signs."""
    fields = {ACCESS_KEY: credentials.access_key}
    if credentials.security_token is not None:
        fields[SECURITY_TOKEN] = credentials.security_token
    return fields


def signing_fields(ext: Mapping[str, str], body: bytes, credentials: Credentials) -> dict[str, str]:
    """The ext fields that make a signed request of one with the fields `ext`; none may be added later."""
    fields = user_fields(credentials)
    fields[SIGNATURE] = sign(signed_content({**ext, **fields}, body), credentials.secret_key)
    return fields


def is_signed(ext: Mapping[str, str], body: bytes, secret_key: str) -> bool:
    """Whether the signature among `ext` was made with `secret_key`; every wrong one takes the same time."""
    claimed = ext.get(SIGNATURE, "").encode("utf-8", "replace")
    if hmac.compare_digest(sign(signed_content(ext, body), secret_key).encode(), claimed):
        return True
    # java: clients up to 4.9.3 add this field after signing, later ones before
    if _UNSIGNED_BY_OLD_CLIENTS not in ext:
        return False
    old = {name: value for name, value in ext.items() if name != _UNSIGNED_BY_OLD_CLIENTS}
    return hmac.compare_digest(sign(signed_content(old, body), secret_key).encode(), claimed)


def _utf16(name: str) -> bytes:
    return name.encode("utf-16-be", "surrogatepass")
