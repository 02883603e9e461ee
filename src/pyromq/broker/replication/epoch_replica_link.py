"""One replica under a controller, seen from its master: it greets with its id and hears the epochs first.

Every frame lies in one epoch and names it, so that the replica knows which master wrote which bytes.
"""

from collections.abc import Iterator
from typing import Protocol

from pyromq.broker.replication.replica_link import LinkedMaster, ReplicaLink
from pyromq.clock import Clock
from pyromq.errors import RemoteProtocolError
from pyromq.protocol.epoch_replication import LogFrame, MasterGreeting, ReplicaGreeting, ReplicaReader
from pyromq.security.replica_hello import HelloReader
from pyromq.store.log.epochs import Epoch, end_of, epoch_at
from pyromq.store.message_store import MessageStore


class EpochLinks(LinkedMaster, Protocol):
    """The master, as its links see it under a controller."""

    confirmed: int

    def greeted(self, link: "EpochReplicaLink") -> bool:
        """Whether the epochs are known; else `answer_late` is called when they are."""
        ...


class EpochReplicaLink(ReplicaLink):
    def __init__(
        self, master: EpochLinks, store: MessageStore, clock: Clock, hello: HelloReader | None = None
    ) -> None:
        super().__init__(master, store, clock, hello)
        self._epoch_master = master
        self._reader = ReplicaReader()
        self.greeting: ReplicaGreeting | None = None
        self._is_answered = False
        self.told_confirmed = 0
        """The confirm offset that the replica knows."""

    @property
    def broker_id(self) -> int:
        return self.greeting.broker_id if self.greeting is not None else -1

    @property
    def name(self) -> str:
        return str(self.broker_id)

    @property
    def is_learner(self) -> bool:
        """Whether it never counts as in sync, because its operator does not want it to."""
        return self.greeting is not None and self.greeting.is_learner

    def _heard(self, data: bytes) -> Iterator[int]:
        for said in self._reader.feed(data):
            if isinstance(said, int):
                if not self._is_answered:
                    raise RemoteProtocolError("it reports before it has said who it is and heard the epochs")
                yield said
            elif self.greeting is None:  # java: a replica repeats its greeting while it waits
                self.greeting = said
                if self._epoch_master.greeted(self):
                    self._answer()

    def _answer(self) -> None:
        self._is_answered = True
        if self._transport is not None:
            answer = MasterGreeting(self._store.log.end, self._store.epochs.epochs)
            self._transport.write(answer.encode())

    def answer_late(self) -> bool:
        """This broker is the master from now on; False if the replica has heard older epochs before."""
        if self._is_answered:
            return False
        if self.greeting is not None:
            self._answer()
        return True

    @property
    def _begins_with_last_file(self) -> bool:
        return self.greeting is not None and self.greeting.from_last_file

    @property
    def _fixed_end(self) -> int:
        # What is not confirmed may be cut off when there is another master.
        return min(self._epoch_master.confirmed, self._store.log.end)

    def _frame_bytes(self, most: int) -> int:
        epochs, offset = self._store.epochs.epochs, self.next_offset
        index = epoch_at(epochs, offset)
        left = self._store.log.end if index is None else end_of(epochs, index, self._store.log.end) - offset
        return min(most, left)

    def _header(self, size_bytes: int) -> bytes:
        epochs = self._store.epochs.epochs
        index = epoch_at(epochs, self.next_offset)
        epoch = epochs[index or 0] if epochs else Epoch(0, 0)
        self.told_confirmed = self._epoch_master.confirmed
        return LogFrame(self.next_offset, *epoch, self.told_confirmed).encode(size_bytes)
