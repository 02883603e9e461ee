"""The metadata of a call, decoded when asked for; its deadline."""

import re
from math import inf

from pyromq.http2.hpack import Header
from pyromq.proxy.grpc.status import GrpcCode, GrpcError

_TIMEOUT = re.compile(rb"([0-9]{1,8})([HMSmun])")
_SECONDS = {b"H": 3600.0, b"M": 60.0, b"S": 1.0, b"m": 1e-3, b"u": 1e-6, b"n": 1e-9}

_KNOWN_TIMEOUTS: dict[bytes, float] = {}
_MAX_KNOWN_TIMEOUTS = 1000
"""Some clients always send the same text."""


class Metadata:
    """Of a name that comes several times the last value counts."""

    __slots__ = ("_values", "raw")

    def __init__(self, headers: list[Header]) -> None:
        self._values = values = dict(headers)
        self.raw = values.get
        """The value of a header, or the default."""

    def __repr__(self) -> str:
        return f"<Metadata {sorted(self._values)}>"

    def get(self, name: bytes) -> str:
        return self._values.get(name, b"").decode("utf-8", "replace")

    def timeout_s(self) -> float:
        """How long the caller waits; raises GrpcError if that cannot be read."""
        text = self._values.get(b"grpc-timeout")
        if text is None:
            return inf
        known = _KNOWN_TIMEOUTS.get(text)
        if known is not None:
            return known
        found = _TIMEOUT.fullmatch(text)
        if found is None:
            raise GrpcError(
                GrpcCode.INVALID_ARGUMENT, f"grpc-timeout is {text!r}, expected 100m, 3S or the like"
            )
        timeout_s = int(found[1]) * _SECONDS[found[2]]
        if len(_KNOWN_TIMEOUTS) < _MAX_KNOWN_TIMEOUTS:
            _KNOWN_TIMEOUTS[text] = timeout_s
        return timeout_s
