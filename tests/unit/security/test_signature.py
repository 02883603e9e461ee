"""Signing requests and checking signatures."""

import pytest

from pyromq.errors import ConfigError
from pyromq.security.signature import (
    Credentials,
    credentials_from_text,
    is_signed,
    sign,
    signed_content,
    signing_fields,
)

EXT = {"topic": "TopicTest", "AccessKey": "rocketmq2"}


@pytest.mark.parametrize(
    ("body", "signature"), [(b"", "GeeGoP9mRvDhoVp4PD5omX0prgE="), (b"body", "nkCYtxv6V9aq6Z98xdLAuokushs=")]
)
def test_known_signatures(body: bytes, signature: str) -> None:
    content = signed_content(EXT, body)
    assert content == b"rocketmq2TopicTest" + body
    assert sign(content, "12345678") == signature


def test_values_are_joined_in_the_order_of_names_as_java_compares_them() -> None:
    assert signed_content({"topic": "3", "AccessKey": "1", "_UNIQUE_KEY_QUERY": "2"}) == b"123"
    # outside the basic plane Java compares surrogates, which sort before U+FF5E
    assert signed_content({"\uff5e": "2", "😀": "1"}) == b"12"


def test_the_signature_itself_is_not_signed() -> None:
    assert signed_content({**EXT, "Signature": "whatever"}) == b"rocketmq2TopicTest"
    assert signed_content({}, b"body") == b"body"


@pytest.mark.parametrize("token", [None, "token"])
def test_a_signed_request_is_recognised(token: str | None) -> None:
    fields = signing_fields({"topic": "TopicTest"}, b"body", Credentials("rocketmq2", "12345678", token))
    assert fields.get("SecurityToken") == token
    assert fields["AccessKey"] == "rocketmq2"
    if token is None:
        assert fields["Signature"] == "nkCYtxv6V9aq6Z98xdLAuokushs="
    ext = {"topic": "TopicTest", **fields}
    assert is_signed(ext, b"body", "12345678")
    assert not is_signed(ext, b"bodY", "12345678")
    assert not is_signed(ext, b"body", "12345679")
    assert not is_signed({**ext, "topic": "other"}, b"body", "12345678")
    assert not is_signed({**ext, "added": "later"}, b"body", "12345678")


@pytest.mark.parametrize("signature", ["", "é", "\ud800", "nkCYtxv6V9aq6Z98xdLAuokushs"])
def test_a_wrong_signature_is_not_recognised(signature: str) -> None:
    assert not is_signed({**EXT, "Signature": signature}, b"body", "12345678")
    assert not is_signed(EXT, b"body", "12345678")


def test_the_unique_key_query_field_may_have_been_added_before_or_after_signing() -> None:
    credentials = Credentials("rocketmq2", "12345678")
    field = {"_UNIQUE_KEY_QUERY": "true"}
    before = {**EXT, **field, **signing_fields({**EXT, **field}, b"", credentials)}
    after = {**EXT, **signing_fields(EXT, b"", credentials), **field}
    assert is_signed(before, b"", "12345678")
    assert is_signed(after, b"", "12345678")
    assert not is_signed({**after, "topic": "other"}, b"", "12345678")


def test_a_key_file() -> None:
    text = "# my key\nAccessKey = rocketmq2 \nSecretKey: 12345678\n"
    assert credentials_from_text(text) == Credentials("rocketmq2", "12345678")
    assert credentials_from_text(text + "SecurityToken=t").security_token == "t"


@pytest.mark.parametrize("text", ["", "AccessKey=a", "SecretKey=s", "AccessKey=\nSecretKey=s"])
def test_a_key_file_without_both_keys_is_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        credentials_from_text(text)


def test_credentials_do_not_show_their_secret() -> None:
    assert "12345678" not in repr(Credentials("rocketmq2", "12345678"))
