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

    @property
    def is_master(self) -> bool:
        return self.broker_id == MASTER_ID


class RoleTable:
    def __init__(self, role: Role) -> None:
        self.now = role
        self._listeners: list[Callable[[Role], None]] = []

    def __repr__(self) -> str:
        kind = "master" if self.now.is_master else f"replica {self.now.broker_id}"
        return f"<RoleTable {kind} epoch={self.now.epoch}>"

    def on_change(self, listener: Callable[[Role], None]) -> None:
        """Call `listener` with the role now, and after each change."""
        self._listeners.append(listener)
        listener(self.now)

    def require_master(self) -> None:
        """Raises Refused on a replica: its tables are copies of its master's."""
        if not self.now.is_master:
            raise Refused(
                ResponseCode.NO_PERMISSION,
                f"this broker is replica {self.now.broker_id}, its topics and groups are copies of its"
                " master's: change them there",
            )

    def change(self, role: Role) -> None:
        """Raises ValueError for the role of an older epoch."""
        if role.epoch < self.now.epoch:
            raise ValueError(f"the role of epoch {role.epoch} is older than that of epoch {self.now.epoch}")
        if role != self.now:
            self.now = role
            for listener in self._listeners:
                listener(role)
