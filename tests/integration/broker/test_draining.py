"""A drained broker stays read-only, whoever of its group is the master and whichever servers restart."""

import asyncio
from pathlib import Path
from typing import Any

from click.testing import CliRunner
from tests.support.broker_cluster import TOPIC, topic_creation
from tests.support.replicas import until

from pyromq.admin.cluster import Cluster
from pyromq.broker.broker import Broker
from pyromq.cli.mqadmin.tree import mqadmin
from pyromq.nameserver.nameserver import NameServer
from pyromq.standalone import Standalone, StandaloneSettings
from pyromq.testing.clusters import on_held_ports


def settings(directory: Path) -> StandaloneSettings:
    small: dict[str, Any] = {"log_segment_bytes": 1 << 20, "index_slots": 100, "index_units": 400}
    return StandaloneSettings(store=directory, replicas=2, store_settings=small)


async def run(running: Standalone, *words: str) -> str:
    line = [*words, "-n", running.namesrv, "--timeout", "60"]
    done = await asyncio.to_thread(CliRunner().invoke, mqadmin, line)
    assert done.exit_code == 0, done.output
    return done.output


async def permissions(namesrv: str) -> set[int]:
    async with Cluster(namesrv) as cluster:
        return {each.perm for each in (await cluster.route(TOPIC)).queue_datas}


async def test_a_drain_survives_a_fail_over_and_a_new_name_server_until_it_is_undone(tmp_path: Path) -> None:
    with on_held_ports(settings(tmp_path)) as settled:
        async with Standalone(settled) as running:
            number = running.master_number()
            async with Cluster(running.namesrv) as cluster:
                await cluster.ask(running.brokers[number].advertised_address, topic_creation(TOPIC))
            await running.wait_in_sync()
            name = running.brokers[number].settings.broker_name
            shown = await run(running, "drainBroker", "-b", name)
            assert shown.count("is read-only") == 2
            assert (await run(running, "clusterList")).count(" R\n") == 2
            assert await permissions(running.namesrv) == {4}

            await running.wait_in_sync()
            await running.kill_master()
            (other,) = running.brokers
            await until(lambda: other.role.now.is_master, "the replica is the master")
            await running.name_server.stop()
            running._name_server = NameServer(settled.name_server_settings())
            await running.name_server.start()
            await until(lambda: running.name_server.statistics().tables.live_brokers, "it registers again")
            assert await permissions(running.namesrv) == {4}

            await run(running, "drainBroker", "-b", name, "--undo")
            assert await permissions(running.namesrv) == {6}


async def test_a_changed_setting_names_the_replicas_that_keep_theirs(tmp_path: Path) -> None:
    with on_held_ports(settings(tmp_path)) as settled:
        async with Standalone(settled) as running:
            master = running.brokers[running.master_number()]
            replica = running.brokers[1 - running.master_number()]
            chosen = (("-b", master.advertised_address), ("-c", "DefaultCluster"))
            for number, which in enumerate(chosen, 7):
                change = (*which, "-k", "transactionCheckMax", "-v", str(number))
                shown = await run(running, "updateBrokerConfig", *change)
                assert (
                    "not changed, but may take over after a fail-over (-a true changes them): "
                    f"{name_of(replica)}\n"
                ) in shown
                assert master.settings.transaction_check_max == number
                assert replica.settings.transaction_check_max != number
                shown = await run(running, "updateBrokerConfig", *change, "-a", "true")
                assert "not changed" not in shown
                assert replica.settings.transaction_check_max == number


def name_of(broker: Broker) -> str:
    return f"{broker.settings.broker_name}/{broker.role.now.broker_id} ({broker.advertised_address})"
