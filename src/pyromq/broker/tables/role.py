"""The role of this broker: master or replica.

The settings give the first role. It may change while the broker runs; services that act differently as master
and as replica listen for that.
"""

from collections.abc import Callable
from dataclasses import dataclass

from pyromq.errors import Refused
from pyromq.protocol.codes import ResponseCode
from pyromq.protocol.names import MASTER_ID


@dataclass(frozen=True, slots=True)
class Role:
    """`epoch` counts the masters so far; a broker with an older epoch has been replaced."""

    broker_id: int = MASTER_ID
    epoch: int = 0
    mirror_of: str = ""
    """The name servers of the cluster that has the master, if it is another one."""
    listed_id: int | None = None
    """The id at this cluster's name servers, if it is another one."""

    @property
    def is_master(self) -> bool:
        return self.broker_id == MASTER_ID

    @property
    def is_mirror(self) -> bool:
        return bool(self.mirror_of)

    @property
    def own_name(self) -> str:
        """How refusals call a broker that is not the master."""
        return (
            f"a mirror of the cluster at {self.mirror_of}" if self.is_mirror else f"replica {self.broker_id}"
        )


NOT_ELECTED = Role(-1)
"""Under a controller, until it has named a master: as a replica."""


class RoleTable:
    def __init__(self, role: Role) -> None:
        self.now = role
        self._listeners: list[Callable[[Role], None]] = []
        self._barrier_listeners: list[Callable[[], None]] = []
        self.barrier = ""
        """Why this master accepts no messages at the moment; empty if it does."""

    def __repr__(self) -> str:
        kind = "master" if self.now.is_master else f"replica {self.now.broker_id}"
        return f"<RoleTable {kind} epoch={self.now.epoch}>"

    def on_change(self, listener: Callable[[Role], None]) -> None:
        """Call `listener` with the role now, and after each change."""
        self._listeners.append(listener)
        listener(self.now)

    def bar(self, reason: str) -> None:
        """A master accepts no messages as long as there is a reason."""
        if reason != self.barrier:
            self.barrier = reason
            for listener in self._barrier_listeners:
                listener()

    def on_barrier(self, listener: Callable[[], None]) -> None:
        """Call `listener` when a master begins or ends to refuse messages."""
        self._barrier_listeners.append(listener)

    def require_master(self) -> None:
        """Raises Refused on a replica: its tables are copies of its master's."""
        if not self.now.is_master:
            raise Refused(
                ResponseCode.NO_PERMISSION,
                f"this broker is {self.now.own_name}, its topics and groups are copies of its"
                " master's: change them there",
            )

    def require_no_mirror(self) -> None:
        """Raises Refused on a mirror: groups stand where they stand in the cluster that it copies."""
        if self.now.is_mirror:
            raise Refused(
                ResponseCode.NO_PERMISSION,
                f"this broker is {self.now.own_name}: the offsets of groups are those there, until it is"
                " promoted",
            )

    def change(self, role: Role) -> None:
        """Raises ValueError for the role of an older epoch."""
        if role.epoch < self.now.epoch:
            raise ValueError(f"the role of epoch {role.epoch} is older than that of epoch {self.now.epoch}")
        if role != self.now:
            self.now = role
            self.barrier = ""
            for listener in self._listeners:
                listener(role)
