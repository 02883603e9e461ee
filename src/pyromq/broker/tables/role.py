"""What this broker is among those that share its name: the master, or a replica of it.

The settings say what it is at the start. It may change while the broker runs, and whoever acts differently as
a master and as a replica listens.
"""

from collections.abc import Callable
from dataclasses import dataclass

from pyromq.protocol.names import MASTER_ID


@dataclass(frozen=True, slots=True)
class Role:
    """`epoch` counts the masters that there have been; a broker of an older one has been replaced."""

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

    def follow(self, listener: Callable[[Role], None]) -> None:
        """Tell the role now, and each time it changes."""
        self._listeners.append(listener)
        listener(self.now)

    def change(self, role: Role) -> None:
        """Raises ValueError for the role of an older epoch."""
        if role.epoch < self.now.epoch:
            raise ValueError(f"the role of epoch {role.epoch} is older than that of epoch {self.now.epoch}")
        if role != self.now:
            self.now = role
            for listener in self._listeners:
                listener(role)
