"""Signatures of gRPC calls."""

import hmac
from datetime import UTC, datetime

import pytest

from pyromq.security.call_signature import CallSignature, is_call_time, is_signed_call, read_authorization

TIME = "20261116T031500Z"
DIGITS = hmac.digest(b"secret", TIME.encode(), "sha1").hex()
HEADER = (
    f"MQv2-HMAC-SHA1 Credential=alice//RocketMQ, SignedHeaders=x-mq-date-time, Signature={DIGITS.upper()}"
)


def test_a_call_is_signed_with_the_key_of_its_user() -> None:
    signature = read_authorization(HEADER)
    assert signature == CallSignature("alice", DIGITS)
    assert is_signed_call(signature, TIME, "secret")
    assert not is_signed_call(signature, TIME, "another")
    assert not is_signed_call(signature, TIME.replace("15", "16"), "secret")
    assert not is_signed_call(CallSignature("alice", "\udcff"), TIME, "secret")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "MQv2-HMAC-SHA1",
        "Bearer x",
        "A Credential=,Signature=",
        "A Credential=a",
        "A Credential=a,Signature=0",
    ],
)
def test_anything_else_is_no_signature(text: str) -> None:
    assert read_authorization(text) is None


HOUR_MS = 3_600_000
MINUTE_MS = 60_000


@pytest.mark.parametrize(
    ("age_ms", "is_good"),
    [
        (0, True),
        (
            12 * HOUR_MS + 15 * MINUTE_MS,
            True,
        ),  # signed in the westernmost zone
        (12 * HOUR_MS + 15 * MINUTE_MS + 1, False),
        (-14 * HOUR_MS - 15 * MINUTE_MS, True),
        (-14 * HOUR_MS - 15 * MINUTE_MS - 1, False),
        (27 * 365 * 24 * HOUR_MS, False),
    ],
)
def test_a_signature_ends_and_does_not_begin_early(age_ms: int, is_good: bool) -> None:
    signed_ms = int(datetime(2026, 11, 16, 3, 15, tzinfo=UTC).timestamp() * 1000)
    assert is_call_time(TIME, signed_ms + age_ms, 15 * MINUTE_MS) is is_good


@pytest.mark.parametrize("text", ["", "now", "2026-11-16T03:15:00Z", "20261316T031500Z"])
def test_a_time_in_another_form_is_refused(text: str) -> None:
    assert not is_call_time(text, 0, 15 * MINUTE_MS)
