"""`make mutants`: bugs that are planted on purpose, one at a time. The simulation must find each of them.

A bug that no seed finds means that a fault, a load or an invariant is missing. A seed counts only if the same
plan passes without the bug. The code of one function is replaced in the process of a run. Everything there is
interpreted, as compiled twins would not have the bug.
"""

import argparse
import importlib
import inspect
import os
import sys
import textwrap
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from random import Random
from types import FunctionType, MappingProxyType
from typing import Any, NamedTuple

from msgspec.structs import replace
from tests.simulation.plans import Fault, FaultKind, Load, LoadKind, Plan, draw_plan
from tests.simulation.runs import NO_OUTCOME, run_forked

_FIRST_SEED = 1
_MAX_FAULTS, _LONGEST_S = 3, 12.0
"""A bug shows early or not at all: many short runs find more than a few long ones."""

QUICK: dict[str, Any] = {
    "broker_settings": {
        "replica_max_behind_ms": 2000,
        "in_sync_check_ms": 300,
        "controller_poll_ms": 1000,
        "controller_timeout_ms": 3000,
        "flush_offsets_ms": 500,
    },
    "controller_settings": {"scan_interval_ms": 500, "scan_masters_interval_ms": 500},
    "store_settings": {
        "log_segment_bytes": 16 * 1024,
        "queue_flush_interval_ms": 300,
        "queue_flush_least_pages": 0,
        "queue_flush_thorough_interval_ms": 500,
    },
}
"""Much happens in a few seconds: fail-overs, new files, checkpoints."""


class Mutant(NamedTuple):
    name: str
    sentence: str
    where: str
    """The module and the function in it."""
    old: str
    new: str
    faults: tuple[FaultKind, ...] | tuple[Fault, ...]
    """Kinds that the seed draws from, or faults whose times it draws."""
    loads: tuple[LoadKind, ...] = ("plain",)
    changes: Mapping[str, Any] = MappingProxyType({})
    """Of the plan: what the bug needs to be seen."""
    also: tuple[tuple[str, str, str], ...] = ()
    """More patches, if another line alone would make the bug harmless."""

    def plan(self, seed: int) -> Plan:
        """Drawn from the seed, with the faults and loads that can show the bug."""
        chance = Random(f"{seed}/aim")
        kinds = tuple(each for each in self.faults if isinstance(each, str))
        drawn = draw_plan(seed, only=kinds)
        faults = tuple(
            replace(each, for_s=min(each.for_s, _LONGEST_S)) for each in drawn.faults[:_MAX_FAULTS]
        ) + tuple(_aimed(chance, each) for each in self.faults if isinstance(each, Fault))
        loads = tuple(Load(kind, 0.05) for kind in self.loads)
        group = {"replicas": 3, "has_controller": True, "controllers": "journal"}
        chosen: dict[str, Any] = {**group, "faults": faults, "loads": loads, **QUICK}
        for name, change in self.changes.items():
            before = chosen.get(name)
            chosen[name] = {**before, **change} if isinstance(before, dict) else change
        return replace(drawn, **chosen)


def _aimed(chance: Random, fault: Fault) -> Fault:
    return replace(
        fault,
        after_s=round(fault.after_s * chance.uniform(0.3, 1.7), 3),
        for_s=round(fault.for_s * chance.uniform(0.5, 1.5), 3),
    )


_SYNC: dict[str, Any] = {"flush": "SYNC_FLUSH"}
_ASYNC: dict[str, Any] = {"flush": "ASYNC_FLUSH"}
_ETCD: dict[str, Any] = {"controllers": "etcd"}
_LEFT: dict[str, Any] = {
    "faults": (
        Fault("client", 5.0, 150.0, detail="suspended"),
        Fault("client", 170.0, 150.0, detail="suspended"),
        Fault("client", 170.0, 150.0, detail="suspended"),
    ),
    "loads": (Load("locked", 0.3),),
}
"""Ordered members stand still for so long that others take their queues."""
_HELD_UP: dict[str, Any] = {
    "faults": 4
    * (
        Fault("stall", 3.0, 5.0, detail="any", strength=0.6),
        Fault("kill", 0.6, 3.0),
    )
}
"""A master is killed while some of its connections are held up."""
_SELDOM: dict[str, Any] = {
    "broker_settings": {"flush_offsets_ms": 5000, "replica_max_behind_ms": 4000},
    "store_settings": {"flush_interval_ms": 3000, "queue_flush_thorough_interval_ms": 10_000},
}
"""A loss of power takes a lot."""
_LITTLE_FILES: dict[str, Any] = {
    "loads": (Load("tiered", 0.2),),
    "store_settings": {"log_segment_bytes": 4096},
}
"""Three messages fill one."""
_ALONE: dict[str, Any] = {"broker_settings": {"min_in_sync_replicas": 1}}
_PATIENT: dict[str, Any] = {"broker_settings": {"replica_max_behind_ms": 15_000}}
_TWO: dict[str, Any] = {"replicas": 2, **_ALONE}
_CUT_OFF = (
    Fault("stall", 1.0, 3.0, detail="ha"),
    Fault("kill", 0.8, 1.0),
    Fault("stall", 1.0, 3.0, detail="ha"),
    Fault("kill", 0.8, 1.0),
)
"""A master takes messages that it cannot confirm, and is replaced."""
_DEPOSED = 3 * (Fault("partition", 4.0, 6.0, detail="all both"),)
"""The same, and its process goes on."""
_REJOINING = 5 * (Fault("kill", 0.3, 0.4, "replica"), Fault("severed", 0.07, 2.0, detail="in"))
_UNHEARD = 4 * (Fault("kill", 0.3, 0.4, "replica"), Fault("severed", 0.07, 8.0, detail="in"))
"""A replica comes back, and the master does not hear whether it is in sync."""
_CHECKED: dict[str, Any] = {
    "loads": (Load("transactional", 0.05),),
    "broker_settings": {"transaction_timeout_ms": 500, "transaction_check_interval_ms": 500},
    "calm_s": 6.0,
}
"""Brokers soon ask how a transaction ended."""
_STALLED = 3 * (Fault("stall", 1.5, 2.5, detail="ha"),)
"""Replicas get the tables of their master, and not its log."""
_AHEAD = 3 * (Fault("stall", 1.5, 5.0, detail="ha"), Fault("kill", 2.0, 1.0))
"""The same, and one of them becomes master."""
_REPLICATION = "pyromq.broker.replication"
_CONSUMER = "pyromq.client.consumer"

MUTANTS = (
    Mutant(
        "a",
        "a master confirms its log without the replicas",
        f"{_REPLICATION}.in_sync_set:InSyncSet.confirm",
        "min(have, default=0)",
        "log_end",
        ("kill", "stall", "partition"),
    ),
    Mutant(
        "b",
        "a replica does not cut its log at the agreed end",
        f"{_REPLICATION}.epoch_master_link:EpochMasterLink._align",
        "store.cutting.begin(agreed)",
        "store.cutting.begin(end)",
        _CUT_OFF,
        changes=_PATIENT,
    ),
    Mutant(
        "c",
        "the log is declared flushed without a sync",
        "pyromq.store.flushing:Flusher._flush_log",
        "yield partial(self._log.sync, self.flushed_offset, end)",
        "yield partial(int)",
        ("power", "all power"),
        changes=_SYNC,
    ),
    Mutant(
        "d",
        "the controller's journal is not synced",
        "pyromq.controller.journal:Journal.append",
        "self._files.overwrite(self.path, self._end, entry)",
        "self._files.open_for_writing(self.path).write(self._end, memoryview(entry))",
        ("controller", "all power", "kill"),
        changes=_SYNC,
    ),
    Mutant(
        "e",
        "a broker that restarted counts as in sync",
        "pyromq.controller.decisions:_started",
        "if not kept_since or kept_since != before.incarnation:",
        "if not group:",
        (Fault("power", 2.0, 1.0, "replica"), Fault("power", 2.0, 1.0, "replica")),
        changes={**_ASYNC, **_SELDOM},
    ),
    Mutant(
        "f",
        "a master does not wait for the members that it has proposed",
        f"{_REPLICATION}.in_sync_set:InSyncSet.awaited",
        "self.joining.union(*self._possible)",
        "self.members",
        _REJOINING,
    ),
    Mutant(
        "g",
        "the in-sync set shrinks before the controller agrees",
        f"{_REPLICATION}.in_sync_set:InSyncSet.propose",
        "self.proposed = frozenset(wanted)",
        "self.proposed = self.members = frozenset(wanted)",
        (Fault("pause", 1.0, 4.0, "replica"), Fault("pause", 1.0, 4.0, "replica")),
        changes=_ALONE,
    ),
    Mutant(
        "h",
        "the bytes of an epoch are stored before the epoch is safe",
        "pyromq.store.log.epoch_file:EpochFile._replace",
        "self._files.sync_directory(self._path.parent)",
        "pass",
        (Fault("kill", 1.0, 1.0), Fault("kill", 1.0, 1.0)),
    ),
    Mutant(
        "i",
        "a replica with SYNC_FLUSH reports what it has not flushed",
        f"{_REPLICATION}.master_link:MasterLink.report",
        "if store.settings.flush_policy.is_sync and store.flushes.offset < offset:",
        "if not store:",
        ("kill",),
        changes=_SYNC,
    ),
    Mutant(
        "i2",
        "a master with SYNC_FLUSH confirms what it has not flushed itself",
        f"{_REPLICATION}.in_sync_master:InSyncMaster._tell_durability",
        "self._store.dispatch_limit",
        "self._store.log.end",
        ("kill",),
        changes=_SYNC,
    ),
    Mutant(
        "j",
        "the longest log wins an election, in sync or not",
        "pyromq.controller.election:choose_master",
        "winner = _among(group.sync_set,",
        "winner = _among(group.replicas,",
        (Fault("pause", 1.0, 8.0, "replica", at_once=True), Fault("kill", 4.0, 9.0, at_once=True)),
        changes=_TWO,
    ),
    Mutant(
        "k",
        "a lease counts from the answer to a heartbeat, not from its sending",
        f"{_REPLICATION}.controller_session:ControllerSession._beat",
        "lease.renew(sent_at)",
        "lease.renew(self._clock.monotonic())",
        (
            Fault("severed", 1.0, 2.0, detail="in"),
            Fault("partition", 2.2, 8.0, detail="all both"),
            Fault("severed", 1.0, 2.0, detail="in"),
            Fault("partition", 2.2, 8.0, detail="all both"),
        ),
    ),
    Mutant(
        "l",
        "a proposal is forgotten although the controller may still accept it",
        f"{_REPLICATION}.in_sync_set:InSyncSet.unanswered",
        "self._doubtful |= {self.proposed}",
        "pass",
        _UNHEARD,
    ),
    Mutant(
        "m",
        "readers see what is not confirmed",
        "pyromq.broker.flow.durability:Durability.readable_offset",
        "if self._replicated.offset is None:",
        "if limit >= 0:",
        _CUT_OFF,
        changes=_PATIENT,
    ),
    Mutant(
        "n",
        "a cut leaves units in queues whose records are gone",
        "pyromq.store.cutting:Cutting._cut_queues",
        "if queue.last_place >= end:",
        "if not queue:",
        _CUT_OFF,
        changes=_PATIENT,
    ),
    Mutant(
        "o",
        "a cut does not set the checkpoint back",
        "pyromq.store.flushing:Flusher.set_back",
        "with self._worker.alone():",
        "while log_end < 0:",
        _CUT_OFF,
        changes=_PATIENT,
    ),
    Mutant(
        "p",
        "a table is renamed without a sync of its directory",
        "pyromq.store.json_table:JsonTable._replace",
        "self._files.sync_directory(self.path.parent)",
        "pass",
        ("kill",),
        ("tables",),
        changes=_SYNC,
    ),
    Mutant(
        "q",
        "the checkpoint is written although the queues were not synced",
        "pyromq.store.flushing:Flusher._flush_queues",
        "yield partial(self._files.sync, path)",
        "yield partial(int)",
        ("kill",),
    ),
    Mutant(
        "r",
        "the checkpoint of timers is written although their log was not synced",
        "pyromq.store.timers.timer_files:TimerFiles._save",
        "self._files.sync(path)",
        "pass",
        ("power", "all power"),
        ("timed",),
        _SYNC,
    ),
    Mutant(
        "s",
        "a commit leaves no op message, and no one looks for it in the log",
        "pyromq.broker.flow.open_transactions:OpenTransactions._close",
        "self.ops.add(offset, needed_end)",
        "pass",
        (Fault("kill", 3.0, 1.0), Fault("kill", 3.0, 1.0)),
        changes=_CHECKED,
        also=(
            (
                "pyromq.broker.flow.open_transactions:OpenTransactions.rebuild",
                "for key in await self._read_commits(found):",
                "for key in ():",
            ),
        ),
    ),
    Mutant(
        "t",
        "a transaction that is over can be committed once more",
        "pyromq.broker.services.transactions:Transactions._end",
        "if offset is None and not self._is_given_up(half, is_commit=is_commit):",
        "if half is None:",
        6 * (Fault("stall", 1.5, 2.0, detail="any", strength=0.4),),
        changes={
            **_CHECKED,
            "broker_settings": {"transaction_timeout_ms": 200, "transaction_check_interval_ms": 200},
        },
    ),
    Mutant(
        "u",
        "a pop is answered before its checkpoint is safe",
        "pyromq.broker.services.popping:Popping._answer_when_safe",
        "if self._durability.is_immediate or not pop.written:",
        "if pop is not None:",
        (),
        ("received",),
        also=(
            (
                "pyromq.broker.services.popping:Popping._settle",
                "if self._durability.is_immediate or not pop.written:",
                "if pop is not None:",
            ),
        ),
    ),
    Mutant(
        "v",
        "a new master revives what the one before has revived",
        "pyromq.broker.services.reviving:Reviving._begin",
        "self._revival.earlier = EarlierRevivals(store, since_ms)",
        "pass",
        4 * (Fault("kill", 4.0, 1.0),),
        ("dropped",),
        {"calm_s": 8.0},
    ),
    Mutant(
        "w",
        "a consumer commits messages that are not done",
        "pyromq.client.consumer.reading.in_flight:InFlight.committable",
        "next(iter(self._messages), self.next_offset)",
        "self.next_offset",
        ("kill", "pause", "stall"),
        ("plain", "ordered"),
    ),
    Mutant(
        "x",
        "a client keeps the route that it got first",
        "pyromq.cluster.route_table:KnownRoutes._take",
        "self._routes[route.topic] = route",
        "self._routes[route.topic] = route = route if old is None else old",
        (Fault("kill", 1.0, 5.0),),
    ),
    Mutant(
        "y",
        "a name server drops the master with a replica",
        "pyromq.nameserver.unregistration:unregister",
        "if address == broker.address]",
        "if address == broker.address or not id_]",
        (Fault("restart", 1.0, 1.0, "replica"),),
    ),
    Mutant(
        "z",
        "a connection closes and its calls are never answered",
        "pyromq.remoting.pending_calls:PendingCalls.fail",
        "for answered, _ in waiting:",
        "for answered, _ in waiting[:0]:",
        ("kill", "power"),
    ),
    Mutant(
        "aa",
        "readers are not woken by what is confirmed",
        "pyromq.broker.flow.durability:Durability._tell",
        "for listener in self._listeners:",
        "for listener in self._listeners[:0]:",
        (),
        changes={"loads": (Load("plain", 4.013),), "calm_s": 40.0},
    ),
    Mutant(
        "bb",
        "a producer whose send was repeated reports another offset",
        "pyromq.client.sending:Sender.send",
        "is_over = plan.answered(answer.code, now)",
        "is_over = plan.answered(answer.code, now); answer.queue_offset -= bool(plan.attempts)",
        ("kill", "stall"),
    ),
    Mutant(
        "resent",
        "a send that is repeated is stored again",
        "pyromq.broker.flow.resends:Resends.find",
        "for topic in topics:",
        "for topic in ():",
        4 * (Fault("kill", 1.0, 1.0),),
        ("repeated",),
    ),
    Mutant(
        "cc",
        "the controller answers before its journal is written",
        "pyromq.controller.file_store:FileStore._commit",
        "await loop.run_in_executor(self._thread, self._journal.append, group)",
        "loop.run_in_executor(self._thread, self._journal.append, group)",
        ("kill",),
    ),
    Mutant(
        "dd",
        "replicas miss a change of a table during a snapshot",
        f"{_REPLICATION}.table_changes:TableChanges.watch",
        '"seen": token,',
        '"seen": self._token(),',
        (),
        changes={"loads": (Load("tables", 0.02), Load("plain", 0.05))},
        also=(("pyromq.remoting.long_answers:written", "if rows < _FEW_ROWS:", "if rows < 0:"),),
    ),
    Mutant(
        "ee",
        "the flusher goes on after a failed sync",
        "pyromq.store.flushing:Flusher._flush_log",
        "self.failure = error",
        "self.failure = None",
        2 * (Fault("eio", 1.5, 4.0, detail="once"),),
        changes={**_ASYNC, "loads": (Load("plain", 0.02),)},
        also=tuple(
            (f"pyromq.store.flushing:Flusher.{name}", "self.failure = error", "self.failure = None")
            for name in ("_flush_queues", "_write_checkpoint")
        ),
    ),
    Mutant(
        "ff",
        "a log file that was made ahead has no safe name",
        "pyromq.store.log.commit_log:CommitLog._create",
        "self._files.sync_directory(self.segments.directory)",
        "pass",
        ("kill",),
        changes={
            **_SYNC,
            "loads": (Load("plain", 0.02),),
            "store_settings": {
                "log_segment_bytes": 8192,
                "queue_flush_interval_ms": 10_000,
                "queue_flush_thorough_interval_ms": 60_000,
            },
        },
        also=(
            (
                "pyromq.store.log.commit_log:CommitLog.sync",
                "self._files.sync_directory(self.segments.directory)",
                "pass",
            ),
        ),
    ),
    # Controllers over etcd, and a store of theirs that is lost.
    Mutant(
        "e1",
        "a controller leads although its lease is over",
        "pyromq.controller.etcd_store:EtcdStore.is_leading",
        "self._term != 0 and self._clock.since_boot() < self._sure_until",
        "self._term != 0",
        ("etcd", "controller"),
        changes=_ETCD,
    ),
    Mutant(
        "e2",
        "a decision in etcd overwrites another one",
        "pyromq.controller.etcd_store:EtcdStore.replace",
        "[*self._fences(), unchanged]",
        "self._fences()",
        ("etcd", "controller", "kill"),
        changes=_ETCD,
    ),
    Mutant(
        "e3",
        "the key of a leading controller outlives its lease",
        "pyromq.controller.etcd_store:EtcdStore.compete",
        ', "lease": self._lease_id}',
        "}",
        ("controller", "kill"),
        changes=_ETCD,
    ),
    Mutant(
        "w1",
        "the first broker that returns after the controller's store was lost is master",
        "pyromq.controller.decisions:_elect_returning",
        "doubt = uncertainty(offers)",
        'doubt = "" if offers else uncertainty(offers)',
        ("wipe",),
    ),
    Mutant(
        "w2",
        "a group that returns begins with the first epoch again",
        "pyromq.controller.decisions:_elect_returning",
        "newest + EPOCH_GAP",
        "group.master_epoch + 1",
        ("wipe",),
    ),
    # The gRPC front
    Mutant(
        "g1",
        "the front answers OK to a send that its broker has not confirmed",
        "pyromq.proxy.sending:ProxySending._entry",
        "if answer.code != ResponseCode.SUCCESS:",
        "if answer.code < 0:",
        (),
        ("fronted",),
        {**_PATIENT, "faults": (Fault("stall", 1.0, 8.0, detail="ha"), Fault("kill", 5.0, 2.0))},
    ),
    Mutant(
        "g2",
        "the front answers OK to an acknowledgement that its broker has not answered",
        "pyromq.proxy.acknowledging:ProxyAcknowledging._acked",
        "status = status_of(problem)",
        "status = OK",
        ("kill", "front"),
        ("fronted",),
        {"faults": (Fault("front", 6.0, 8.0, detail="cut"), Fault("kill", 5.0, 2.0))},
    ),
    # Defects that were mended: each mend is undone.
    Mutant(
        "1",
        "a broker of a group goes on behind damage in its log",
        "pyromq.store.recovery:Recovery._walk",
        "if following is None or self._has_group:",
        "if following is None:",
        4 * (Fault("power", 2.5, 1.0, "replica"),),
        changes={
            **_ASYNC,
            **_SELDOM,
            "store_settings": {**_SELDOM["store_settings"], "queue_flush_interval_ms": 10_000},
        },
    ),
    Mutant(
        "2",
        "a replica uses the progress of delays before it has the log",
        f"{_REPLICATION}.table_sync:TableSync._take",
        "StampedTables(log_end,",
        "StampedTables(0 if tables.delay_offsets is not None else log_end,",
        _AHEAD,
        ("delayed",),
        _PATIENT,
    ),
    Mutant(
        "2b",
        "the progress of delays is saved before it is confirmed",
        "pyromq.broker.services.delays:Delays.save_if_due",
        "self._appending.durability.keeps(self._taken[1])",
        "self._store.flushes.offset >= self._taken[1]",
        _DEPOSED,
        ("delayed",),
        _PATIENT,
    ),
    Mutant(
        "3",
        "a replica uses the offsets of pops before it has the log",
        f"{_REPLICATION}.table_sync:TableSync._take",
        "StampedTables(log_end,",
        'StampedTables(0 if "@receivers" in str(tables.consumer_offsets) else log_end,',
        _AHEAD,
        ("received",),
        _PATIENT,
    ),
    Mutant(
        "4",
        "a replica uses the position of transactions before it has the log",
        f"{_REPLICATION}.table_sync:TableSync._take",
        "StampedTables(log_end,",
        'StampedTables(0 if "HALF_TOPIC@" in str(tables.consumer_offsets) else log_end,',
        _AHEAD,
        changes={
            **_CHECKED,
            "broker_settings": {**_CHECKED["broker_settings"], **_PATIENT["broker_settings"]},
        },
        also=(
            (
                "pyromq.broker.flow.open_transactions:OpenTransactions.take_position",
                "self._durability.keeps(self._taken[2])",
                "self._taken",
            ),
        ),
    ),
    Mutant(
        "5",
        "a replica uses the progress of revivals before it has the log",
        f"{_REPLICATION}.table_sync:TableSync._take",
        "StampedTables(log_end,",
        'StampedTables(0 if "REVIVE" in str(tables.consumer_offsets) else log_end,',
        _AHEAD,
        ("dropped",),
        _PATIENT,
    ),
    Mutant(
        "6",
        "deletions of topics are ahead of the log",
        "pyromq.store.message_store:MessageStore.begin_epoch",
        "self._deletions.fit_to_log(self._log.start_offset, self._log.end_offset)",
        "pass",
        _STALLED,
        ("tables", "plain"),
        _PATIENT,
        (
            (
                f"{_REPLICATION}.table_sync:TableSync._take",
                "if not await self._log_reaches(max(each.log_offset for each in marks)):",
                "if not marks:",
            ),
        ),
    ),
    Mutant(
        "8",
        "a replica does not check the bodies that it copies",
        "pyromq.store.log.replicated:ReplicatedLog._whole_size",
        "sound_outline(log, here)",
        "pass",
        3 * (Fault("flip", 1.0, 3.0, detail="wire"),),
    ),
    Mutant(
        "9",
        "a replica deletes queues of topics that its master's table lacks",
        f"{_REPLICATION}.table_sync:TableSync._take_topics",
        "self._tell_of_batches(topics_of_batches(topics.topic_config_table))",
        "[self._store.copying.delete_topic(Deletion(each, self._store.log.end, 0))"
        " for each in self._store.topics.names() if each not in topics.topic_config_table]",
        ("kill",),
        ("delayed", "popped"),
    ),
    Mutant(
        "10",
        "offsets are not fitted to the log when a master begins",
        f"{_REPLICATION}.controller_session:ControllerSession._lead",
        "self._before_leading()",
        "pass",
        4
        * (
            Fault("stall", 1.5, 1.0, detail="ha"),
            Fault("client", 0.2, 1.0, detail="paused"),
            Fault("client", 0.05, 1.0, detail="paused"),
            Fault("kill", 0.05, 3.0),
        ),
        changes={"broker_settings": {"all_in_sync": False, "min_in_sync_replicas": 1}},
    ),
    Mutant(
        "11",
        "offsets are saved before the log",
        "pyromq.broker.tables.offsets:OffsetTable._save",
        "if self._store is not None and not self._store.flushes.flush_log_to(log_end):",
        "if log_end < 0:",
        ("kill",),
        changes={**_ASYNC, "store_settings": _SELDOM["store_settings"]},
    ),
    Mutant(
        "12",
        "a proposal of unknown fate holds up messages for ever",
        f"{_REPLICATION}.in_sync_set:InSyncSet.propose",
        "if wanted == self.members and not self._doubtful:",
        "if wanted == self.members:",
        (
            Fault("kill", 0.5, 0.4, "replica"),
            Fault("severed", 0.05, 3.0, detail="out"),
            Fault("controller", 0.5, 0.3, detail="kill", at_once=True),
            Fault("kill", 0.2, 60.0, "replica", at_once=True),
        ),
        changes={
            **_TWO,
            "broker_settings": {**_ALONE["broker_settings"], "controller_timeout_ms": 15_000},
            "loads": (Load("plain", 0.5),),
        },
    ),
    Mutant(
        "14",
        "a master whose disk takes nothing stays master",
        f"{_REPLICATION}.controller_session:ControllerSession._is_unfit",
        "return bool(self._store.faults)",
        "return not self._store",
        (Fault("eio", 1.0, 60.0),),
        changes={**_SYNC, "loads": (Load("plain", 0.5),)},
    ),
    Mutant(
        "17",
        "an acknowledgement is answered although it is not confirmed",
        "pyromq.broker.flow.safe_answers:refusal_of",
        "if status is AppendStatus.PUT_OK:",
        "if status is not None:",
        4 * (Fault("stall", 1.5, 5.0, detail="ha"), Fault("kill", 3.6, 1.0)),
        ("received",),
        _PATIENT,
    ),
    Mutant(
        "18",
        "a damaged last entry of the journal counts as torn",
        "pyromq.controller.journal:replay",
        "is_damaged = end < len(data) and not _is_torn(data, end)",
        "is_damaged = False",
        (Fault("kill", 0.5, 0.5), Fault("controller", 0.5, 3.0, detail="damaged")),
    ),
    Mutant(
        "7",
        "a broker that starts outside the in-sync set leaves its version as it is",
        "pyromq.controller.decisions:_started",
        "sync_set_epoch=version,",
        "sync_set_epoch=group.sync_set_epoch,",
        ("kill", "restart"),
    ),
    Mutant(
        "13",
        "a broker that restarts leaves the in-sync set although it lost nothing",
        "pyromq.controller.decisions:_started",
        "if not kept_since or kept_since != before.incarnation:",
        "if group:",
        (Fault("all power", 1.0, 60.0, detail="one stays away"),),
        changes=_SYNC,
    ),
    Mutant(
        "15",
        "a replica is in sync without the tables",
        f"{_REPLICATION}.in_sync_set:InSyncSet.propose",
        "elif not has_tables(each):",
        "elif each < 0:",
        6 * (Fault("kill", 0.5, 0.5, "replica"), Fault("stall", 0.02, 2.0, detail="any", strength=0.5)),
        ("tables", "plain"),
        also=(
            (
                f"{_REPLICATION}.table_sync:TableSync._first_copy",
                "await self._has_copy.wait()\n    return self._has_copy.is_set()",
                "pass\n    return True",
            ),
        ),
    ),
    # The same for clients.
    Mutant(
        "loop",
        "a message whose loop raised counts as handled if the loop is entered again",
        f"{_CONSUMER}.handling.taking:InterpretedTaking._take",
        "FAILED if self._left and self._has_failed(me) else None",
        "None",
        (),
        ("streamed",),
    ),
    Mutant(
        "only",
        "copies of messages that failed match nothing, and the batch counts as handled",
        f"{_CONSUMER}.handling.settling:what_failed",
        "if _identity(message) in named]\n    if len(failed) < len(named):",
        "if any(message is each for each in problem.only)]\n    if not named:",
        (),
        ("failing",),
    ),
    Mutant(
        "linger",
        "messages of one key wait in several batches, one for each tag",
        "pyromq.client.batching:Accumulator.maybe_add",
        "queue or (message.topic, message.wait_stored, message.tags)",
        "(queue, message.topic, message.wait_stored, message.tags)",
        (),
        ("lingering",),
    ),
    Mutant(
        "close",
        "a simple consumer that closes leaves its messages hidden",
        f"{_CONSUMER}.simple:SimpleConsumer._show_again",
        "await asyncio.gather(*map(show, messages))",
        "pass",
        (),
        ("received",),
    ),
    Mutant(
        "decide",
        "a driver replaces the decision of another one",
        "pyromq.spark.journal_files:LocalFiles.create",
        "os.link(unfinished, self._path / name)",
        "(self._path / name).write_bytes(data)",
        (),
        ("drivers",),
    ),
    Mutant(
        "wait",
        "the lock of a queue is not looked at after the wait for a free handler",
        f"{_CONSUMER}.handling.ordered_delivery:OrderedDelivery._go_through",
        "if not held.is_ours:",
        "if not messages:",
        ("client",),
        changes=_LEFT,
    ),
    Mutant(
        "late",
        "a handler that lost its lock commits",
        f"{_CONSUMER}.group.assigned_queues:AssignedQueues._to_store",
        "if reader.held.is_ours else None",
        "if reader else None",
        ("client",),
        changes=_LEFT,
    ),
    Mutant(
        "sleep",
        "a lock does not age while the machine is suspended",
        f"{_CONSUMER}.reading.in_flight:InFlight._lock_age_s",
        "return max(self._clock.monotonic() - self._locked_at, by_wall_clock_s)",
        "return self._clock.monotonic() - self._locked_at",
        ("client",),
        changes=_LEFT,
    ),
    Mutant(
        "gone",
        "a broker that is gone for good is avoided for ever",
        "pyromq.cluster.sending.choice:BrokerFaults._note",
        "if fault.until_ms <= now_ms]:",
        "if name == broker_name and fault.until_ms <= now_ms]:",
        (),
        ("leaving",),
    ),
    # What an operator is promised.
    Mutant(
        "16",
        "a reset is answered before the replicas have it",
        "pyromq.broker.services.offsets:Offsets._reset_here",
        "await self._promised()",
        "pass",
        (),
        ("resets",),
        {"calm_s": 10.0},
    ),
    Mutant(
        "ends",
        "a new master tells where its queues end before that is confirmed",
        "pyromq.broker.flow.durability:Durability.when_readable",
        "if self.is_readable else",
        "if answer else",
        _CUT_OFF,
        changes={"loads": (Load("queried", 0.01),), **_PATIENT},
    ),
    Mutant(
        "purge",
        "a purge is answered before the replicas have it",
        "pyromq.broker.services.topics:Topics.purge",
        "await promise()",
        "pass",
        _CUT_OFF,
        ("purged",),
        {"calm_s": 10.0},
    ),
    Mutant(
        "again",
        "a query of Spark takes a queue that is behind for a moment for a new one",
        "pyromq.spark.progress:StreamProgress._rewound",
        "range(self._options.access.retries, -1, -1)",
        "()",
        _CUT_OFF,
        changes={"loads": (Load("sourced", 0.01),)},
    ),
    Mutant(
        "copy",
        "a file of the log goes although the tier does not have it",
        "pyromq.store.retention:Retention._remove_segments",
        "self.uploaded_to is not None and segment.end > self.uploaded_to",
        "False",
        (Fault("store", 2.0, 6.0, detail="away"),),
        ("tiered",),
    ),
    Mutant(
        "fence",
        "a master that was replaced continues to write the tier",
        "pyromq.tier.manifests:Manifests._require_claim",
        "(newest.epoch, newest.writer) != (epoch, self.writer)",
        "False",
        (
            Fault("store", 1.0, 40.0, detail="slow", strength=0.4),
            Fault("pause", 6.0, 11.0),
        ),
        changes=_LITTLE_FILES,
        also=(
            (
                "pyromq.tier.manifests:Manifests._change",
                "newest is not None and newest.epoch > epoch",
                "False",
            ),
        ),
    ),
    Mutant(
        "sure",
        "a file of the log goes to the tier before its replicas have it",
        "pyromq.broker.services.tiering:Tiering._closed_files",
        "min(self._store.flushes.offset, self._durability.readable_offset)",
        "self._store.flushes.offset",
        3 * (Fault("stall", 3.0, 6.0, detail="ha"),),
        changes=_LITTLE_FILES,
    ),
    Mutant(
        "past",
        "a reader passes over old messages that must be fetched first",
        "pyromq.tier.history:_wait",
        "status=ReadStatus.IN_TIER, next_offset=offset",
        "status=ReadStatus.NO_MATCHED_MESSAGE, next_offset=offset + 1",
        (Fault("kill", 4.0, 2.0),),
        ("tiered",),
    ),
    Mutant(
        "stale",
        "of several new messages of a key, compaction keeps the first",
        "pyromq.store.compacting:Compacting._examine",
        "newest.pop(key, None)  # so that the keys are in the order of their newest messages"
        "\n            newest[key] =",
        "newest[key] = newest.get(key) or",
        ("kill", "restart"),
        ("compacted",),
    ),
    Mutant(
        "early",
        "a file of the log is deleted before compaction has what it has",
        "pyromq.store.compacting:Compacting.held_from",
        "return min(places, default=None)",
        "return None",
        ("kill", "restart"),
        ("compacted",),
        changes={"store_settings": {"compaction_interval_ms": 10_000}},
    ),
    Mutant(
        "undead",
        "a removed key gets its old value back when its removal is dropped",
        "pyromq.store.compacting:Compacting._write_former",
        "if each.key not in newest and",
        "if (each.key not in newest or not ENTRY.unpack(newest[each.key])[4]) and",
        ("kill", "restart"),
        ("compacted",),
    ),
    Mutant(
        "users",
        "a change of a user is answered before the replicas have it",
        "pyromq.remoting.access.keeping:AccessRules.change_users",
        "await copied() if copied is not None else None",
        "None",
        ("stall", "kill"),
        changes={**_HELD_UP, "loads": (Load("tables", 0.02),)},
    ),
)


def function_at(where: str) -> FunctionType:
    """A function, a method, or the function of a property."""
    module, _, path = where.partition(":")
    found: Any = importlib.import_module(module)
    for name in path.split("."):
        found = inspect.getattr_static(found, name)
    found = found.fget if isinstance(found, property) else found
    assert isinstance(found, FunctionType), f"{where} is not a function"
    return found


def plant(mutant: Mutant) -> None:
    """From now on this process has the bug, wherever the functions are used."""
    for where, old, new in ((mutant.where, mutant.old, mutant.new), *mutant.also):
        _patch(where, old, new)


def _patch(where: str, old: str, new: str) -> None:
    function = function_at(where)
    source = textwrap.dedent(inspect.getsource(function))
    assert source.count(old) == 1, f"{where} does not have {old!r} once"
    space: dict[str, Any] = {}
    changed = source.replace(old, new)
    # Decorators and annotations stay those of the original.
    body = changed[changed.index("def ") if "async def " not in changed else changed.index("async def ") :]
    code = compile(f"from __future__ import annotations\n{body}", where, "exec")
    exec(code, function.__globals__, space)
    (planted,) = (each for each in space.values() if isinstance(each, FunctionType))
    function.__code__ = planted.__code__


class Found(NamedTuple):
    seeds: int
    """How many were tried."""
    cpu_s: float
    broken: list[str]
    """The invariants that the last one violates; none if the bug was not found."""
    sound: list[str]
    """Invariants that fail without the bug, too: a defect of ours, or of the simulation."""


def search(name: str, seeds: int) -> Found:
    """Try seeds until one shows the bug: an invariant fails, and none does without the bug.

    Raises RuntimeError if a run has no outcome."""
    (mutant,) = (each for each in MUTANTS if each.name == name)
    cpu_s, sound = 0.0, set[str]()
    for number in range(1, seeds + 1):
        plan = mutant.plan(_FIRST_SEED + number - 1)
        outcome = run_forked(plan, lambda: plant(mutant))
        cpu_s += outcome.totals.cpu_s
        if NO_OUTCOME in outcome.broken:
            raise RuntimeError(f"no run with the bug {name}: perhaps its patch does not fit the source")
        if outcome.violations:
            without = run_forked(plan)
            cpu_s += without.totals.cpu_s
            if not without.violations:
                return Found(number, cpu_s, outcome.broken, sorted(sound))
            sound |= set(without.broken)
    return Found(seeds, cpu_s, [], sorted(sound))


def main() -> int:
    parser = argparse.ArgumentParser(prog="make mutants")
    parser.add_argument("--seeds", type=int, default=200)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--only", help="names of bugs, separated by commas")
    options = parser.parse_args()
    chosen = [each for each in MUTANTS if options.only is None or each.name in options.only.split(",")]
    missed = 0
    with ProcessPoolExecutor(options.jobs, mp_context=get_context("fork")) as workers:
        running = {workers.submit(search, each.name, options.seeds): each for each in chosen}
        for done in as_completed(running):
            mutant, found = running[done], done.result()
            missed += not found.broken
            verdict = f"found by {', '.join(found.broken)}" if found.broken else "NOT FOUND"
            also = f"; WITHOUT THE BUG, TOO: {', '.join(found.sound)}" if found.sound else ""
            sys.stdout.write(
                f"{mutant.name:3} {mutant.sentence}: {verdict}, {found.seeds} seeds,"
                f" {found.cpu_s:.1f} CPU s{also}\n"
            )
            sys.stdout.flush()
    sys.stdout.write(f"{len(chosen) - missed} of {len(chosen)} found\n")
    return int(missed > 0)


if __name__ == "__main__":
    if os.environ.get("PYTHONHASHSEED") != "0" or os.environ.get("PYROMQ_NATIVE") != "0":
        os.environ["PYTHONHASHSEED"] = os.environ["PYROMQ_NATIVE"] = "0"
        os.execv(sys.executable, [sys.executable, "-m", "tests.simulation.mutants", *sys.argv[1:]])
    sys.exit(main())
