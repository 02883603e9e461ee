"""The base of all bodies, and values that several have: keyword fields, camelCase on the wire, no cycles.

Fields are declared in the order of their names on the wire, because that is the order in which Java writes
them; a body declared in another order is still written in Java's, only slower.
"""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, dataclass_transform

import msgspec

Int32 = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]


class KeywordOnly(msgspec.StructMeta):
    """Makes what is declared keyword-only: the order of fields belongs to the wire, not to the caller, and an
    inherited optional field may precede a required one."""

    def __new__(
        mcls, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **config: Any
    ) -> "KeywordOnly":
        config.setdefault("kw_only", True)
        return super().__new__(mcls, name, bases, namespace, **config)


@dataclass_transform(kw_only_default=True, field_specifiers=(msgspec.field,))
class Body(msgspec.Struct, metaclass=KeywordOnly, rename="camel", gc=False):
    """The parent of every JSON object that travels as a body, in a body, or in one of the broker's files."""

    wire_aliases: ClassVar[Mapping[str, str]] = {}
    """Other names under which a field may arrive, each with the name under which we write it."""


class MessageQueue(msgspec.Struct, frozen=True, order=True, rename="camel", gc=False):
    """One queue of a topic on one broker; hashable, because tables are keyed by it."""

    topic: str
    broker_name: str
    queue_id: Int32

    def __str__(self) -> str:
        return f"{self.topic}@{self.broker_name}:{self.queue_id}"


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
