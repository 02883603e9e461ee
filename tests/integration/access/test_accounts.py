"""Access control 1.0 on a whole broker: `plain_acl.yml`, read again when it changes, and its requests."""

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner
from tests.support.access import client
from tests.support.broker_cluster import GROUP, TOPIC, message, pull, running_broker

from pyromq.broker.broker import Broker
from pyromq.cli.mqadmin.tree import mqadmin
from pyromq.errors import ConfigError
from pyromq.protocol.codes import ResponseCode
from pyromq.protocol.requests.access import (
    DeleteAccessConfig,
    GetAccessConfigVersion,
    PutAccessConfig,
    UpdateTrustedAddresses,
)
from pyromq.protocol.requests.settings import UpdateBrokerConfig
from pyromq.security.signature import Credentials

ADMIN = Credentials("the-admin", "secret of admin")
ALICE = Credentials("alice01", "secret of alice")
CONTENT: dict[str, Any] = {
    "accounts": [
        {"accessKey": "the-admin", "secretKey": "secret of admin", "admin": True},
        {
            "accessKey": "alice01",
            "secretKey": "secret of alice",
            "topicPerms": [f"{TOPIC}=PUB|SUB"],
            "groupPerms": [f"{GROUP}=SUB"],
        },
    ]
}
UNIQUE = {"UNIQ_KEY": "A1"}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "plain_acl.yml"
    path.write_text(yaml.safe_dump(CONTENT))
    return path


@pytest.fixture
async def broker(tmp_path: Path, file: Path) -> AsyncIterator[Broker]:
    async with running_broker(tmp_path / "store", acl_enable=True, acl_file=file) as broker:
        async with client(broker.address, ADMIN) as admin:
            await admin.create_topic()
        yield broker


def content_of(path: Path) -> Any:
    return yaml.safe_load(path.read_text())


def is_private(path: Path) -> bool:
    return path.stat().st_mode & 0o077 == 0


def rewrite(path: Path, content: str) -> None:
    path.write_text(content)
    os.utime(path, ns=(path.stat().st_mtime_ns, path.stat().st_mtime_ns + 1_000_000))


async def test_accounts_send_and_pull_what_they_may(broker: Broker) -> None:
    async with client(broker.address, ALICE) as alice:
        for _ in range(3):
            await alice.send(properties=UNIQUE)
        assert len((await alice.pull(0)).messages) == 3
        for request in (message(topic="Another"), pull(0, group="another"), UpdateBrokerConfig(body="a=b")):
            refused = await alice.refusal(request)
            # java: the code of 4.x, with the text of its exception
            assert refused.code == ResponseCode.SYSTEM_ERROR
            assert "AclException" in (refused.remark or "")


@pytest.mark.parametrize(
    "credentials", [None, Credentials("alice01", "wrong key"), Credentials("nobody1", "x")]
)
async def test_without_the_right_key_nothing_works(broker: Broker, credentials: Credentials | None) -> None:
    async with client(broker.address, credentials) as asking:
        refused = await asking.refusal(message())
        assert refused.code == ResponseCode.SYSTEM_ERROR
        assert "AclException: " in (refused.remark or "")


async def test_a_changed_file_applies_at_once_and_a_broken_one_changes_nothing(
    broker: Broker, file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with client(broker.address, ALICE) as alice:
        await alice.send(properties=UNIQUE)
        for broken in (
            "accounts: [",
            "accounts: 7",
            "- accounts",
            "accounts: [{accessKey: x, secretKey: y}]",
        ):
            rewrite(file, broken)
            await broker.access.check_files()
            await alice.send(properties=UNIQUE)
            assert "the old ones still hold" in caplog.text
            caplog.clear()
        rewrite(file, yaml.safe_dump({"accounts": CONTENT["accounts"][:1]}))
        await broker.access.check_files()
        assert (await alice.refusal(message(properties=UNIQUE))).code == ResponseCode.SYSTEM_ERROR
        beside = file.parent / "acl" / "team" / "alice.yaml"
        beside.parent.mkdir(parents=True)
        beside.write_text(yaml.safe_dump({"accounts": CONTENT["accounts"][1:]}))
        await broker.access.check_files()
        await alice.send(properties=UNIQUE)
    assert "secret of" not in caplog.text


async def test_administrators_change_the_file_by_requests(broker: Broker, file: Path) -> None:
    bob = Credentials("bob-the-builder", "secret of bob")
    put = PutAccessConfig(
        access_key=bob.access_key, secret_key=bob.secret_key, topic_perms=f"{TOPIC}=PUB,Other=DENY"
    )
    async with client(broker.address, ADMIN) as admin, client(broker.address, ALICE) as alice:
        for request in (put, DeleteAccessConfig(access_key="the-admin")):
            assert (await alice.refusal(request)).code == ResponseCode.SYSTEM_ERROR
        await admin.call(put)
        async with client(broker.address, bob) as builder:
            await builder.send(properties=UNIQUE)
        before = (await admin.call(GetAccessConfigVersion())).version
        await admin.call(UpdateTrustedAddresses(global_white_addrs="10.9.9.9,10.8.*"))
        assert (await admin.call(GetAccessConfigVersion())).version != before
        content = content_of(file)
        assert content["globalWhiteRemoteAddresses"] == ["10.9.9.9", "10.8.*"]
        assert is_private(file)
        for bad in (
            PutAccessConfig(access_key="short", secret_key="secret of short"),
            UpdateTrustedAddresses(global_white_addrs="nowhere"),
            UpdateTrustedAddresses(global_white_addrs="*", acl_file_full_path="/etc/passwd"),
            DeleteAccessConfig(access_key="unknown"),
            DeleteAccessConfig(access_key="the-admin"),
        ):
            await admin.refusal(bad)
        assert content_of(file) == content
        await admin.call(DeleteAccessConfig(access_key=bob.access_key))
        async with client(broker.address, bob) as builder:
            await builder.refusal(message())


async def test_trusted_addresses_need_no_key(tmp_path: Path) -> None:
    file = tmp_path / "plain_acl.yml"
    file.write_text("globalWhiteRemoteAddresses: [127.0.0.*]")
    async with (
        running_broker(tmp_path / "store", acl_enable=True, acl_file=file) as broker,
        client(broker.address) as trusted,
    ):
        await trusted.create_topic()
        for _ in range(3):
            await trusted.send(properties=UNIQUE)


async def test_a_broker_without_its_file_does_not_start(tmp_path: Path) -> None:
    for settings in ({}, {"content": "accounts: ["}):
        file = tmp_path / "plain_acl.yml"
        if settings:
            file.write_text(settings["content"])
        with pytest.raises(ConfigError, match="plain_acl"):
            async with running_broker(tmp_path / "store", acl_enable=True, acl_file=file):
                pass


async def test_accounts_become_users(tmp_path: Path, file: Path) -> None:
    settings: dict[str, Any] = {"deny_by_default": True, "acl_file": file, "migrate_accounts": True}
    async with running_broker(tmp_path / "store", **settings) as broker:
        async with client(broker.address, ADMIN) as admin:
            await admin.create_topic()
        async with client(broker.address, ALICE) as alice:
            await alice.send(properties=UNIQUE)
            await alice.pull(0)
            assert (await alice.refusal(message(topic="Another"))).code == ResponseCode.NO_PERMISSION


async def test_mqadmin_changes_accounts(broker: Broker, tmp_path: Path) -> None:
    keys = tmp_path / "admin.properties"
    keys.write_text(f"AccessKey={ADMIN.access_key}\nSecretKey={ADMIN.secret_key}\n")

    async def run(*words: str) -> str:
        options = ["-b", f"127.0.0.1:{broker.address[1]}", "-n", "127.0.0.1:1", "--key-file", str(keys)]
        done = await asyncio.to_thread(
            CliRunner().invoke, mqadmin, [*words, *options], input="secret of bob\n"
        )
        assert done.exit_code == 0, done.output
        return done.output

    await run("updateAclConfig", "-a", "bob-the-builder", "-s", "-", "-t", f"{TOPIC}=PUB", "-i", "DENY")
    async with client(broker.address, Credentials("bob-the-builder", "secret of bob")) as bob:
        await bob.send(properties=UNIQUE)
    assert "plain_acl.yml" in await run("clusterAclConfigVersion")
    await run("updateGlobalWhiteAddr", "-g", "10.9.9.9")
    await run("deleteAclConfig", "-a", "bob-the-builder")
