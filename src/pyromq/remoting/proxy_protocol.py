"""The PROXY preamble, in which HAProxy and similar proxies state the real source of a connection.

Versions 1 (a line of text) and 2 (binary). No frame and no TLS handshake starts with the same bytes.
"""

from ipaddress import IPv4Address, IPv6Address
from struct import Struct

from pyromq.errors import RemoteProtocolError
from pyromq.remoting.addresses import format_address

_TEXT_START = b"PROXY "
_MAX_TEXT_BYTES = 107
_BINARY_START = b"\r\n\r\n\x00\r\nQUIT\n"
# signature 12 | version and command 1 | family and protocol 1 | length of what follows 2
_BINARY_FIXED = Struct(">12sBBH")
_MAX_BINARY_BYTES = 4096
_OVER_IPV4, _OVER_IPV6 = Struct(">4s4sHH"), Struct(">16s16sHH")
_LOCAL, _PROXIED = 0x20, 0x21
_TCP4, _TCP6 = 0x11, 0x21


def starts_like_preamble(data: bytes) -> bool:
    return data[:1] in (_TEXT_START[:1], _BINARY_START[:1])


def read_preamble(data: bytes) -> tuple[int, str | None] | None:
    """The length of the preamble and the source it names, if it names one; None while it is incomplete."""
    if data[:1] == _TEXT_START[:1]:
        return _read_text(data)
    return _read_binary(data)


def _read_text(data: bytes) -> tuple[int, str | None] | None:
    if not data.startswith(_TEXT_START[: len(data)]):
        raise RemoteProtocolError("not a PROXY preamble")
    end = data.find(b"\r\n", 0, _MAX_TEXT_BYTES)
    if end < 0:
        if len(data) >= _MAX_TEXT_BYTES:
            raise RemoteProtocolError(f"a PROXY line of more than {_MAX_TEXT_BYTES} bytes")
        return None
    try:
        words = data[:end].decode("ascii").split(" ")
        if words[1] == "UNKNOWN":
            return end + 2, None
        address_type = {"TCP4": IPv4Address, "TCP6": IPv6Address}[words[1]]
        source, _, port, _ = words[2:]
        if not port.isdigit() or int(port) > 65535:
            raise ValueError(f"port {port}")
        return end + 2, format_address(str(address_type(source)), int(port))
    except (ValueError, KeyError, IndexError) as problem:
        raise RemoteProtocolError(f"unreadable PROXY line: {problem}") from None


def _read_binary(data: bytes) -> tuple[int, str | None] | None:
    if not data.startswith(_BINARY_START[: len(data)]):
        raise RemoteProtocolError("not a PROXY preamble")
    if len(data) < _BINARY_FIXED.size:
        return None
    _, command, family, length = _BINARY_FIXED.unpack_from(data)
    end = _BINARY_FIXED.size + length
    if command not in (_LOCAL, _PROXIED) or end > _MAX_BINARY_BYTES:
        raise RemoteProtocolError(f"PROXY preamble with command {command:#x} and {length} bytes")
    if len(data) < end:
        return None
    if command == _LOCAL:
        return end, None
    block = data[_BINARY_FIXED.size : end]
    if family == _TCP4 and length >= _OVER_IPV4.size:
        source, _, port, _ = _OVER_IPV4.unpack_from(block)
        return end, format_address(str(IPv4Address(source)), port)
    if family == _TCP6 and length >= _OVER_IPV6.size:
        source, _, port, _ = _OVER_IPV6.unpack_from(block)
        return end, format_address(str(IPv6Address(source)), port)
    if family in (_TCP4, _TCP6):
        raise RemoteProtocolError(f"PROXY preamble with an address of {length} bytes")
    return end, None
