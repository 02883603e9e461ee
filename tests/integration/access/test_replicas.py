"""Users and rights in groups of brokers: replicas have them, under a controller and after a fail-over."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.support.access import ALICE, ROOT, SECURE, WRONG, client, grant, is_refused, user_creation
from tests.support.broker_cluster import TOPIC, message
from tests.support.replicas import broker_group, until

from pyromq.admin import access, groups
from pyromq.admin.cluster import Cluster
from pyromq.admin.failures import NotKept
from pyromq.protocol.requests.access import DeleteUser, UserInfo
from pyromq.protocol.requests.topics import DeleteTopicFromBroker
from pyromq.remoting.addresses import format_address
from pyromq.security.users import UserRules
from pyromq.standalone import Standalone, StandaloneSettings
from pyromq.testing.clusters import on_held_ports

UNIQUE = {"UNIQ_KEY": "7F00000100002A9F000000000000AC01"}


@asynccontextmanager
async def controlled_cluster(directory: Path) -> AsyncIterator[Standalone]:
    """Two brokers, a controller and a name server; all ask for signatures, each has its own users."""
    settings = StandaloneSettings(
        store=directory,
        replicas=2,
        servers=dict(SECURE),
        store_settings={"log_segment_bytes": 1 << 20, "index_slots": 100, "index_units": 400},
    )
    with on_held_ports(settings) as settled:
        async with Standalone(settled) as running:
            yield running


async def test_users_and_rights_survive_a_fail_over_under_a_controller(tmp_path: Path) -> None:
    async with controlled_cluster(tmp_path) as cluster:
        number = cluster.master_number()
        master, replica = cluster.brokers[number], cluster.brokers[1 - number]
        async with client(master.address, ROOT) as root:
            await root.create_topic()
            await root.call(user_creation(ALICE))
            await root.call(grant(ALICE, f"Pub on Topic:{TOPIC}"))
        await until(lambda: replica.access.users == master.access.users, "the replica has the users")
        await cluster.wait_in_sync()
        await cluster.kill_master()
        await until(lambda: replica.role.now.is_master, "the replica is the master")
        async with (
            client(replica.address, ROOT) as root,
            client(replica.address, ALICE) as alice,
            client(replica.address, WRONG) as thief,
        ):
            await alice.send(properties=UNIQUE)
            assert await is_refused(alice, message(topic="Another"))
            assert await is_refused(thief, message(properties=UNIQUE))
            # What is changed while the old master is away reaches it when it comes back.
            await root.call(DeleteUser(username=ALICE.access_key))
        await cluster.start_broker(number)
        back = cluster.brokers[number]
        await until(lambda: ALICE.access_key not in back.access.users.users, "the old master has heard of it")


async def test_a_change_at_a_replica_succeeds_with_a_remark_that_our_tools_report(tmp_path: Path) -> None:
    async with controlled_cluster(tmp_path) as cluster:
        number = cluster.master_number()
        master, replica = cluster.brokers[number], cluster.brokers[1 - number]
        at = format_address(*replica.address)
        info = UserInfo(password=ALICE.secret_key, user_type="Normal")
        async with Cluster(cluster.namesrv, credentials=ROOT) as tools:
            with pytest.raises(NotKept, match="this broker is a replica"):
                await access.create_user(tools, [at], ALICE.access_key, info)
            with pytest.raises(NotKept, match="this broker is a replica"):
                await tools.change(at, DeleteTopicFromBroker(topic=TOPIC))
            with pytest.raises(NotKept, match="this broker is a replica"):
                await groups.delete(tools, [at], "Readers", with_offsets=True)
            await access.create_user(tools, [format_address(*master.address)], ALICE.access_key, info)
            await access.delete_user(tools, [format_address(*master.address)], ALICE.access_key)


async def test_a_replica_whose_master_has_no_users_left_has_none(tmp_path: Path) -> None:
    async with (
        broker_group(tmp_path, **SECURE) as group,
        group.master(**SECURE) as master,
        group.replica(**SECURE) as replica,
    ):
        await master.access.change_users(lambda rules: UserRules({}, {}, rules.cluster, rules.decides))
        await replica.access.copy(master.access.table())
        assert not replica.access.users.users


async def test_a_replica_that_has_no_users_yet_says_so(tmp_path: Path) -> None:
    async with (
        broker_group(tmp_path, **SECURE) as group,
        group.replica(**SECURE) as replica,
        client(replica.address, ALICE) as alice,
    ):
        remark = (await alice.refusal(message())).remark or ""
        assert "this replica has not copied the users of its master yet" in remark
        async with group.master(**SECURE):
            await until(lambda: replica.replication.table_sync.copies, "the tables are copied")
            assert "not copied" not in ((await alice.refusal(message())).remark or "")


async def test_a_replica_that_shares_the_file_of_its_master_writes_nothing_older_into_it(
    tmp_path: Path,
) -> None:
    shared = {**SECURE, "auth_config_path": tmp_path / "shared"}
    async with (
        broker_group(tmp_path, **SECURE) as group,
        group.master(**shared) as master,
        group.replica(**shared) as replica,
    ):
        old = master.access.table()
        async with client(master.address, ROOT) as root:
            await root.call(user_creation(ALICE))
        await replica.access.copy(old)  # it was on its way when the master changed its users
        await master.access.check_files()
        assert ALICE.access_key in master.access.users.users
        await until(lambda: replica.access.users == master.access.users, "the replica reads the same file")
