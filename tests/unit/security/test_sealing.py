"""Secrets at rest."""

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyromq.errors import ConfigError
from pyromq.security.sealing import new_key, seal, unseal

KEY = bytes(range(32))


@given(st.text(max_size=100), st.text(max_size=10))
def test_a_sealed_secret_comes_back_and_is_not_readable(secret: str, name: str) -> None:
    sealed = seal(secret, KEY, name)
    assert unseal(sealed, KEY, name) == secret
    assert len(secret) < 4 or secret not in sealed


@given(st.integers(0, 39))
def test_every_changed_byte_is_noticed(position: int) -> None:
    data = bytearray(base64.b64decode(seal("password", KEY, "alice").removeprefix("sealed:")))
    data[position] ^= 1
    with pytest.raises(ConfigError, match="alice"):
        unseal("sealed:" + base64.b64encode(data).decode(), KEY, "alice")


def test_a_secret_belongs_to_one_name_and_one_key() -> None:
    sealed = seal("password", KEY, "alice")
    for key, name in ((KEY, "bob"), (new_key(), "alice")):
        with pytest.raises(ConfigError):
            unseal(sealed, key, name)
    for text in ("password", "sealed:", "sealed:%%", ""):
        with pytest.raises(ConfigError):
            unseal(text, KEY, "alice")
