"""What must hold: always, looked at every 50 ms of virtual time, and at the end, when all is quiet.

An invariant looks into the objects of the servers, without a message and without a step of theirs.
"""

import asyncio
import itertools
import logging
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from tests.simulation.cluster import Server, SimulatedCluster
from tests.simulation.contents import Contents, differences
from tests.simulation.disk_rules import DiskRules, Problem
from tests.simulation.group_rules import GroupRules
from tests.simulation.held_rules import HeldRules
from tests.simulation.loop import nothing
from tests.simulation.plans import Plan
from tests.simulation.reader_rules import ReaderRules
from tests.simulation.recording import Recorder
from tests.simulation.tier_rules import TierRules

from pyromq.broker.broker import Broker
from pyromq.errors import PyroError
from pyromq.protocol.names import SCHEDULE_TOPIC

if TYPE_CHECKING:
    from tests.simulation.loads.load import RunningLoad

LOOK_S = 0.05


class UnexplainedErrors(logging.Handler):
    """A server or a client logs an error only if something is wrong that no other broker makes up for: a disk
    or an etcd. A failure of its own is never explained; nor is a handler that fails: it has to say to its
    caller what is wrong."""

    def __init__(self, plan: Plan, recorder: Recorder) -> None:
        super().__init__(logging.ERROR)
        self._is_explained = any(fault.kind in _EXPLAIN_ERRORS for fault in plan.faults)
        self._recorder = recorder

    def emit(self, record: logging.LogRecord) -> None:
        problem = record.exc_info[1] if record.exc_info is not None else None
        is_handler = record.name == _HANDLERS and problem is not None
        if not self._is_explained or is_handler or not isinstance(problem, OSError | PyroError | None):
            reason = f" ({problem!r})" if problem is not None else ""
            self._recorder.violation("an unexplained error", f"{record.name}: {record.getMessage()}{reason}")


_HANDLERS = "pyromq.remoting.answering"
_EXPLAIN_ERRORS = frozenset({"eio", "full", "read-only", "damage", "etcd"})


class Always:
    """Runs beside everything else, until it is cancelled."""

    def __init__(
        self, cluster: SimulatedCluster, recorder: Recorder, loads: Sequence["RunningLoad"] = ()
    ) -> None:
        self._cluster = cluster
        self._loads = loads
        self._recorder = recorder
        self._masters: dict[int, str] = {}
        """By epoch: who was its master."""
        self._group_rules = rules = GroupRules(cluster, recorder)
        is_confirmed = cluster.plan.has_controller and not cluster.plan.acknowledges_alone
        ReaderRules(cluster, recorder, (lambda: rules.reached) if is_confirmed else None)
        self.tier = (
            TierRules(cluster, recorder, (lambda: rules.reached) if is_confirmed else None)
            if cluster.plan.has_tier
            else None
        )
        self._held_rules = {each: HeldRules(cluster, each) for each in cluster.brokers}
        self._passed_over: dict[Server, set[Problem]] = {}
        self._disk_rules: dict[Server, tuple[Broker, DiskRules]] = {}
        self._ahead: dict[Server, set[str]] = {}
        self._positions: dict[Server, tuple[object, ...]] = {}
        """What the positions of a broker depend on, when none was ahead."""

    async def run(self) -> None:
        loop = self._cluster.loop
        loop.after_turn = self._group_rules.after_turn
        try:
            while True:
                self.look()
                await asyncio.sleep(LOOK_S)
        finally:
            loop.after_turn = nothing

    def look(self) -> None:
        cluster = self._cluster
        for server in cluster.brokers:
            if (broker := cluster.broker(server)) is not None:
                self._check_master(server, broker)
                self._check_disk(server, broker)
                self._check_offsets(server, broker)
                self._check_held(server, broker)
        self._group_rules.look()
        if self.tier is not None:
            self.tier.look()
        for load in self._loads:
            load.look()

    def _check_master(self, server: Server, broker: Broker) -> None:
        role = broker.role.now
        if not role.is_master or not role.epoch:
            return
        name = server.host.name
        known = self._masters.get(role.epoch)
        if known is None:
            self._masters[role.epoch] = name
            self._recorder.event("master", f"{name} {role.epoch}")
        elif known != name:
            self._recorder.violation("two masters", f"{known} and {name} in epoch {role.epoch}")

    def _check_disk(self, server: Server, broker: Broker) -> None:
        known = self._disk_rules.get(server)
        if known is None or known[0] is not broker:
            known = self._disk_rules[server] = broker, DiskRules(server, broker)
        for invariant, text in known[1].look():
            self._recorder.violation(invariant, f"{server.host.name}: {text}")

    def _check_offsets(self, server: Server, broker: Broker) -> None:
        """No position is behind the end of its queue on the same broker. On a replica it may be for a moment:
        its log is cut first, and then its tables are fitted."""
        store, tables = broker.store, broker._started.tables
        now = (
            broker,
            store.log.end,
            store.queues.dispatched_offset,
            tables.offsets.changes,
            tables.delay_offsets.changes,
            tables.topics.data_version,
        )
        if now == self._positions.get(server):
            return
        before, self._ahead[server] = self._ahead.get(server, set()), set()
        for what, offset, end in positions_ahead(broker):
            self._ahead[server].add(what)
            if broker.role.now.is_master or what in before:
                text = f"{server.host.name}: {what} is {offset}, the end {end}"
                self._recorder.violation("a position ahead of its queue", text)
        if not self._ahead[server]:
            self._positions[server] = now

    def _check_held(self, server: Server, broker: Broker) -> None:
        """Progress of a replica, too, is ahead for a moment while its log is being cut."""
        before, found = self._passed_over.get(server, set()), set(self._held_rules[server].look(broker))
        self._passed_over[server] = found
        for invariant, text in found if broker.role.now.is_master else found & before:
            self._recorder.violation(invariant, f"{server.host.name}: {text}")


def positions_ahead(broker: Broker) -> Iterator[tuple[str, int, int]]:
    """Positions of groups, of delays and of timers that are further than the log: what, where, the end."""
    parts = broker._started
    store, tables = parts.store, parts.tables
    coming: Counter[tuple[str, int]] | None = None
    own = tables.offsets._own or ()
    """What readers have committed at a replica: they may have read more at a master that is gone."""

    def end_of(topic: str, queue_id: int) -> int:
        """With what is in the log, but not in its queue yet."""
        nonlocal coming
        if coming is None:
            records = store.log.records_from(store.queues.dispatched_offset)
            coming = Counter((each.topic, each.queue_id) for each, _ in records)
        return store.queues.max_offset(topic, queue_id) + coming[topic, queue_id]

    for topic, group in tables.offsets.pairs():
        if tables.topics.get(topic) is None:
            continue
        for queue_id, offset in tables.offsets.queues(group, topic).items():
            if (topic, group, queue_id) in own:
                continue
            if offset > store.queues.max_offset(topic, queue_id) and offset > (
                end := end_of(topic, queue_id)
            ):
                yield f"the offset of {group} in {topic} {queue_id}", offset, end
    for level, offset in tables.delay_offsets.all().items():
        queue_id = level - 1
        if offset > store.queues.max_offset(SCHEDULE_TOPIC, queue_id) and offset > (
            end := end_of(SCHEDULE_TOPIC, queue_id)
        ):
            yield f"the progress of delay level {level}", offset, end


def at_the_end(cluster: SimulatedCluster, contents: list[Contents]) -> Iterator[tuple[str, str]]:
    """The violations, when everything has healed and is quiet: short name, what is wrong."""
    for one, other in itertools.combinations(contents, 2):
        for sentence in differences(one, other):
            yield "logs differ", sentence
        if one.store.log.end != other.store.log.end:
            ends = f"{one.broker} {one.store.log.end}, {other.broker} {other.store.log.end}"
            yield "logs end at different places", ends
    for each in contents:
        for sentence in each.damage:
            yield "damage in a log", sentence
        for sentence in each.queue_problems():
            yield "a queue differs from its log", sentence
    for server in cluster.servers:
        # A front does not start without a name server.
        for sentence in server.failed_starts if server is not cluster.front else ():
            yield "a server did not start", sentence
        for sentence in server.ended:
            yield "a server ended by itself", sentence
