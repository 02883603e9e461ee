"""What may happen next in a group: a step for each message and each fault, by the shipped decisions.

Steps are coarse where finer ones add nothing: a broker asks the controller and hears its answer in one step,
except for proposals, whose answer may be late or never come; a replica copies a record and reports it in one.
"""

from collections.abc import Callable, Iterator
from typing import Any, Final

from tests.model.explorer import Step
from tests.model.shipped_master import NAME, NO_ANSWER, NOT_SENT, Led, Outcome, ShippedMaster
from tests.model.shipped_store import replaces
from tests.model.world import FIRST_VERSION, HOLE, IDS, Broker, Budget, Held, Paused, Proposal, World, name

from pyromq.controller.decisions import BY_CONTROLLER, Situation, decide
from pyromq.controller.election import needs_election
from pyromq.controller.groups import GroupRecord, ReplicaRecord
from pyromq.controller.liveness import Heard, Vitals
from pyromq.controller.store import NotLeading
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
from pyromq.store.log.epochs import Epoch, agreed_end, begin_epoch, cut_epochs

CLUSTER: Final = "c"
ADDRESS: Final = "somewhere"
"""Of every broker: names would make states differ that are alike."""


class Steps:
    def __init__(self, min_in_sync: int = 2) -> None:
        self.min_in_sync = min_in_sync
        self._master = ShippedMaster(min_in_sync)
        self._decided: dict[Any, tuple[Held, Answer]] = {}
        self._members = ""
        """The brokers of the group, as all of them have heard."""

    # Where a run may begin

    def start(self, in_sync: frozenset[int], budget: Budget, learners: frozenset[int] = frozenset()) -> World:
        """All are up, the first is master and has a record that all in sync have; the others have nothing.
        Learners began to copy after that record."""
        leader = IDS[0]
        group = GroupRecord(
            cluster=CLUSTER,
            name=NAME,
            next_id=IDS[-1] + 1,
            replicas={each: ReplicaRecord(ADDRESS, "x", "1", is_learner=each in learners) for each in IDS},
            master_id=leader,
            master_epoch=1,
            sync_set=in_sync,
            sync_set_epoch=FIRST_VERSION,
        )
        told = decide(group, GetReplicaInfo(broker_name=NAME), Situation()).answer
        assert isinstance(told, GetReplicaInfoAnswer)
        self._members = told.members or ""
        record, epochs = (1, 0), (Epoch(1, 0),)
        brokers = tuple(
            Broker(
                each,
                log=(record,) if each in in_sync else (HOLE,) if each in learners else (),
                epochs=epochs if each in in_sync | learners else (),
                epoch=1,
                master=leader,
                is_linked=each in in_sync - {leader} | learners,
                kept_since=1,
                is_learner=each in learners,
            )
            for each in IDS
        )
        world = World(
            Held(group),
            brokers,
            alive=frozenset(IDS),
            acknowledged=frozenset([(0, record)]) if len(in_sync) >= self.min_in_sync else frozenset(),
            may_lead=in_sync,
            budget=budget,
        )
        led = self._master.after(leader, None, 0, 0, ("lead", leader, in_sync, FIRST_VERSION))
        calls: list[tuple[Any, ...]] = []
        for each in sorted(in_sync - {leader}):
            calls += [("connected", each), ("reported", each, 1)]
        led = self._master.after(leader, led.in_sync, 0, 1, *calls)
        return self._settled(world, world.broker(leader), led)

    # All that may happen

    def __call__(self, world: World) -> Iterator[Step[World]]:
        for broker in world.brokers:
            if broker.is_up:
                yield from self._of_broker(world, broker)
            else:
                yield from self._start(world, broker)
        yield from self._of_controller(world)
        yield from self._faults(world)
        if any(each.leads for each in world.brokers):
            yield Step("time passes", self.later(world))

    def _start(self, world: World, broker: Broker) -> Iterator[Step[World]]:
        """It starts and registers, if there is a controller."""
        known = world.known.replicas.get(broker.id)
        names = {str(broker.kept_since), "" if known is None else known.incarnation}
        fresh = next(each for each in range(1, 4) if str(each) not in names)
        broker = broker._replace(is_up=True, start=fresh)
        world = world.with_broker(broker)
        if not world.has_controller:
            yield Step(f"{name(broker.id)} starts again", world)
            return
        yield Step(f"{name(broker.id)} starts again and registers", self.register(world, broker))
        if world.budget.silences:
            spent = world.budget._replace(silences=world.budget.silences - 1)
            after, _ = self._registered(world._replace(budget=spent), broker)
            yield Step(f"{name(broker.id)} starts again and registers, and the answer gets lost", after)

    def _of_broker(self, world: World, broker: Broker) -> Iterator[Step[World]]:
        if world.has_controller:
            if not broker.is_registered:
                yield Step(f"{name(broker.id)} registers", self.register(world, broker))
                return
            after = self.poll(world, broker)
            if after != world:
                yield Step(f"{name(broker.id)} asks who is master", after)
        if broker.leads:
            if world.budget.sends:
                yield Step(f"{name(broker.id)} takes a message", self.send(world, broker))
            for other in self.unnoticed(world, broker):
                yield Step(
                    f"{name(broker.id)} notices that {name(other)} is gone", self.notice(world, broker, other)
                )
            if broker.asked is None:
                after = self.propose(world, broker)
                if after != world:
                    asked = after.broker(broker.id).asked
                    label = "looks at its replicas" if asked is None else f"proposes {asked}"
                    yield Step(f"{name(broker.id)} {label}", after)
        elif (copied := self.copy(world, broker)) is not None:
            label = "copies" if broker.is_linked else "connects"
            yield Step(f"{name(broker.id)} {label}", copied)

    def _of_controller(self, world: World) -> Iterator[Step[World]]:
        if not world.has_controller:
            yield Step("the controller is back", world._replace(has_controller=True))
            return
        for proposal in world.on_the_way:
            yield Step(f"the controller gets {proposal}", self.deliver(world, proposal))
        for each in world.alive:
            if not world.broker(each).is_up:
                yield Step(f"the controller notices that {name(each)} is gone", self.forget(world, each))
        for favourite in sorted(world.alive):
            after = self.elect(world, favourite)
            if after != world:
                yield Step(f"the controller elects {name(after.known.master_id)}", after)
        if world.budget.pauses and world.paused is None:
            yield from self._pauses(world)
        if world.paused is not None:
            yield Step("what the controller has decided reaches its store", self.resume(world, world.paused))
            if world.budget.takeovers and not world.paused.is_deposed:
                spent = world.budget._replace(takeovers=world.budget.takeovers - 1)
                deposed = world.paused._replace(is_deposed=True)
                yield Step("another controller leads", world._replace(budget=spent, paused=deposed))

    def _pauses(self, world: World) -> Iterator[Step[World]]:
        spent = world.budget._replace(pauses=world.budget.pauses - 1)
        for proposal in world.on_the_way:
            after, _ = self._decide(world, _proposed, proposal)
            if after is not world:
                left = world.on_the_way - {proposal}
                paused = world._replace(budget=spent, on_the_way=left, paused=Paused(after.group, proposal))
                yield Step(f"the controller takes {proposal}, and its store gets it later", paused)
        for favourite in sorted(world.alive):
            after = self.elect(world, favourite)
            if after is not world:
                paused = world._replace(budget=spent, paused=Paused(after.group, None))
                label = f"the controller elects {name(after.known.master_id)}, and its store gets it later"
                yield Step(label, paused)

    def _faults(self, world: World) -> Iterator[Step[World]]:
        budget = world.budget
        for broker in world.brokers:
            if broker.is_up and budget.crashes:
                for kept in range(len(broker.log), -1, -1):
                    lost = len(broker.log) - kept
                    if lost and not budget.losses:
                        break
                    label = f" and loses {lost} records" if lost else ""
                    spent = budget._replace(crashes=budget.crashes - 1, losses=budget.losses - bool(lost))
                    yield Step(
                        f"{name(broker.id)} crashes{label}",
                        self.end(world._replace(budget=spent), broker, kept, is_sure=False),
                    )
            if broker.is_up and budget.stops:
                # What a master has taken and not acknowledged need not be on its disk.
                first = len(broker.log)
                if broker.in_sync is not None:
                    first = max(broker.confirmed, broker.in_sync.value.epoch_start)
                spent = budget._replace(stops=budget.stops - 1)
                for kept in range(first, len(broker.log) + 1):
                    yield Step(
                        f"{name(broker.id)} stops with {kept} of its records",
                        self.end(world._replace(budget=spent), broker, kept, is_sure=True),
                    )
            if broker.asked is not None and budget.silences:
                after = world._replace(budget=budget._replace(silences=budget.silences - 1))
                label = f"{name(broker.id)} has waited too long for an answer"
                yield Step(label, self.answer(after, broker, NO_ANSWER))
            if broker.is_linked and budget.blips:
                after = world._replace(budget=budget._replace(blips=budget.blips - 1))
                label = f"{name(broker.id)} loses its connection to {name(broker.master)}"
                yield Step(label, after.with_broker(broker._replace(is_linked=False)))
            if broker.is_up and broker.id in world.alive and budget.mistakes and world.has_controller:
                after = world._replace(budget=budget._replace(mistakes=budget.mistakes - 1))
                yield Step(f"the controller takes {name(broker.id)} for gone", self.forget(after, broker.id))
        if world.has_controller and budget.oblivions and world.paused is None:
            spent = budget._replace(oblivions=budget.oblivions - 1)
            yield Step("the controller's store is lost", self.forget_all(world._replace(budget=spent)))
        if world.has_controller and budget.outages:
            after = world._replace(budget=budget._replace(outages=budget.outages - 1), has_controller=False)
            yield Step("the controller is away", after)

    # The controller

    def _decide(
        self, world: World, ask: Callable[..., Request[Any]], *about: Any, favourite: int = 0
    ) -> tuple[World, Answer]:
        """`ask` makes the request. The same question about the same group has the same answer: it is kept."""
        asked = world.group, world.alive, ask, about, favourite
        found = self._decided.get(asked)
        if found is None:
            alive = {each: Vitals(0, 0, 0 if each == favourite else 1) for each in world.alive}
            decision = decide(world.known, ask(*about), Situation(Heard(alive)))
            assert decision.group is not None
            group = world.group if decision.group is world.known else Held(decision.group)
            found = self._decided[asked] = group, decision.answer
        return world.with_group(found[0]), found[1]

    def forget(self, world: World, broker_id: int) -> World:
        return world._replace(alive=world.alive - {broker_id})

    def elect(self, world: World, favourite: int) -> World:
        """The master is gone: `favourite` is preferred among those that are as good."""
        if not needs_election(world.known, Heard(dict.fromkeys(world.alive, Vitals()))):
            return world
        after, _ = self._decide(world, _election, BY_CONTROLLER, favourite=favourite)
        return _led_by_set(after)

    def deliver(self, world: World, proposal: Proposal) -> World:
        before = world.known
        world, answer = self._decide(world, _proposed, proposal)
        world = world._replace(on_the_way=world.on_the_way - {proposal})
        if world.known is not before:
            world = _without_what_is_gone(_led_by_set(world))
        if isinstance(answer, AlterSyncStateSetAnswer):
            return self._tell(world, proposal, Outcome(0, world.known.sync_set, world.known.sync_set_epoch))
        return self._tell(world, proposal, Outcome(answer.code))

    def _tell(self, world: World, proposal: Proposal, outcome: Outcome) -> World:
        """The master hears what became of its proposal, if it still waits for that."""
        sender = world.broker(proposal.sender)
        return self.answer(world, sender, outcome) if sender.asked == proposal else world

    def resume(self, world: World, paused: Paused) -> World:
        """The store gets what a controller has decided. If another change was faster, it decides again."""
        world = world._replace(paused=None)
        proposal = paused.proposal
        try:
            is_written = replaces(paused.is_stale, paused.is_deposed)
        except NotLeading:
            told = Outcome(ResponseCode.CONTROLLER_NOT_LEADER)
            return world if proposal is None else self._tell(world, proposal, told)
        if not is_written:
            return world if proposal is None else self.deliver(world, proposal)
        world = _led_by_set(world.with_group(paused.after))
        if proposal is None:
            return world
        told = Outcome(0, world.known.sync_set, world.known.sync_set_epoch)
        return self._tell(_without_what_is_gone(world), proposal, told)

    @staticmethod
    def forget_all(world: World) -> World:
        empty = GroupRecord(cluster=CLUSTER, name=NAME, sync_set_epoch=FIRST_VERSION)
        return world._replace(group=Held(empty), alive=frozenset(), forgotten_set=world.in_sync)

    # Brokers and the controller

    def _registered(self, world: World, broker: Broker) -> tuple[World, Answer]:
        """The controller has its registration, and may refuse it."""
        kept = broker.start, broker.kept_since, _newest(broker), broker.is_learner
        world, answer = self._decide(world, _registration, broker.id, *kept)
        return world._replace(alive=world.alive | {broker.id}), answer

    def register(self, world: World, broker: Broker) -> World:
        world, answer = self._registered(world, broker)
        if not isinstance(answer, RegisterBrokerAtControllerAnswer):
            return world
        # From now on its disk has the name of this start.
        broker = broker._replace(is_registered=True, kept_since=broker.start)
        world = world.with_broker(broker)
        if answer.master_broker_id is not None and answer.body is not None:
            body = answer.body
            return self.learn(
                world,
                broker,
                answer.master_broker_id,
                answer.master_epoch or 0,
                frozenset(body.sync_state_set),
                answer.sync_state_set_epoch or 0,
            )
        return self.stand_for_election(world, broker)

    def stand_for_election(self, world: World, broker: Broker) -> World:
        if broker.is_learner:
            return world
        before = world.known
        world, answer = self._decide(world, _election, broker.id, *self._offer(world, broker))
        if world.known is not before:
            world = _led_by_set(world)
        if isinstance(answer, ElectMasterAnswer) and answer.master_broker_id is not None:
            return self._learn_group(world, world.broker(broker.id))
        return world

    def _offer(self, world: World, broker: Broker) -> tuple[Any, ...]:
        """What it says of its log; nothing depends on it if the controller has a record of the group."""
        if not world.known.is_returning:
            return ()
        awaited = broker.in_sync.value.awaited if broker.in_sync is not None else frozenset()
        return _newest(broker), len(broker.log), awaited, self._members

    def poll(self, world: World, broker: Broker) -> World:
        """It says that it is there, and asks who is master."""
        world = world._replace(alive=world.alive | {broker.id})
        asked = GetReplicaInfo(broker_name=NAME, broker_id=broker.id)
        if decide(world.known, asked, Situation()).answer.code:  # it is not known there
            return self.register(world, broker)
        if world.known.master_id is None:
            return self.stand_for_election(world, broker)
        return self._learn_group(world, broker)

    def _learn_group(self, world: World, broker: Broker) -> World:
        group = world.known
        assert group.master_id is not None
        return self.learn(
            world, broker, group.master_id, group.master_epoch, group.sync_set, group.sync_set_epoch
        )

    def learn(
        self, world: World, broker: Broker, master: int, epoch: int, members: frozenset[int], version: int
    ) -> World:
        """As the session does it."""
        if epoch > broker.epoch:
            broker = broker._replace(epoch=epoch, master=master, is_linked=False, in_sync=None, asked=None)
            if master != broker.id:
                return world.with_broker(broker)
            broker = broker._replace(epochs=begin_epoch(broker.epochs, epoch, len(broker.log)), confirmed=0)
            return self._called(world, broker, ("lead", broker.id, members | {broker.id}, version))
        if epoch == broker.epoch and broker.leads:
            return self._called(world, broker, ("controller_says", members, version))
        return world

    # The master

    def send(self, world: World, broker: Broker) -> World:
        budget = world.budget
        number = 100 - budget.sends  # no other record has it
        broker = broker._replace(log=(*broker.log, (broker.epoch, number)))
        world = world._replace(budget=budget._replace(sends=budget.sends - 1))
        return self._called(world, broker)

    def propose(self, world: World, broker: Broker) -> World:
        led = self._after(broker, ("wants", broker.epoch))
        if led.wanted is None:
            return self._settled(world, broker, led)
        proposal = Proposal(broker.id, broker.epoch, led.in_sync.value.version, led.wanted)
        world = self._settled(world, broker._replace(asked=proposal), led)
        if not world.has_controller:
            return self.answer(world, world.broker(broker.id), NOT_SENT)
        return world._replace(on_the_way=world.on_the_way | {proposal})

    def answer(self, world: World, broker: Broker, outcome: Outcome) -> World:
        """The answer to its proposal is there, or surely does not come."""
        assert broker.asked is not None
        call = "answered", broker.epoch, broker.asked.wanted, outcome
        return self._called(world, broker._replace(asked=None), call)

    def unnoticed(self, world: World, broker: Broker) -> Iterator[int]:
        """Replicas whose reports it believes though their connection is gone."""
        assert broker.in_sync is not None
        for each in sorted(broker.in_sync.value.reports):
            if not _is_linked_to(world.broker(each), broker):
                yield each

    def notice(self, world: World, broker: Broker, other: int) -> World:
        return self._called(world, broker, ("lost", other))

    def later(self, world: World) -> World:
        """So long that what was true a moment ago is long ago; connected replicas report all the time."""
        for broker in world.brokers:
            if broker.leads:
                linked = [each for each in world.brokers if _is_linked_to(each, broker)]
                calls = [("reported", each.id, len(each.log), each.is_learner) for each in linked]
                world = self._called(world, broker, ("waits_long",), *calls)
        return world

    def barrier(self, broker: Broker) -> str:
        """Why it takes no messages; empty if it does."""
        return self._after(broker).barrier

    def _after(self, broker: Broker, *calls: tuple[Any, ...]) -> Led:
        return self._master.after(broker.id, broker.in_sync, broker.confirmed, len(broker.log), *calls)

    def _called(self, world: World, broker: Broker, *calls: tuple[Any, ...]) -> World:
        """The master has been called, and has looked at what it knows now."""
        return self._settled(world, broker, self._after(broker, *calls))

    @staticmethod
    def _settled(world: World, broker: Broker, led: Led) -> World:
        """What is confirmed is acknowledged; replicas that it has hung up on know it."""
        broker = broker._replace(in_sync=led.in_sync, confirmed=led.confirmed)
        brokers = tuple(
            broker
            if each.id == broker.id
            else each._replace(is_linked=False)
            if each.is_linked
            and each.id not in led.links
            and not each.is_learner
            and _is_linked_to(each, broker)
            else each
            for each in world.brokers
        )
        new = {(at, broker.log[at]) for at in range(broker.confirmed)} - world.acknowledged
        return world._replace(brokers=brokers, acknowledged=world.acknowledged | new)

    # Replicas

    def copy(self, world: World, broker: Broker) -> World | None:
        """It connects, or copies a record, and reports; None if it cannot."""
        if not broker.is_registered or broker.master is None or broker.leads:
            return None
        master = world.broker(broker.master)
        if not master.is_up or not master.leads or master.epoch != broker.epoch:
            return None
        if broker.is_linked:
            end = len(broker.log)
            if end == len(master.log):
                return None
            record = master.log[end]
            broker = _entered(broker, next(each for each in master.epochs if each.number == record[0]))
            broker = broker._replace(log=(*broker.log, record))
            calls: list[tuple[Any, ...]] = []
        else:
            end = agreed_end(broker.epochs, len(broker.log), master.epochs, len(master.log)) or 0
            broker = broker._replace(log=broker.log[:end], epochs=cut_epochs(broker.epochs, end))
            broker = broker._replace(is_linked=True)
            calls = [("connected", broker.id)]
        if len(broker.log) == master.epochs[-1].start:  # heartbeats name an epoch before its first record
            broker = _entered(broker, master.epochs[-1])
        calls.append(("reported", broker.id, len(broker.log), broker.is_learner))
        return self._called(world.with_broker(broker), master, *calls)

    def end(self, world: World, broker: Broker, kept: int, *, is_sure: bool) -> World:
        """It ends with `kept` records on its disk. `is_sure`: it will know that it reported no others."""
        after = Broker(
            broker.id,
            is_up=False,
            is_registered=False,
            log=broker.log[:kept],
            epochs=cut_epochs(broker.epochs, kept),
            start=broker.start,
            kept_since=broker.kept_since if is_sure else None,
            is_learner=broker.is_learner,
        )
        may_lead = world.may_lead if is_sure else world.may_lead - {broker.id}
        brokers = tuple(
            each._replace(is_linked=False) if each.master == broker.id else each for each in world.brokers
        )
        world = world._replace(brokers=brokers, may_lead=may_lead).with_broker(after)
        return _without_what_is_gone(world)


# Requests


def _election(
    broker_id: int,
    log_epoch: int | None = None,
    log_end: int | None = None,
    awaited: frozenset[int] = frozenset(),
    members: str = "",
) -> ElectMaster:
    return ElectMaster(
        cluster_name=CLUSTER,
        broker_name=NAME,
        broker_id=broker_id,
        log_epoch=log_epoch,
        log_end=log_end,
        awaited=";".join(map(str, sorted(awaited))),
        members=members,
    )


def _proposed(proposal: Proposal) -> AlterSyncStateSet:
    return AlterSyncStateSet(
        broker_name=NAME,
        master_broker_id=proposal.sender,
        master_epoch=proposal.epoch,
        body=SyncStateSet(sync_state_set=set(proposal.wanted), sync_state_set_epoch=proposal.version),
    )


def _registration(
    broker_id: int, start: int, kept_since: int | None, log_epoch: int, is_learner: bool
) -> RegisterBrokerAtController:
    return RegisterBrokerAtController(
        cluster_name=CLUSTER,
        broker_name=NAME,
        broker_id=broker_id,
        broker_address=ADDRESS,
        incarnation=str(start),
        kept_since=None if kept_since is None else str(kept_since),
        log_epoch=log_epoch,
        learner=is_learner or None,
    )


# Brokers


def _newest(broker: Broker) -> int:
    """The newest epoch of its log."""
    return broker.epochs[-1].number if broker.epochs else 0


def _is_linked_to(replica: Broker, master: Broker) -> bool:
    return (
        replica.is_up
        and replica.is_linked
        and (replica.master, replica.epoch) == (master.id, master.epoch)
        and not replica.leads
    )


def _entered(broker: Broker, epoch: Epoch) -> Broker:
    if epoch in broker.epochs:
        return broker
    return broker._replace(epochs=begin_epoch(broker.epochs, epoch.number, epoch.start))


def _without_what_is_gone(world: World) -> World:
    """A broker that is alone in sync and crashes may lose what only it was to keep: that is not promised."""
    for broker in world.brokers:
        if not broker.is_registered and world.in_sync == {broker.id}:
            there = {(at, record) for at, record in enumerate(broker.log)}
            return world._replace(acknowledged=world.acknowledged & there)
    return world


def _led_by_set(world: World) -> World:
    """An election or a proposal has made a set: its members may lead."""
    if not world.known.sync_set:
        return world
    return world._replace(may_lead=world.known.sync_set, forgotten_set=frozenset())
