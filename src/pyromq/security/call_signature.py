"""Signatures of gRPC calls: HMAC-SHA1 over the time of the call, which the metadata contain.

`authorization: MQv2-HMAC-SHA1 Credential=KEY, SignedHeaders=x-mq-date-time, Signature=HEX`. The signature
covers neither the request nor its name; only TLS protects those.

Apache's clients for Java, Go and Python state their local time and append a Z. So the server does not know
the client's zone, and a signature is good from 14 hours before its time until 12 hours after it.
"""

import hmac
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import NamedTuple

_SCHEME = "MQv2-HMAC-SHA1"
_TIME_FORMAT = "%Y%m%dT%H%M%SZ"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_EARLIEST_ZONE_MS = 12 * 3_600_000
_LATEST_ZONE_MS = 14 * 3_600_000


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


def is_call_time(date_time: str, now_ms: int, max_age_ms: int) -> bool:
    """Whether a call can have been signed within `max_age_ms` of now, in some time zone."""
    stated_ms = _milliseconds(date_time)
    if stated_ms is None:
        return False
    return -max_age_ms - _LATEST_ZONE_MS <= now_ms - stated_ms <= max_age_ms + _EARLIEST_ZONE_MS


@lru_cache(maxsize=1024)  # calls of the same second state the same time
def _milliseconds(date_time: str) -> int | None:
    try:
        stated = datetime.strptime(date_time, _TIME_FORMAT).replace(tzinfo=UTC)
    except ValueError:
        return None
    return (stated - _EPOCH) // timedelta(milliseconds=1)
