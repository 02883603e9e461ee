"""Checksums and hashes, compiled: the numbers that zlib and the interpreted twin give."""

from typing import Any
from zlib import crc32

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.support.small_stores import interpreted

from pyromq.compiled import twin
from pyromq.store.index.key_hash import index_key_hashes

if twin("protocol.checksums") is None:
    pytest.skip("the compiled twins are not there", allow_module_level=True)

repeated = st.builds(bytes.__mul__, st.binary(max_size=20), st.integers(0, 500))


@given(st.one_of(st.binary(max_size=300), repeated))
@example(bytes(64))
@example(b"\xff" * 127)
def test_checksums_are_those_of_zlib(data: bytes) -> None:
    checksums: Any = twin("protocol.checksums")
    assert checksums.crc32(data) == crc32(data)
    assert checksums.crc32_by_tables(data) == crc32(data)


@given(st.lists(st.one_of(st.binary(max_size=80), st.text().map(str.encode)), max_size=8))
@example([b"polygenelubricants"])  # java: the string whose hash has no absolute value
def test_hashes_are_those_of_the_interpreted_twin(keys: list[bytes]) -> None:
    hashing: Any = twin("store.fast_key_hash")
    with interpreted():
        expected = index_key_hashes(keys)
    assert hashing.index_key_hashes(keys) == (expected if b"".join(keys).isascii() else None)
    assert index_key_hashes(keys) == expected
