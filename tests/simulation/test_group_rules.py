"""The rules about masters see every broker that is one."""

from types import SimpleNamespace
from typing import Any, cast

from tests.simulation.group_rules import GroupRules
from tests.simulation.plans import Plan
from tests.simulation.recording import Recorder

from pyromq.broker.broker import Broker
from pyromq.broker.replication.in_sync_master import InSyncMaster
from pyromq.broker.tables.role import Role, RoleTable


def test_what_a_master_confirms_counts_before_its_start_has_ended() -> None:
    server = SimpleNamespace(program=None, latest=None)
    rules = GroupRules(cast(Any, SimpleNamespace(brokers=[server], plan=Plan(seed=1))), Recorder(lambda: 0.0))
    assert rules.reached == 0
    broker, side = Broker.__new__(Broker), InSyncMaster.__new__(InSyncMaster)
    broker._parts = None
    server.latest = broker
    assert rules.reached == 0
    side.confirmed = 500
    parts = SimpleNamespace(
        replication=SimpleNamespace(master=side), tables=SimpleNamespace(role=RoleTable(Role(epoch=3)))
    )
    broker._parts = cast(Any, parts)
    assert rules.reached == 500
    server.latest = None
    assert rules.reached == 500, "it never goes back"
