"""Signatures of gRPC calls: HMAC-SHA1 over the time of the call, which the metadata contain.

`authorization: MQv2-HMAC-SHA1 Credential=KEY, SignedHeaders=x-mq-date-time, Signature=HEX`. The signature
covers neither the request nor its name; only TLS protects those.
"""

import hmac
from typing import NamedTuple

_SCHEME = "MQv2-HMAC-SHA1"


class CallSignature(NamedTuple):
    access_key: str
    signature: str
    """Lower-case hexadecimal digits."""


def read_authorization(text: str) -> CallSignature | None:
    """The parts of the metadata `authorization`; None if they are not such a signature."""
    scheme, _, rest = text.strip().partition(" ")
    pairs = (part.strip().partition("=") for part in rest.split(","))
    found = {name: value for name, equals, value in pairs if equals}
    if scheme != _SCHEME or not found.get("Credential") or not found.get("Signature"):
        return None
    return CallSignature(found["Credential"].partition("/")[0], found["Signature"].lower())


def is_signed_call(signature: CallSignature, date_time: str, secret_key: str) -> bool:
    """Whether the signature was made with this key; every wrong one takes the same time."""
    expected = hmac.digest(
        secret_key.encode("utf-8", "replace"), date_time.encode("utf-8", "replace"), "sha1"
    )
    return hmac.compare_digest(expected.hex().encode(), signature.signature.encode("utf-8", "replace"))
