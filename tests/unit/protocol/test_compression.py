"""Packing and unpacking bodies, and refusing what is broken or would be too large."""

import zlib

import lz4.frame
import pytest
import zstandard

from pyromq.errors import LocalProtocolError, RemoteProtocolError
from pyromq.protocol.compression import Compression, compress, compression_of, decompress

TEXT = b"The quick brown fox jumps over the lazy dog. " * 200
NOISE = bytes(range(256)) * 17
KINDS = list(Compression)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("data", [b"", b"a", TEXT, NOISE, bytes(1_000_000)])
def test_compressed_data_can_be_decompressed(kind: Compression, data: bytes) -> None:
    assert decompress(compress(data, kind), kind) == data


@pytest.mark.parametrize(
    ("kind", "compressed"),
    [
        (
            Compression.LZ4,
            "04224d1860707346000000ff0554686520717569636b2062726f776e20666f78201400ffffffffff"
            "ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff0b5020666f78"
            "2000000000",
        ),
        (
            Compression.ZSTD,
            "28b52ffd0058e40000a054686520717569636b2062726f776e20666f78200100f2cdf19309010000",
        ),
        (
            Compression.ZLIB,
            "785eedc8d10980201400c055de506f02c35002a5206cfce610ee3e2f5b8dfbedc715e5996bc439bf"
            "48e79c73ce39e79c73ce39e79c73ce39e79c73ce39e79c736eb3fb018b07106f",
        ),
    ],
)
def test_data_that_java_compressed_is_decompressed(kind: Compression, compressed: str) -> None:
    assert decompress(bytes.fromhex(compressed), kind) == b"The quick brown fox " * 500


@pytest.mark.parametrize("kind", KINDS)
def test_text_gets_smaller(kind: Compression) -> None:
    assert len(compress(TEXT, kind)) < len(TEXT) // 10


@pytest.mark.parametrize(
    ("kind", "magic"),
    [
        (Compression.ZLIB, b"\x78"),
        (Compression.LZ4, b"\x04\x22\x4d\x18"),
        (Compression.ZSTD, b"\x28\xb5\x2f\xfd"),
    ],
)
def test_each_kind_writes_its_own_stream_format(kind: Compression, magic: bytes) -> None:
    assert compress(TEXT, kind).startswith(magic)


def test_lz4_blocks_stand_alone_because_java_reads_no_others() -> None:
    assert lz4.frame.get_frame_info(compress(bytes(1_000_000), Compression.LZ4))["block_linked"] is False


@pytest.mark.parametrize(
    ("sys_flag", "kind"),
    [
        (0x001, Compression.ZLIB),
        (0x101, Compression.LZ4),
        (0x201, Compression.ZSTD),
        (0x301, Compression.ZLIB),
        (0x3FF, Compression.ZLIB),
    ],
)
def test_the_system_flag_names_the_kind(sys_flag: int, kind: Compression) -> None:
    assert compression_of(sys_flag) is kind


@pytest.mark.parametrize("kind", KINDS)
def test_a_kind_knows_its_flag(kind: Compression) -> None:
    assert kind.sys_flag & 1
    assert compression_of(kind.sys_flag) is kind


@pytest.mark.parametrize("bits", [4, 5, 6, 7])
def test_an_unknown_kind_is_refused(bits: int) -> None:
    with pytest.raises(RemoteProtocolError, match=f"unknown compression {bits}"):
        compression_of(bits << 8 | 1)


@pytest.mark.parametrize("kind", KINDS)
def test_the_limit_is_exact(kind: Compression) -> None:
    for size in (1, 1000, 200_000):
        compressed = compress(bytes(size), kind)
        assert decompress(compressed, kind, size) == bytes(size)
        with pytest.raises(RemoteProtocolError):
            decompress(compressed, kind, size - 1)


@pytest.mark.parametrize("kind", KINDS)
def test_a_bomb_is_refused(kind: Compression) -> None:
    compressed = compress(bytes(20_000_000), kind)
    with pytest.raises(RemoteProtocolError):
        decompress(compressed, kind, 100_000)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("data", [b"x", TEXT, bytes(300_000)])
def test_a_stream_cut_anywhere_is_refused(kind: Compression, data: bytes) -> None:
    compressed = compress(data, kind)
    for end in {0, 1, 4, 7, len(compressed) // 2, len(compressed) - 4, len(compressed) - 1}:
        with pytest.raises(RemoteProtocolError):
            decompress(compressed[:end], kind)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("extra", [b"\0", b"trailing"])
def test_extra_bytes_after_the_stream_are_refused(kind: Compression, extra: bytes) -> None:
    with pytest.raises(RemoteProtocolError, match="after its end"):
        decompress(compress(TEXT, kind) + extra, kind)


@pytest.mark.parametrize("kind", KINDS)
def test_the_wrong_kind_is_refused(kind: Compression) -> None:
    for other in KINDS:
        if other is not kind:
            with pytest.raises(RemoteProtocolError):
                decompress(compress(TEXT, other), kind)


@pytest.mark.parametrize("kind", [Compression.ZLIB, Compression.ZSTD])
def test_a_level_that_does_not_exist_is_our_own_error(kind: Compression) -> None:
    with pytest.raises(LocalProtocolError, match="level 99"):
        compress(TEXT, kind, level=99)


@pytest.mark.parametrize("data", [b"", b"x", TEXT, NOISE * 100, bytes(500_000)])
@pytest.mark.parametrize("checksum", [False, True])
def test_zstd_streams_that_do_not_tell_their_size_are_read(data: bytes, checksum: bool) -> None:
    stream = zstandard.ZstdCompressor(level=5, write_checksum=checksum).compressobj()
    compressed = stream.compress(data) + stream.flush()
    assert decompress(compressed, Compression.ZSTD) == data
    if data:
        with pytest.raises(RemoteProtocolError):
            decompress(compressed, Compression.ZSTD, len(data) - 1)


def test_a_zstd_frame_that_lies_about_its_size_is_refused_before_memory_is_set_aside() -> None:
    lie = b"\x28\xb5\x2f\xfd" + b"\xe0" + (1 << 60).to_bytes(8, "little") + b"\x09\x00\x00x"
    with pytest.raises(RemoteProtocolError, match=f"claims {1 << 60} bytes"):
        decompress(lie, Compression.ZSTD)


def test_lz4_frames_with_linked_blocks_checksums_and_sizes_are_read() -> None:
    compressed = lz4.frame.compress(
        NOISE * 100, block_linked=True, content_checksum=True, block_checksum=True, store_size=True
    )
    assert decompress(compressed, Compression.LZ4) == NOISE * 100


def test_a_broken_checksum_is_noticed() -> None:
    compressed = bytearray(zlib.compress(TEXT))
    compressed[-1] ^= 1
    with pytest.raises(RemoteProtocolError, match="broken ZLIB"):
        decompress(bytes(compressed), Compression.ZLIB)
