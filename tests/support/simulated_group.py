"""A broker group and its controllers in one thread, where chance decides what happens next, and when.

The controllers run the shipped code: `Commands` with the state machine, `Liveness` and the entries of the
journal; so do the brokers where they decide: `InSyncSet`, `Lease`, epochs. All else is simulated.
Messages are lost, doubled and overtake each other, answers of the store get lost after the fact, controllers
and brokers crash at every step, leadership moves while the former leader has not noticed. After every step
the invariants are checked. A run follows from its seed alone.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Coroutine, Generator, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from pyromq.broker.replication.in_sync_set import InSyncSet
from pyromq.broker.replication.lease import Lease
from pyromq.controller.commands import CommandOutcome, Commands
from pyromq.controller.decisions import Situation
from pyromq.controller.groups import GroupRecord, ReplicaRecord
from pyromq.controller.journal import MAGIC, encode_entry, replay
from pyromq.controller.liveness import Liveness, Vitals
from pyromq.controller.store import Leader, NotLeading, Stored
from pyromq.errors import StoreError
from pyromq.protocol.catalogue import Answer, Request
from pyromq.protocol.codes import ResponseCode
from pyromq.protocol.requests.controller import (
    AlterSyncStateSet,
    AlterSyncStateSetAnswer,
    ElectMaster,
    ElectMasterAnswer,
    GetReplicaInfo,
    GetReplicaInfoAnswer,
    RegisterBrokerAtController,
    RegisterBrokerAtControllerAnswer,
    SyncStateSet,
)
from pyromq.store.log.epochs import Epoch, Epochs, agreed_end, begin_epoch, cut_epochs, end_of

NAME = "g"
UNKNOWN = (
    ResponseCode.CONTROLLER_BROKER_METADATA_NOT_EXIST,
    ResponseCode.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED,
)
TIMEOUT_S = 10.0
MAX_BEHIND_S = 5.0
MAX_IN_FLIGHT = 25
NOWHERE = Path("simulated")
LOST = GroupRecord(cluster="c", name=NAME)


@types.coroutine
def pause() -> Generator[None, None, None]:
    """A moment at which anything else may happen."""
    yield


class Truth:
    """What is committed. With `is_file` it is a journal of one controller, else a quorum that fences."""

    def __init__(self, first: GroupRecord, is_file: bool) -> None:
        self.is_file = is_file
        self.leader = 0
        self.revision = 1
        self.group = first
        self.durable = MAGIC + encode_entry(first)
        self.unsynced = b""
        self.masters: dict[int, int] = {}

    def lose(self) -> None:
        """Somebody has wiped it. Nothing that is known may depend on it."""
        self.group = LOST
        self.revision += 1
        self.durable, self.unsynced = MAGIC + encode_entry(LOST), b""

    def commit(self, group: GroupRecord) -> None:
        before = self.group
        assert group.master_epoch >= before.master_epoch, "epochs only grow"
        assert group.sync_set_epoch >= before.sync_set_epoch, "versions of the set only grow"
        if group.master_id is not None:
            master = self.masters.setdefault(group.master_epoch, group.master_id)
            assert master == group.master_id, "an epoch has one master"
        self.revision += 1
        self.group = group

    def crash(self, random: Random) -> None:
        """The file after a crash: what was synced, and any part of what was not."""
        survived = self.durable + self.unsynced[: random.randint(0, len(self.unsynced))]
        self.unsynced = b""
        groups, end = replay(survived, NOWHERE)
        self.durable = survived[:end]
        if groups[NAME] != self.group:
            self.commit(groups[NAME])


class SimulatedStore:
    def __init__(self, truth: Truth, number: int) -> None:
        self._truth = truth
        self._number = number
        self.is_leading = True  # Every controller thinks that it leads: only the fence protects the groups.
        self.size_bytes = 0

    @property
    def leader(self) -> Leader | None:
        return Leader(str(self._number), "")

    def on_leading(self, begun: Callable[[], None]) -> None: ...

    async def open(self, own: Leader) -> None: ...

    async def run(self) -> None: ...

    async def close(self) -> None: ...

    async def read(self, name: str) -> Stored:
        await pause()
        self._fence()
        group = self._truth.group
        found = Stored(None if group is LOST else group, self._truth.revision)
        await pause()
        return found

    async def read_all(self) -> Mapping[str, Stored]:
        return {NAME: await self.read(NAME)}

    async def replace(self, name: str, group: GroupRecord, revision: int) -> bool:
        truth = self._truth
        await pause()
        while truth.unsynced:
            await pause()
        self._fence()
        if truth.revision != revision:
            return False
        if truth.is_file:
            truth.unsynced = encode_entry(group)
            await pause()
            truth.durable += truth.unsynced
            truth.unsynced = b""
        truth.commit(group)
        await pause()
        return True

    def _fence(self) -> None:
        if self._truth.leader != self._number:
            raise NotLeading("another controller leads")


@dataclass(eq=False)
class Task:
    work: Coroutine[Any, Any, CommandOutcome]
    done: Callable[[CommandOutcome], None]


class Controller:
    def __init__(self, world: World, number: int) -> None:
        self.world = world
        self.number = number
        self.restart()

    def restart(self) -> None:
        for task in getattr(self, "tasks", ()):
            task.work.close()
        self.tasks: list[Task] = []
        self.liveness = Liveness[Line](self.world.now, max_step_s=5.0, unheard_timeout_s=TIMEOUT_S)
        self.commands = Commands(SimulatedStore(self.world.truth, self.number), self._situation_of)

    def crash(self) -> None:
        if self.world.truth.is_file:
            self.world.truth.crash(self.world.random)
        self.restart()

    def _situation_of(self, name: str) -> Situation:
        return Situation(self.liveness.of_group(name, self.world.now))

    def hear(self, broker_id: int, vitals: Vitals, channel: Line) -> None:
        broker = self.world.brokers[broker_id - 1]
        if broker.is_weak and broker.channel is not channel:
            return  # Its connection has closed: nothing comes over that any more.
        self.liveness.beat("c", (NAME, broker_id), vitals, TIMEOUT_S, channel, self.world.now)

    def receive(self, request: Request[Any], answered: Callable[[Answer], None]) -> None:
        self._start(self.commands.execute(NAME, request), lambda outcome: answered(outcome.answer))

    def tick(self) -> None:
        self.liveness.expire(self.world.now)
        self._start(self._elect_if_needed(), lambda outcome: None)

    async def _elect_if_needed(self) -> CommandOutcome:
        for name in await self.commands.groups_without_master():
            return await self.commands.elect(name)
        return CommandOutcome(None, None, Answer())

    def _start(
        self, work: Coroutine[Any, Any, CommandOutcome], done: Callable[[CommandOutcome], None]
    ) -> None:
        self.tasks.append(Task(work, done))

    def advance(self, task: Task, *, lose_answer: bool = False) -> None:
        try:
            if lose_answer:
                task.work.throw(StoreError("no answer from the store"))
            else:
                task.work.send(None)
        except StopIteration as end:
            self.tasks.remove(task)
            outcome: CommandOutcome = end.value
            task.done(outcome)
            if outcome.new_master is not None:
                self._notify(outcome.new_master)
        except (StoreError, NotLeading):
            self.tasks.remove(task)

    def _notify(self, group: GroupRecord) -> None:
        assert group.master_id is not None
        for each in self.liveness.of_group(NAME, self.world.now).alive:
            broker = self.world.brokers[each - 1]
            news = group.master_id, group.master_epoch, group.sync_set, group.sync_set_epoch
            self.world.post(broker, partial(broker.learn, *news))


@dataclass(eq=False)
class Broker:
    """A model of a broker: its log of (epoch, value), and the rules of an auto-switching replica."""

    world: World
    id: int
    log: list[tuple[int, int]] = field(default_factory=list)
    epochs: Epochs = ()
    flushed: int = 0
    is_weak: bool = False
    """Whether it tells others that it has records which are not on its disk."""
    starts: int = 0
    kept_since: str | None = None
    """The last start that the controller knows: a file that no crash takes away."""
    members: str | None = None
    """All brokers that the controller has named: such a file, too."""
    is_cut_off: bool = False
    """Whether nothing comes from or to controllers and other brokers; clients still reach it."""

    def __post_init__(self) -> None:
        self.start()

    def start(self) -> None:
        self.starts += 1
        self.incarnation = object()
        self.channel = self.world.new_line()
        self.is_up = True
        self.is_registered = False
        self.is_master = False
        self.epoch = 0
        self.master: int | None = None
        self.lease = Lease(self.world, TIMEOUT_S)
        self._follow_anew()

    def _follow_anew(self) -> None:
        self._connect_anew()
        self.unanswered: list[int] = []
        self.links: dict[int, object] = {}
        """As master: the connections of its replicas."""
        self.proposal: object | None = None
        self.in_sync = InSyncSet(self.id, frozenset(), 0, len(self.log))

    def _connect_anew(self) -> None:
        self.link = object()
        self.is_aligned = False
        self.fetch_number: object | None = None

    def hung_up(self, link: object) -> None:
        if self.link is link:
            self._connect_anew()

    def lost(self, broker_id: int, link: object) -> None:
        """As master: the end of a connection was noticed."""
        if self.links.get(broker_id) is link:
            del self.links[broker_id]
            self.in_sync.lost(broker_id)

    def crash(self) -> None:
        """Records that were not flushed may be lost. Nobody was told of them, unless the broker is weak."""
        kept = self.world.random.randint(0 if self.is_weak else self.flushed, len(self.log))
        self._cut(kept)
        self.flushed = kept
        for controller in self.world.controllers:
            noticed = partial(controller.liveness.connection_lost, self.channel)
            if self.is_weak:
                noticed()
            else:
                self.world.post(None, noticed)
        for broker in self.world.brokers:  # which may take a while, or not happen at all
            self.world.post(None, partial(broker.lost, self.id, self.link))
        self.start()

    def _cut(self, end: int) -> None:
        del self.log[end:]
        self.epochs = cut_epochs(self.epochs, end)
        self.flushed = min(self.flushed, end)

    # To the controllers

    def _ask(self, request: Request[Any], answered: Callable[[Any], None], *, once: bool = False) -> None:
        controller = self.world.random.choice(self.world.controllers)
        incarnation = self.incarnation

        def back(answer: Answer) -> None:
            self.world.post(self, lambda: answered(answer) if self.incarnation is incarnation else None)

        if not self.is_cut_off:
            self.world.post(None, lambda: controller.receive(request, back), once=once)

    def heartbeat(self) -> None:
        if self.is_cut_off:
            return
        vitals = Vitals(self._newest_epoch, len(self.log))
        channel = self.channel
        lease, sent_at = self.lease, self.world.now
        for controller in self.world.controllers:

            def hear(controller: Controller = controller) -> None:
                controller.hear(self.id, vitals, channel)
                if channel is self.channel:  # Nothing comes back over a connection that has closed.
                    self.world.post(self, lambda: lease.renew(sent_at))

            self.world.post(None, hear)

    def register(self) -> None:
        request = RegisterBrokerAtController(
            cluster_name="c",
            broker_name=NAME,
            broker_id=self.id,
            broker_address=str(self.id),
            incarnation=str(self.starts),
            kept_since=None if self.is_weak else self.kept_since,
            log_epoch=self._newest_epoch,
        )
        self._ask(request, self._registered, once=True)

    def _registered(self, answer: Answer) -> None:
        if not isinstance(answer, RegisterBrokerAtControllerAnswer) or self.is_registered:
            return
        self.is_registered = True
        self.kept_since = str(self.starts)
        if answer.master_broker_id is not None and answer.body is not None:
            self._learn(answer.master_broker_id, answer.master_epoch, answer.body)

    def stand_for_election(self) -> None:
        request = ElectMaster(
            cluster_name="c",
            broker_name=NAME,
            broker_id=self.id,
            log_epoch=self._newest_epoch,
            log_end=len(self.log),
            awaited=";".join(map(str, self.in_sync.awaited)) if self.is_master else None,
            members=self.members,
        )
        self._ask(request, self._elected)

    @property
    def _newest_epoch(self) -> int:
        return self.epochs[-1].number if self.epochs else 0

    def _elected(self, answer: Answer) -> None:
        if isinstance(answer, ElectMasterAnswer) and answer.body is not None:
            members = SyncStateSet(
                sync_state_set=answer.body.sync_state_set,
                sync_state_set_epoch=answer.sync_state_set_epoch or 0,
            )
            self._learn(answer.master_broker_id, answer.master_epoch, members)

    def poll(self) -> None:
        request = GetReplicaInfo(broker_name=NAME, broker_id=self.id)
        self._ask(request, partial(self._polled, self.lease.ask()))

    def _polled(self, asked: float, answer: Answer) -> None:
        if not isinstance(answer, GetReplicaInfoAnswer):
            if answer.code in UNKNOWN:
                self.is_registered = False
            return
        self.members = answer.members or self.members
        if (answer.master_broker_id, answer.master_epoch) == (self.id, self.epoch):
            self.lease.confirm(asked)
        if answer.master_broker_id is None:
            self.stand_for_election()
        self._learn(answer.master_broker_id, answer.master_epoch, answer.body)

    def _learn(self, master: int | None, epoch: int | None, members: SyncStateSet) -> None:
        self.learn(master, epoch or 0, frozenset(members.sync_state_set), members.sync_state_set_epoch)

    def learn(
        self,
        master: int | None,
        epoch: int,
        members: frozenset[int],
        version: int,
        *,
        is_answer: bool = False,
    ) -> None:
        """Take over what a controller says, unless something newer is known."""
        if not self.is_registered:
            return
        if epoch > self.epoch and master is not None:
            self.epoch, self.master = epoch, master
            self._follow_anew()
            self.is_master = master == self.id
            self.lease.doubt()
            if self.is_master:
                self.epochs = begin_epoch(self.epochs, epoch, len(self.log))
                self.in_sync = InSyncSet(self.id, members, version, len(self.log))
                self.world.took_over(self)
        elif epoch == self.epoch and self.is_master and version > self.in_sync.version:
            self.in_sync.confirmed_by_controller(members, version, is_answer=is_answer)
            if not is_answer:
                for each in self.links.keys() - members:
                    self.lost(each, self.links[each])

    # As master

    def append(self) -> None:
        if self.is_master:
            self.unanswered.append(len(self.log))
            self.log.append((self.epoch, self.world.next_value()))

    def acknowledge(self) -> None:
        if not self.is_master:
            return
        self.flushed = len(self.log)
        if self.world.is_alone:
            self._acknowledge_alone()
            return
        confirmed = self.in_sync.confirm(len(self.log))
        for offset in [each for each in self.unanswered if each < confirmed]:
            self.unanswered.remove(offset)
            self.world.acknowledged[offset] = self.log[offset]

    def _acknowledge_alone(self) -> None:
        if self.lease.is_held and self.unanswered:
            self.unanswered.clear()
            self.world.acknowledged_alone(self)

    def change_set(self) -> None:
        if not self.is_master:
            return
        wanted = self.in_sync.propose(len(self.log), self.world.now, MAX_BEHIND_S)
        if wanted is None:
            return
        proposal = self.proposal = object()
        body = SyncStateSet(sync_state_set=set(wanted), sync_state_set_epoch=self.in_sync.version)
        request = AlterSyncStateSet(
            broker_name=NAME, master_broker_id=self.id, master_epoch=self.epoch, body=body
        )
        self._ask(request, partial(self._set_changed, proposal), once=True)

    def _set_changed(self, proposal: object, answer: Answer) -> None:
        if self.proposal is not proposal:
            return  # Nobody has answered for so long that it was given up.
        if isinstance(answer, AlterSyncStateSetAnswer) and answer.body is not None:
            members = frozenset(answer.body.sync_state_set)
            version = answer.body.sync_state_set_epoch
            self.learn(self.id, self.epoch, members, version, is_answer=True)
        else:
            self.in_sync.refused()

    # As replica

    def fetch(self) -> None:
        if not self.is_registered or self.is_master or self.master is None:
            return
        self.flushed = len(self.log)
        number = self.fetch_number = object()
        master = self.world.brokers[self.master - 1]
        said = self.link, self.epoch, len(self.log), self.epochs, self.is_aligned
        self.world.post(master, lambda: master.serve(self, number, *said))

    def serve(
        self,
        replica: Broker,
        number: object,
        link: object,
        epoch: int,
        end: int,
        epochs: Epochs,
        is_aligned: bool,
    ) -> None:
        if not self.is_master or self.epoch != epoch:
            return
        if not is_aligned:
            if self.links.get(replica.id) is not link:
                self.in_sync.lost(replica.id)
            self.links[replica.id] = link
        elif self.links.get(replica.id) is not link:
            self.world.post(replica, partial(replica.hung_up, link))
            return
        else:
            self.in_sync.reported(replica.id, end, len(self.log), self.world.now)
        start = end if is_aligned else agreed_end(epochs, end, self.epochs, len(self.log)) or 0
        upto = self.world.random.randint(start, len(self.log))
        records, own_epochs = self.log[start:upto], self.epochs
        self.world.post(replica, lambda: replica.fetched(number, start, records, own_epochs))

    def fetched(self, number: object, start: int, records: list[tuple[int, int]], theirs: Epochs) -> None:
        if self.fetch_number is not number:
            return
        self.fetch_number = None
        if not self.is_aligned:
            self._cut(start)
            self.is_aligned = True
        for record in records:
            begun = next(each for each in theirs if each.number == record[0])
            self._enter(begun)
            self.log.append(record)
        if (
            len(self.log) == theirs[-1].start
        ):  # RocketMQ's heartbeats tell of an epoch before its first record.
            self._enter(theirs[-1])

    def _enter(self, begun: Epoch) -> None:
        if begun not in self.epochs:
            self.epochs = begin_epoch(self.epochs, begun.number, begun.start)


class Line:
    """A connection. Its number says when it was opened."""

    def __init__(self, number: int) -> None:
        self.number = number


class Message(NamedTuple):
    to: Broker | None
    incarnation: object
    deliver: Callable[[], object]
    once: bool


class World:
    def __init__(
        self,
        seed: int,
        *,
        is_file: bool,
        has_weak_broker: bool = False,
        is_alone: bool = False,
        loses_store: bool = False,
    ) -> None:
        """With a weak broker the others never crash: what only one broker has can be lost with it.

        `is_alone`: a master acknowledges what it has, without waiting for others; then only one does.
        """
        self.is_alone = is_alone
        self.loses_store = loses_store
        self.losses = self.lines = 0
        self.newest_acknowledger = 0
        self.alone_count = 0
        self.random = Random(seed)
        self.now = 1000.0
        self.in_flight: list[Message] = []
        self.acknowledged: dict[int, tuple[int, int]] = {}
        self._value = 0
        first = GroupRecord(
            cluster="c",
            name=NAME,
            next_id=4,
            replicas={each: ReplicaRecord(str(each), "x") for each in (1, 2, 3)},
        )
        self.truth = Truth(first, is_file)
        self.controllers = [Controller(self, each) for each in range(1 if is_file else 2)]
        self.brokers = [Broker(self, each) for each in (1, 2, 3)]
        self.weak = self.random.choice(self.brokers) if has_weak_broker else None
        if self.weak is not None:
            self.weak.is_weak = True
        self.masters = 0
        self.steps = 0

    def new_line(self) -> Line:
        self.lines += 1
        return Line(self.lines)

    def next_value(self) -> int:
        self._value += 1
        return self._value

    def post(self, to: Broker | None, deliver: Callable[[], object], *, once: bool = False) -> None:
        """Send a message; one to a broker is lost if that has restarted meanwhile. TCP doubles no request:
        it matters to those that say `once`."""
        self.in_flight.append(Message(to, to.incarnation if to is not None else None, deliver, once))

    def took_over(self, master: Broker) -> None:
        self.masters += 1
        rivals = [
            each
            for each in self.brokers
            if each.is_master and each.epoch == master.epoch and each is not master
        ]
        assert not rivals, "an epoch has one master"

    def monotonic(self) -> float:
        return self.now

    def since_boot(self) -> float:
        return self.now

    def now_ms(self) -> int:
        return round(self.now * 1000)

    def acknowledged_alone(self, master: Broker) -> None:
        assert master.epoch >= self.newest_acknowledger, "a master that was replaced acknowledges"
        self.newest_acknowledger = master.epoch
        self.alone_count += 1

    def close(self) -> None:
        """End what the controllers have under way."""
        for controller in self.controllers:
            controller.restart()

    # Chance

    def step(self) -> None:
        self.steps += 1
        chance = self.random.random()
        if chance < 0.4:
            self._deliver_any()
        elif chance < 0.75:
            self._advance_any()
        elif chance < 0.98:
            self._broker_acts(self.random.choice(self.brokers))
        else:
            self._something_breaks()
        del self.in_flight[:-MAX_IN_FLIGHT]
        self.now += self.random.choice((0.0, 0.05, 0.3))
        self.check()

    def _deliver_any(self) -> None:
        if not self.in_flight:
            return
        index = min(
            int(self.random.expovariate(0.3)), len(self.in_flight) - 1
        )  # Older ones come first, mostly.
        message = self.in_flight.pop(index)
        chance = self.random.random()
        if chance < 0.1:
            return
        if chance < 0.2 and not message.once:
            self.in_flight.append(message)
        self._deliver(message)

    def _deliver(self, message: Message) -> None:
        if message.to is not None and message.to.is_cut_off:
            return
        if message.to is None or message.to.incarnation is message.incarnation:
            message.deliver()

    def _advance_any(self) -> None:
        waiting = [(controller, task) for controller in self.controllers for task in controller.tasks]
        if waiting:
            controller, task = self.random.choice(waiting)
            can_lose = not self.truth.is_file and self.random.random() < 0.05
            controller.advance(task, lose_answer=can_lose)

    def _broker_acts(self, broker: Broker) -> None:
        acts: Iterable[Callable[[], None]]
        if not broker.is_registered:
            acts = (broker.register,)
        else:
            fetch, append = broker.fetch, broker.append
            acts = (broker.heartbeat, broker.heartbeat, broker.poll, fetch, fetch, append, append)
            acts = (*acts, broker.acknowledge, broker.acknowledge, broker.change_set)
            if self.is_alone:
                acts = (*acts, broker.heartbeat, broker.poll, broker.poll, broker.acknowledge, append)
        self.random.choice(list(acts))()

    def _something_breaks(self) -> None:
        if self.is_alone and self._cuts_off_or_lets_in():
            return
        if self.loses_store and self.random.random() < 0.1 and all(each.members for each in self.brokers):
            self.losses += 1
            self.truth.lose()
            return
        kind = self.random.choice((0, 1, 2, 3, 4, 5, 5, 5, 6))
        if kind == 0:
            self.random.choice(self.controllers).crash()
        elif kind == 1:
            self.truth.leader = self.random.randrange(len(self.controllers))
        elif kind == 2:
            (self.weak or self.random.choice(self.brokers)).crash()
        elif kind == 3:  # A connection closes, and the broker opens another.
            broker, controller = self.random.choice(self.brokers), self.random.choice(self.controllers)
            controller.liveness.connection_lost(broker.channel)
            broker.channel = self.new_line()
            broker.lease.suspend()
        elif kind == 6:  # A replica loses its connection to the master.
            broker, other = self.random.sample(self.brokers, 2)
            broker.lost(other.id, other.link)
            other.hung_up(other.link)
        elif kind == 4:
            self.now += self.random.choice((3.0, 11.0, 60.0))
        else:
            for controller in self.controllers:
                controller.tick()

    def _cuts_off_or_lets_in(self) -> bool:
        """A master that could be replaced is cut off, for a while."""
        for broker in self.brokers:
            if broker.is_cut_off:
                broker.is_cut_off = self.random.random() < 0.95
                return False
        group = self.truth.group
        if group.master_id is None or len(group.sync_set) < 2:
            return False
        self.brokers[group.master_id - 1].is_cut_off = True
        return True

    # Calm: without faults the group works again

    def calm_down(self, rounds: int = 80, *, without: Broker | None = None) -> None:
        """Raises AssertionError unless a record is acknowledged by all three after a while without faults.

        `without`: this one does not come back; the other two must go on.
        """
        self.in_flight.clear()
        there = [each for each in self.brokers if each is not without]
        if without is not None:
            without.crash()
            without.is_cut_off = True
        for _ in range(rounds):
            self.now += 1.0
            for controller in self.controllers:
                controller.tick()
            for broker in there:
                if broker.is_registered:
                    broker.heartbeat()
                    broker.poll()
                    broker.fetch()
                    broker.change_set()
                else:
                    broker.register()
            self._settle()
            current = self.truth.group
            if current.sync_set == {each.id for each in there} and current.master_id is not None:
                master = self.brokers[current.master_id - 1]
                before = len(self.acknowledged)
                master.append()
                for _ in range(3):
                    for broker in there:
                        broker.fetch()
                    self._settle()
                master.acknowledge()
                self.check()
                if len(self.acknowledged) > before:
                    return
        raise AssertionError(f"the group did not recover: {self.truth.group}")

    def _settle(self) -> None:
        while self.in_flight or any(controller.tasks for controller in self.controllers):
            while self.in_flight:
                self._deliver(self.in_flight.pop(0))
            for controller in self.controllers:
                for task in list(controller.tasks):
                    controller.advance(task)
            self.check()

    # The invariants: an acknowledged record is in the log of every later master, at its offset; an epoch has
    # one master, and epochs only grow; replicas that have the same epoch agree on it; the controllers' set is
    # part of what the master waits for; its members hold everything that is confirmed; nothing is undone.

    def check(self) -> None:
        group = self.truth.group
        if self.weak is not None and not self.weak.is_registered and group.sync_set == {self.weak.id}:
            self._forgive(self.weak)
        master = self.brokers[group.master_id - 1] if group.master_id is not None else None
        if master is not None:
            assert group.master_id in group.sync_set
            if not master.is_weak or master.is_registered:  # It must register before it is master again.
                self._has_everything_acknowledged(master)
        if master is not None and master.is_master and master.epoch == group.master_epoch:
            assert group.sync_set <= master.in_sync.awaited, "the master waits for all who may follow it"
            confirmed = master.in_sync.confirm(len(master.log))
            for each in group.sync_set - ({self.weak.id} if self.weak is not None else set()):
                assert self.brokers[each - 1].log[:confirmed] == master.log[:confirmed]
        self._logs_agree()

    def _forgive(self, weak: Broker) -> None:
        """Nobody else was in sync when it crashed: what it has lost is lost."""
        kept = {offset: record for offset, record in self.acknowledged.items() if offset < len(weak.log)}
        self.acknowledged = kept

    def _has_everything_acknowledged(self, broker: Broker) -> None:
        for offset, record in self.acknowledged.items():
            assert broker.log[offset : offset + 1] == [record], (
                f"broker {broker.id} is master and lacks an acknowledged record at {offset}"
            )

    def _logs_agree(self) -> None:
        """Two replicas that have the same epoch hold the same records of it."""
        for one, other in ((0, 1), (0, 2), (1, 2)):
            first, second = self.brokers[one], self.brokers[other]
            for index, epoch in enumerate(first.epochs):
                if epoch in second.epochs:
                    place = second.epochs.index(epoch)
                    end = min(
                        end_of(first.epochs, index, len(first.log)),
                        end_of(second.epochs, place, len(second.log)),
                    )
                    assert first.log[epoch.start : end] == second.log[epoch.start : end]
