"""Signatures of gRPC calls."""

import hmac

import pytest

from pyromq.security.call_signature import CallSignature, is_signed_call, read_authorization

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
