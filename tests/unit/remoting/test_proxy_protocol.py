"""The PROXY preamble in both versions, whole, cut short and wrong."""

import socket
from struct import pack

import pytest

from pyromq.errors import RemoteProtocolError
from pyromq.remoting.proxy_protocol import read_preamble, starts_like_preamble

SIGNATURE = b"\r\n\r\n\x00\r\nQUIT\n"


def binary(command: int, family: int, block: bytes) -> bytes:
    return SIGNATURE + pack(">BBH", command, family, len(block)) + block


V4_BLOCK = socket.inet_aton("192.0.2.7") + socket.inet_aton("192.0.2.8") + pack(">HH", 4321, 9876)
V6_BLOCK = (
    socket.inet_pton(socket.AF_INET6, "2001:db8::7")
    + socket.inet_pton(socket.AF_INET6, "::1")
    + pack(">HH", 1, 2)
)

GOOD = [
    (b"PROXY TCP4 192.0.2.7 192.0.2.8 4321 9876\r\n", "192.0.2.7:4321"),
    (b"PROXY TCP6 2001:db8::7 ::1 4321 9876\r\n", "[2001:db8::7]:4321"),
    (b"PROXY UNKNOWN\r\n", None),
    (b"PROXY UNKNOWN ffff:: ffff:: 1 2\r\n", None),
    (binary(0x21, 0x11, V4_BLOCK), "192.0.2.7:4321"),
    (binary(0x21, 0x11, V4_BLOCK + b"\x03\x00\x04abcd"), "192.0.2.7:4321"),
    (binary(0x21, 0x21, V6_BLOCK), "[2001:db8::7]:1"),
    (binary(0x21, 0x00, b""), None),
    (binary(0x20, 0x00, b""), None),
    (binary(0x21, 0x31, bytes(216)), None),
]


@pytest.mark.parametrize(("preamble", "source"), GOOD)
def test_a_preamble_names_its_source(preamble: bytes, source: str | None) -> None:
    assert starts_like_preamble(preamble)
    assert read_preamble(preamble + b"the rest") == (len(preamble), source)


@pytest.mark.parametrize("preamble", [preamble for preamble, _ in GOOD])
def test_a_preamble_cut_short_waits_for_more(preamble: bytes) -> None:
    assert [read_preamble(preamble[:size]) for size in range(1, len(preamble))] == [None] * (
        len(preamble) - 1
    )


@pytest.mark.parametrize(
    "data",
    [
        b"POST / HTTP/1.1\r\n",
        b"PROXY TCP4 not.an.ip 192.0.2.8 1 2\r\n",
        b"PROXY TCP4 ::1 ::1 1 2\r\n",
        b"PROXY TCP4 192.0.2.7 192.0.2.8 70000 2\r\n",
        b"PROXY TCP4 192.0.2.7\r\n",
        b"PROXY UDP4 192.0.2.7 192.0.2.8 1 2\r\n",
        b"PROXY \r\n",
        b"PROXY \xff\r\n",
        b"PROXY " + b"x" * 200,
        b"\r\n\r\nGET",
        binary(0x11, 0x11, V4_BLOCK),
        binary(0x22, 0x11, V4_BLOCK),
        binary(0x21, 0x11, V4_BLOCK[:8]),
        binary(0x21, 0x21, V4_BLOCK),
        SIGNATURE + pack(">BBH", 0x21, 0x11, 60_000),
    ],
)
def test_what_is_no_preamble_is_an_error(data: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        read_preamble(data)


def test_frames_and_tls_do_not_start_like_a_preamble() -> None:
    assert not starts_like_preamble(b"\x00\x00\x00\x85")
    assert not starts_like_preamble(b"\x01\x00\x00\x00")
    assert not starts_like_preamble(b"\x16\x03\x01")
