"""A table's data version changes with every change of the table."""

import msgspec

from pyromq.protocol.bodies.body import Int64


class DataVersion(msgspec.Struct, frozen=True, kw_only=True, rename="camel", gc=False):
    """Two copies of a table are the same if all three numbers are."""

    counter: Int64 = 0
    state_version: Int64 = 0
    timestamp: Int64 = 0

    def next(self, now_ms: int, state_version: int = 0) -> "DataVersion":
        return DataVersion(counter=self.counter + 1, state_version=state_version, timestamp=now_ms)

    def is_newer_than(self, other: "DataVersion") -> bool:
        """java: the state version, which a controller gives out, counts first"""
        return (self.state_version, self.counter, self.timestamp) > (
            other.state_version,
            other.counter,
            other.timestamp,
        )
