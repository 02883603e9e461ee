"""The shipped master of a group under a controller, as a function of what it knows.

`InSyncMaster` and the session's `_alter` run as they are; only connections, disk and controller are replaced.
An `InSyncSet` is never changed once it is part of a state: each call works on a copy.
"""

from collections.abc import Coroutine, Iterable
from types import SimpleNamespace
from typing import Any, Final, cast

from pyromq.broker.replication.controller_session import ControllerSession
from pyromq.broker.replication.in_sync_master import InSyncMaster
from pyromq.broker.replication.in_sync_set import InSyncSet
from pyromq.broker.settings import BrokerSettings
from pyromq.broker.tables.role import Role, RoleTable
from pyromq.config.live import LiveSettings
from pyromq.errors import PyroError
from pyromq.protocol.catalogue import Answer
from pyromq.protocol.names import MASTER_ID
from pyromq.protocol.requests.controller import AlterSyncStateSet

NAME: Final = "g"


class _Clock:
    now = 0.0

    def monotonic(self) -> float:
        return self.now

    def since_boot(self) -> float:
        return self.now

    def now_ms(self) -> int:
        return 0


class _Link:
    """A replica's connection."""

    is_learner = False
    is_started = True
    greeting = "hello"
    address = ""

    def __init__(self, master: InSyncMaster, broker_id: int, acknowledged: int = 0) -> None:
        self.master = master
        self.broker_id = broker_id
        self.acknowledged = acknowledged

    def close(self, reason: str, level: int = 0) -> None:
        self.master.lost(cast(Any, self))


class _Session(SimpleNamespace):
    """As much of a session as proposals need; what is only for its log is None."""

    def __getattr__(self, name: str) -> Any:
        return None


class Asked(Exception):
    """What the session wants to ask the controller."""

    def __init__(self, request: Any) -> None:
        self.request = request


class ShippedMaster:
    """`load` it with a broker's knowledge, call it, and read `in_sync` and `confirmed`."""

    def __init__(self, min_in_sync: int) -> None:
        self.clock = _Clock()
        self._store = SimpleNamespace(log_end=0)
        durability = SimpleNamespace(
            replicated_offset=None,
            hide_unconfirmed=lambda: None,
            replicated=lambda offset: None,
            give_up=lambda: None,
        )
        self._role = RoleTable(Role(MASTER_ID, 1))
        settings = BrokerSettings(
            controller_mode=True,
            controller_addr="127.0.0.1:9",
            all_in_sync=True,
            min_in_sync_replicas=min_in_sync,
        )
        self._master = InSyncMaster(
            LiveSettings(settings),
            self._store,  # type: ignore[arg-type]
            durability,  # type: ignore[arg-type]
            self._role,
            self.clock,
        )
        self._master._is_master = True
        self._master._spreading = cast(Any, "nobody needs to hear of it")

    def load(
        self,
        own_id: int,
        in_sync: InSyncSet | None,
        confirmed: int,
        log_end: int,
        links: Iterable[int],
        now: float,
    ) -> None:
        self.clock.now = now
        self._store.log_end = log_end
        master = self._master
        master._own_id = own_id
        master.in_sync = None if in_sync is None else copied(in_sync)
        master.confirmed = confirmed
        master._links = [self._link(each) for each in links]
        master._patient_until = float("-inf")
        self.lease_is_held()

    def _link(self, broker_id: int, acknowledged: int = 0) -> Any:
        return _Link(self._master, broker_id, acknowledged)

    @property
    def links(self) -> frozenset[int]:
        return frozenset(cast(Any, each).broker_id for each in self._master._links)

    @property
    def in_sync(self) -> InSyncSet:
        assert self._master.in_sync is not None
        return self._master.in_sync

    @property
    def confirmed(self) -> int:
        return self._master.confirmed

    @property
    def barrier(self) -> str:
        self._master.look()
        return self._role.barrier

    def lead(self, own_id: int, members: frozenset[int], version: int) -> None:
        self._master.lead(own_id, members, version)
        self._master._patient_until = float("-inf")
        self.lease_is_held()

    def lease_is_held(self) -> None:
        """Only a master that is alone depends on its lease."""
        lease = self._master.lease
        lease.renew(self.clock.now)
        lease.confirm(lease.ask())

    def controller_says(self, members: frozenset[int], version: int) -> None:
        self._master.controller_says(members, version)

    def look(self) -> None:
        self._master.look()

    def connected(self, broker_id: int) -> None:
        """A replica has connected; perhaps nothing was noticed yet of the end of its last connection."""
        link = self._link(broker_id)
        self._master._links.append(link)
        self._master.greeted(link)

    def reported(self, broker_id: int, offset: int) -> None:
        self._master.acknowledged(self._link(broker_id, offset))

    def lost(self, broker_id: int) -> None:
        for link in list(self._master._links):
            if cast(Any, link).broker_id == broker_id:
                self._master.lost(link)

    # The session

    def wanted(self) -> frozenset[int] | None:
        return self._master.wanted_set()

    def request(self, epoch: int, wanted: frozenset[int]) -> AlterSyncStateSet:
        """How the session asks for a set."""
        try:
            self._alter(epoch, wanted, Asked)
        except Asked as asked:
            found: AlterSyncStateSet = asked.request
            return found
        raise AssertionError("the session asks for nothing")

    def answered(self, epoch: int, wanted: frozenset[int], outcome: Answer | PyroError) -> None:
        """What the session makes of the answer, or of an error in its place."""

        def give(request: Any) -> Exception | Answer:
            return outcome

        self._alter(epoch, wanted, give)

    def _alter(self, epoch: int, wanted: frozenset[int], outcome_of: Any) -> None:
        async def call(request: Any) -> Any:
            outcome = outcome_of(request)
            if isinstance(outcome, Exception):
                raise outcome
            return outcome

        session: Any = _Session(
            _name=NAME,
            _own_id=self._master._own_id,
            epoch=epoch,
            _clock=self.clock,
            _controllers=SimpleNamespace(call=call),
            _poll_due=SimpleNamespace(set=lambda: None),
            _master=self._master,
        )
        run(ControllerSession._alter(session, self.in_sync, wanted))


def run(work: Coroutine[Any, Any, Any]) -> None:
    """Nothing in it waits."""
    try:
        work.send(None)
    except StopIteration:
        return
    raise AssertionError("it waits for something")


def copied(in_sync: InSyncSet) -> InSyncSet:
    made = InSyncSet.__new__(InSyncSet)
    for name, value in vars(in_sync).items():
        setattr(made, name, value.copy() if type(value) in (dict, list, set) else value)
    return made
