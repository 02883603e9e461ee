"""What holds in every state of a group, and what a group becomes again by itself."""

from collections.abc import Hashable

from tests.model.explorer import Violation
from tests.model.steps import Steps
from tests.model.world import World, key, name, names

_MAX_ROUNDS = 6


class Promises:
    def __init__(self, steps: Steps) -> None:
        self._steps = steps
        self._known_to_recover: set[Hashable] = set()

    def __call__(self, world: World) -> None:
        """Raises Violation."""
        self._nothing_is_lost(world)
        self._masters_wait_for_all(world)
        self._recovers(world)

    def _nothing_is_lost(self, world: World) -> None:
        """Whoever may become master has all that was acknowledged."""
        for each in sorted(world.known.sync_set):
            log = world.broker(each).log
            for at, record in world.acknowledged:
                if log[at : at + 1] != (record,) and not self._is_excused(world, each):
                    raise Violation(
                        f"{name(each)} may become master and lacks an acknowledged record at {at}"
                    )

    @staticmethod
    def _is_excused(world: World, broker_id: int) -> bool:
        """It crashed and lost what was not synced, and the controller cannot know it before it is back."""
        return not world.broker(broker_id).is_registered

    def _masters_wait_for_all(self, world: World) -> None:
        group = world.known
        if group.master_id is None:
            return
        master = world.broker(group.master_id)
        if master.in_sync is not None and master.epoch == group.master_epoch:
            missing = group.sync_set - master.in_sync.value.awaited
            if missing:
                raise Violation(
                    f"{names(missing)} may become master, but {name(master.id)} does not wait for it"
                )

    def check_step(self, before: World, after: World) -> None:
        """Raises Violation unless enough of those that the controller has confirmed reported what a master
        acknowledges. Records of an earlier epoch are only shown to readers: their senders are gone."""
        for master in after.brokers:
            if master.in_sync is None or before.broker(master.id).epoch != master.epoch:
                continue
            for at in range(before.broker(master.id).confirmed, master.confirmed):
                record = master.log[at]
                members, reports = master.in_sync.value.members, master.in_sync.value.reports
                group = after.known
                if group.master_epoch == master.epoch and group.sync_set in master.in_sync.value._possible:
                    members &= group.sync_set  # what it has proposed may count already
                have = {
                    each for each in members - {master.id} if each in reports and reports[each].offset > at
                }
                have.add(master.id)
                if record[0] == master.epoch and len(have) < self._steps.min_in_sync:
                    raise Violation(
                        f"{name(master.id)} acknowledges a record that only {names(have)} of {names(members)}"
                        f" have; minInSyncReplicas is {self._steps.min_in_sync}"
                    )

    def _recovers(self, world: World) -> None:
        """Without further faults, and without those that are down, messages are soon acknowledged again."""
        path = []
        for _ in range(_MAX_ROUNDS):
            name_of = key(world)
            if name_of in self._known_to_recover:
                break
            path.append(name_of)
            up = [each.id for each in world.brokers if each.is_up and not each.is_learner]
            if len(up) < self._steps.min_in_sync or not world.may_lead & set(up):
                return  # nothing is promised then
            if not world.known.sync_set and not self._can_return(world, frozenset(up)):
                return
            if self._acknowledges(world):
                break
            world = self._calm_round(world)
        else:
            raise Violation(
                f"no message is acknowledged any more, though {names(up)} are there and"
                f" {names(world.may_lead & set(up))} have everything"
            )
        self._known_to_recover.update(path)

    @staticmethod
    def _can_return(world: World, up: frozenset[int]) -> bool:
        """The controller has no record: all must come, or all that a running master waits for."""
        running = [each for each in world.brokers if each.in_sync is not None]
        newest = max(running, key=lambda each: each.epoch, default=None)
        others = {each.id for each in world.brokers if not each.is_learner} - up
        return not others or (
            newest is not None and newest.in_sync is not None and newest.in_sync.value.awaited <= up
        )

    def _acknowledges(self, world: World) -> bool:
        """Whether the master takes a message, and all that it would wait for can have it."""
        group, steps = world.known, self._steps
        if group.master_id is None or not world.has_controller:
            return False
        master = world.broker(group.master_id)
        if not master.leads or master.epoch != group.master_epoch or steps.barrier(master):
            return False
        assert master.in_sync is not None
        return all(
            each.is_up and each.is_registered and each.epoch == master.epoch
            for each in map(world.broker, master.in_sync.value.awaited)
        )

    def _copied(self, world: World) -> World:
        for broker_id in [each.id for each in world.brokers]:
            while (after := self._steps.copy(world, world.broker(broker_id))) is not None:
                world = after
        return world

    def _calm_round(self, world: World) -> World:
        steps = self._steps
        world = world._replace(has_controller=True)
        if world.paused is not None:
            world = steps.resume(world, world.paused)
        for broker_id in [each.id for each in world.brokers]:
            broker = world.broker(broker_id)
            if broker.asked is not None and broker.asked in world.on_the_way:
                world = steps.deliver(world, broker.asked)
        world = world._replace(on_the_way=frozenset())
        for broker in world.brokers:
            if not broker.is_up and broker.id in world.alive:
                world = steps.forget(world, broker.id)
        for broker_id in [each.id for each in world.brokers if each.is_up]:
            if not world.broker(broker_id).is_registered:
                world = steps.register(world, world.broker(broker_id))
            world = steps.poll(world, world.broker(broker_id))
            world = steps.elect(world, broker_id)
        for broker_id in [each.id for each in world.brokers if each.is_up]:
            world = steps.poll(world, world.broker(broker_id))
        for broker in world.brokers:
            if world.broker(broker.id).leads:
                for other in list(steps.unnoticed(world, world.broker(broker.id))):
                    world = steps.notice(world, world.broker(broker.id), other)
        world = steps.later(self._copied(world))
        for broker in world.brokers:
            if world.broker(broker.id).leads and world.broker(broker.id).asked is None:
                world = steps.propose(world, world.broker(broker.id))
                asked = world.broker(broker.id).asked
                if asked is not None:
                    world = steps.deliver(world, asked)
        return world
