"""Which addresses a pattern means: the patterns of RocketMQ's access files, and networks.

`10.1.2.3`, `10.1.2.*`, `10.1.*`, `10.1.2.5-9`, `10.1.5-9.*`, `10.1.2.{3,5}`, a list with commas, `*`; the
same with colons for IPv6. An empty pattern means no address.
"""

from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network

import msgspec

from pyromq.errors import ConfigError

_EVERY = frozenset({"*", "*.*.*.*", "*:*:*:*:*:*:*:*"})
_EXPECTED = "an address, 10.1.2.*, 10.1.2.5-9, 10.1.2.{3,5}, a list with commas, or *"


class _Span(msgspec.Struct, frozen=True):
    """All addresses whose parts lie between two others, part by part."""

    first: tuple[int, ...]
    last: tuple[int, ...]

    def matches(self, parts: tuple[int, ...]) -> bool:
        return len(parts) == len(self.first) and all(
            low <= part <= high for low, part, high in zip(self.first, parts, self.last, strict=True)
        )


class AddressPattern(msgspec.Struct, frozen=True):
    text: str
    spans: tuple[_Span, ...] = ()
    means_every: bool = False

    @classmethod
    def parse(cls, text: str, *, key: str) -> "AddressPattern":
        """Raises ConfigError that names `key`."""
        text = text.strip()
        if not text:
            return cls("")
        if text in _EVERY:
            return cls(text, means_every=True)
        try:
            return cls(text, tuple(_span(each.strip()) for each in _alternatives(text)))
        except ValueError:
            raise ConfigError(key, text, _EXPECTED) from None

    def matches(self, host: str) -> bool:
        if self.means_every:
            return True
        if not self.spans or (parts := _parts(host)) is None:
            return False
        return any(span.matches(parts) for span in self.spans)


def is_in_network(host: str, network: str) -> bool:
    """Whether an address is this one, or in this network (`10.0.0.0/8`)."""
    try:
        return _plain(ip_address(host)) in ip_network(network, strict=False)
    except ValueError:
        return False


def host_of(address: str) -> str:
    """The host in `host:port` or `[host]:port`."""
    return address.rpartition(":")[0].strip("[]") or address


def _plain(address: IPv4Address | IPv6Address) -> IPv4Address | IPv6Address:
    """An IPv4 address that came over an IPv6 socket is still one."""
    return address.ipv4_mapped or address if isinstance(address, IPv6Address) else address


def _parts(host: str) -> tuple[int, ...] | None:
    try:
        address = _plain(ip_address(host.partition("%")[0]))
    except ValueError:
        return None
    packed = address.packed
    if isinstance(address, IPv4Address):
        return tuple(packed)
    return tuple(packed[at] << 8 | packed[at + 1] for at in range(0, 16, 2))


def _alternatives(text: str) -> list[str]:
    if text.endswith("}"):
        head, _, last = text[:-1].partition("{")
        if not head.endswith((".", ":")):
            raise ValueError(text)
        return [head + each.strip() for each in last.split(",")]
    return text.split(",")


def _span(text: str) -> _Span:
    if ":" not in text:
        return _bounded(text.split("."), 4, 10, 255)
    left, gap, right = text.partition("::")
    parts = [part for part in left.split(":") if part]
    if gap:
        after = [part for part in right.split(":") if part]
        parts += ["0"] * max(8 - len(parts) - len(after), 1) + after
    return _bounded(parts, 8, 16, 0xFFFF)


def _bounded(parts: list[str], count: int, base: int, highest: int) -> _Span:
    if len(parts) < count and parts and parts[-1].strip() == "*":
        parts = parts + ["*"] * (count - len(parts))
    if len(parts) != count:
        raise ValueError(parts)
    bounds = [_bounds(part.strip(), base, highest) for part in parts]
    return _Span(tuple(low for low, _ in bounds), tuple(high for _, high in bounds))


def _bounds(part: str, base: int, highest: int) -> tuple[int, int]:
    if part == "*":
        return 0, highest
    low, is_range, high = part.partition("-")
    first = int(low, base)
    last = int(high, base) if is_range else first
    if not 0 <= first <= last <= highest:
        raise ValueError(part)
    return first, last
