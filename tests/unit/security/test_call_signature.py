"""Signatures of gRPC calls."""

import hmac

import pytest

from pyromq.security.call_signature import CallSignature, is_recent, is_signed_call, read_authorization

TIME = "20261116T031500Z"
NOW_S = 1794798900.0
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
    "text", ["", "MQv2-HMAC-SHA1", "Bearer x", "A Credential=,Signature=", "A Credential=a"]
)
def test_anything_else_is_no_signature(text: str) -> None:
    assert read_authorization(text) is None


def test_an_old_call_is_not_recent() -> None:
    assert is_recent(TIME, NOW_S, 300)
    assert is_recent(TIME, NOW_S + 300, 300)
    assert not is_recent(TIME, NOW_S + 301, 300)
    assert not is_recent(TIME, NOW_S - 301, 300)
    assert not is_recent("yesterday", NOW_S, 300)
