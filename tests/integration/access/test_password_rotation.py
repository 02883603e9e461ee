"""A password changes while servers and programs use it: both are accepted for a while, on every server."""

import asyncio
import json
import logging
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from tests.support.access import ROOT, SECURE, SERVER, client, is_refused
from tests.support.broker_cluster import TOPIC, message, running_broker
from tests.support.front import front
from tests.support.replicas import Group, broker_group, caught_up, until

from pyromq.admin.cluster import Cluster
from pyromq.cli.mqadmin.tree import mqadmin
from pyromq.errors import Refused
from pyromq.protocol.requests.inspection import GetBrokerRuntimeInfo
from pyromq.remoting.addresses import format_address, parse_address
from pyromq.security.signature import Credentials
from pyromq.standalone import Standalone, StandaloneSettings
from pyromq.testing.clusters import on_held_ports

RENEWED = Credentials(SERVER.access_key, "the new password of servers")


def with_file(password: Credentials) -> dict[str, Any]:
    inner = {"accessKey": password.access_key, "secretKey": password.secret_key}
    return {**SECURE, "inner_credentials": json.dumps(inner)}


async def run(tmp_path: Path, namesrv: str, *words: str, who: Credentials = ROOT) -> Result:
    keys = tmp_path / "keys"
    keys.write_text(f"AccessKey={who.access_key}\nSecretKey={who.secret_key}\n")
    options = ["-n", namesrv, "--timeout", "60", "--key-file", str(keys)]
    return await asyncio.to_thread(CliRunner().invoke, mqadmin, [*words, *options])


async def change(tmp_path: Path, group: Group, *words: str) -> None:
    done = await run(
        tmp_path, group.names, "updateUser", "-u", SERVER.access_key, "-c", "TestCluster", *words
    )
    assert done.exit_code == 0, done.output


async def test_the_servers_password_is_changed_without_a_gap(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with broker_group(tmp_path, **SECURE) as group:
        async with group.master(**SECURE) as master, client(master.address, ROOT) as root:
            await root.create_topic()
            await change(tmp_path, group, "-p", RENEWED.secret_key, "-o", "keep")
            assert "innerClientAuthenticationCredentials is the old one" in caplog.text
            for _ in range(2):  # once more after a failure: nothing is lost
                await change(tmp_path, group, "-p", RENEWED.secret_key, "-o", "keep")
            async with group.replica(**with_file(SERVER)) as replica:
                await root.send(b"a replica with the old file")
                await caught_up(replica, master)
            async with group.replica(**with_file(RENEWED)) as replica:
                await root.send(b"a replica with the new file")
                await caught_up(replica, master)
                await until(lambda: replica.access.users == master.access.users)
            for keys in (SERVER, RENEWED):
                async with client(master.address, keys) as server:
                    await server.send(topic=TOPIC)
        # Both passwords are in the file of users.
        async with (
            group.master(**with_file(RENEWED)) as master,
            group.replica(**with_file(SERVER)) as replica,
        ):
            await until(lambda: replica.replication.replica.is_connected, "the old password still opens")
            await change(tmp_path, group, "-o", "drop")
            async with (
                client(master.address, SERVER) as late,
                client(parse_address(group.names), SERVER) as other,
            ):
                assert await is_refused(late, message())
                assert await is_refused(other, GetBrokerRuntimeInfo())


async def test_a_file_with_another_password_than_the_table_is_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with running_broker(tmp_path, **SECURE):
        pass
    assert "innerClientAuthenticationCredentials" not in caplog.text
    async with running_broker(tmp_path, **with_file(RENEWED)):
        pass
    (record,) = [each for each in caplog.records if "innerClientAuthenticationCredentials" in each.message]
    assert record.levelno == logging.WARNING
    assert "the password of server in" in record.message
    assert "is not the one in the table of users" in record.message
    assert RENEWED.secret_key not in caplog.text


async def test_one_command_changes_users_on_brokers_name_servers_and_controllers(tmp_path: Path) -> None:
    settings = StandaloneSettings(
        store=tmp_path,
        replicas=2,
        servers=dict(SECURE),
        store_settings={"log_segment_bytes": 1 << 20, "index_slots": 100, "index_units": 400},
    )
    with on_held_ports(settings) as settled:
        async with Standalone(settled) as running:
            whole = ("-c", "DefaultCluster")
            done = await run(tmp_path, running.namesrv, "createUser", *whole, "-u", "alice", "-p", "a-word")
            assert done.exit_code == 0, done.output
            master = running.brokers[running.master_number()]
            addresses = [
                master.advertised_address,
                running.namesrv,
                master.settings.controller_addr,
            ]
            assert done.output.splitlines() == [f"create user to {each} success." for each in addresses]
            rights = ("-s", "User:alice", "-r", f"Topic:{TOPIC}", "-a", "Pub", "-d", "Allow")
            done = await run(tmp_path, running.namesrv, "createAcl", *whole, *rights)
            assert done.exit_code == 0, done.output
            done = await run(tmp_path, running.namesrv, "deleteUser", *whole, "-u", "alice")
            assert len(done.output.splitlines()) == 3


async def test_the_same_command_reaches_a_front(tmp_path: Path) -> None:
    """A front is in no route: it is named beside the cluster."""
    front_settings = {"auth_config_path": tmp_path / "front", **SECURE}
    async with front(settings=front_settings, **SECURE) as running:
        whole = ("-c", "DefaultCluster", "-b", running.target)
        for words in (
            ("createUser", *whole, "-u", "alice", "-p", "a-word"),
            ("updateUser", *whole, "-u", "alice", "-p", "another-word", "-o", "keep"),
        ):
            done = await run(tmp_path, running.cluster.namesrv, *words)
            assert done.exit_code == 0, done.output
            servers = [running.cluster.broker.advertised_address, running.target]
            assert re.findall(r"to (\S+) success", done.output) == servers
        assert running.proxy.access is not None
        alice = running.proxy.access.users.users["alice"]
        assert alice.old_password


async def test_a_refusal_names_the_server(tmp_path: Path) -> None:
    async with running_broker(tmp_path, **SECURE) as broker:
        address = format_address(*broker.address)
        async with Cluster("", credentials=Credentials("nobody", "x")) as cluster:
            with pytest.raises(Refused, match=rf"^{address}: code 16: Check signature failed") as caught:
                await cluster.ask(address, GetBrokerRuntimeInfo())
        assert caught.value.server == address
        done = await run(tmp_path, "x:1", "getUser", "-b", address, "-u", "x", who=Credentials("nobody", "x"))
        assert f"{address}: Check signature failed for accessKey=nobody" in done.output
        assert "--key-file" not in done.output
