"""Where a controller keeps its groups: compare-and-swap by revision, and one leader at a time.

A store answers only what is committed, and commits only for the leader. `read` and `replace` raise NotLeading
if this controller does not lead, and StoreError if that is uncertain: then a replacement may or may not have
happened, and the caller promises nothing.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol

from pyromq.controller.groups import GroupRecord
from pyromq.errors import PyroError


class NotLeading(PyroError):
    """Another controller leads, or none."""


class Stored(NamedTuple):
    group: GroupRecord | None
    revision: int
    """Changes with every replacement; 0 if the group was never stored."""


class Leader(NamedTuple):
    """A controller: its id and its address."""

    id: str
    address: str


class ControllerStore(Protocol):
    @property
    def leader(self) -> Leader | None:
        """The controller that leads, as far as this one knows."""
        ...

    @property
    def is_leading(self) -> bool:
        """Whether this controller surely leads now."""
        ...

    @property
    def size_bytes(self) -> int:
        """The space it takes on the disk of this machine."""
        ...

    def on_leading(self, begun: Callable[[], None]) -> None:
        """Call `begun` whenever this controller begins to lead in place of another one."""
        ...

    async def open(self, own: Leader) -> None:
        """Start to lead, or to wait for that; raises StoreError if the store cannot be used."""
        ...

    async def run(self) -> None:
        """Work in the background until cancelled; raises StoreError when the controller must stop."""
        ...

    async def close(self) -> None: ...

    async def read(self, name: str) -> Stored:
        """A group as it is now: everything committed before the call is in it."""
        ...

    async def read_all(self) -> Mapping[str, Stored]: ...

    async def replace(self, name: str, group: GroupRecord, revision: int) -> bool:
        """Store a group durably in place of that of `revision`; False if there is another one by now."""
        ...
