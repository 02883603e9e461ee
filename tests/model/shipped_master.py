"""The shipped master of a group under a controller, as a function of what it knows.

`InSyncMaster` and the session's `_alter` run as they are; only connections, disk and controller are replaced.
An `InSyncSet` is never changed once it is part of a state: each call works on a copy. The same calls of the
same master have the same result, which is kept: most masters are in many states.
"""

from collections.abc import Coroutine, Iterable
from types import SimpleNamespace
from typing import Any, Final, NamedTuple, cast

from tests.model.world import LONG_S, NOW, Held

from pyromq.broker.replication.controller_session import ControllerSession
from pyromq.broker.replication.in_sync_master import InSyncMaster
from pyromq.broker.replication.in_sync_set import InSyncSet
from pyromq.broker.settings import BrokerSettings
from pyromq.broker.tables.role import Role, RoleTable
from pyromq.config.live import LiveSettings
from pyromq.errors import CallTimeout, ConnectFailed, PyroError, Refused
from pyromq.protocol.catalogue import Answer
from pyromq.protocol.names import MASTER_ID
from pyromq.protocol.requests.controller import AlterSyncStateSet, AlterSyncStateSetAnswer, SyncStateSet

NAME: Final = "g"


class _Clock:
    now = NOW

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
    name = address = ""

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

    def _log_refusal(self, *_: object) -> None:
        """Nobody reads it."""


class Asked(Exception):
    """What the session wants to ask the controller."""

    def __init__(self, request: AlterSyncStateSet) -> None:
        self.request = request


class Outcome(NamedTuple):
    """What became of a proposal: 0 and the set, a refusal, or one of the two below."""

    code: int
    members: frozenset[int] = frozenset()
    version: int = 0

    def as_told(self) -> Answer | PyroError:
        if self.code == NO_ANSWER.code:
            return CallTimeout("no answer")
        if self.code == NOT_SENT.code:
            refused = ConnectFailed("nobody listens")
            refused.__cause__ = ConnectionRefusedError()
            return refused
        if self.code:
            return Refused(self.code, "")
        return AlterSyncStateSetAnswer(
            new_sync_state_set_epoch=self.version,
            body=SyncStateSet(sync_state_set=set(self.members), sync_state_set_epoch=self.version),
        )


NO_ANSWER: Final = Outcome(-1)
NOT_SENT: Final = Outcome(-2)


class Led(NamedTuple):
    """A master after some calls."""

    in_sync: Held
    confirmed: int
    links: frozenset[int]
    barrier: str
    wanted: frozenset[int] | None
    """The set that it asks the controller for, after a call of `wants`."""


class ShippedMaster:
    """`after` loads it with a broker's knowledge and makes the calls."""

    def __init__(self, min_in_sync: int) -> None:
        self.clock = _Clock()
        self._store = SimpleNamespace(log=SimpleNamespace(end=0), dispatch_limit=0)
        durability = SimpleNamespace(
            replicated_offset=None,
            hide_unconfirmed=lambda: None,
            replicated=lambda offset: None,
            on_progress=lambda listener: None,
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
        self._kept: dict[Any, Led] = {}
        self._wants: frozenset[int] | None = None

    def after(
        self, own_id: int, in_sync: Held | None, confirmed: int, log_end: int, *calls: tuple[Any, ...]
    ) -> Led:
        """`calls` are names of methods below with their arguments."""
        asked = own_id, in_sync, confirmed, log_end, calls
        found = self._kept.get(asked)
        if found is None:
            known = None if in_sync is None else in_sync.value
            self._load(own_id, known, confirmed, log_end, () if known is None else known.reports)
            for name, *arguments in calls:
                getattr(self, name)(*arguments)
            self._master.look()
            links = frozenset(cast(Any, each).broker_id for each in self._master._links)
            assert self._master.in_sync is not None
            now = Held(self._master.in_sync, self.clock.now)
            found = Led(now, self._master.confirmed, links, self._role.barrier, self._wants)
            self._kept[asked] = found
        return found

    def _load(
        self, own_id: int, in_sync: InSyncSet | None, confirmed: int, log_end: int, links: Iterable[int]
    ) -> None:
        self.clock.now = NOW
        self._wants = None
        self._store.log.end = self._store.dispatch_limit = log_end
        master = self._master
        master._own_id = own_id
        master.in_sync = None if in_sync is None else copied(in_sync)
        master.confirmed = confirmed
        master._links = [self._link(each) for each in links]
        master._patient_until = float("-inf")
        self.lease_is_held()

    def _link(self, broker_id: int, acknowledged: int = 0) -> Any:
        return _Link(self._master, broker_id, acknowledged)

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

    def waits_long(self) -> None:
        self.clock.now += LONG_S

    def connected(self, broker_id: int) -> None:
        """A replica has connected; perhaps nothing was noticed yet of the end of its last connection."""
        link = self._link(broker_id)
        self._master._links.append(link)
        self._master.greeted(link)

    def reported(self, broker_id: int, offset: int, is_learner: bool = False) -> None:
        link = self._link(broker_id, offset)
        link.is_learner = is_learner
        self._master.acknowledged(link)

    def lost(self, broker_id: int) -> None:
        for link in list(self._master._links):
            if cast(Any, link).broker_id == broker_id:
                self._master.lost(link)

    # The session

    def wants(self, epoch: int) -> None:
        """It looks at its replicas, and the session may ask for another set."""
        wanted = self._master.wanted_set()
        if wanted is not None:
            try:
                self._alter(epoch, wanted, Asked)
            except Asked as asked:
                self._wants = frozenset(asked.request.body.sync_state_set)

    def answered(self, epoch: int, wanted: frozenset[int], outcome: Outcome) -> None:
        """What the session makes of the answer, or of an error in its place."""

        def give(request: Any) -> Exception | Answer:
            return outcome.as_told()

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
            _has_heard_of=lambda others: None,  # all brokers of the model know all others
            _master=self._master,
        )
        run(ControllerSession._alter(session, cast(Any, self._master.in_sync), wanted))


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
