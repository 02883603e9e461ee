"""Under access control the HA port serves brokers of the group, and nobody else counts as a replica."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.support.access import ALICE, ROOT, SECURE, SERVER, client, user_creation
from tests.support.broker_cluster import running_broker
from tests.support.replicas import broker_group, caught_up, until

from pyromq.broker.broker import Broker
from pyromq.errors import ConfigError
from pyromq.protocol.codes import ResponseCode
from pyromq.protocol.replication import HEADER_BYTES, encode_report
from pyromq.security.replica_hello import (
    CHALLENGE_BYTES,
    CHALLENGE_MARK,
    REFUSAL_MARK,
    HelloMember,
    encode_hello,
)
from pyromq.security.signature import Credentials

SYNC: dict[str, Any] = {"broker_role": "SYNC_MASTER", "in_sync_replicas": 2, "replica_timeout_ms": 600_000}
FAR = 1 << 40


def own_member(broker: Broker) -> HelloMember:
    return HelloMember(broker.settings.broker_cluster_name, broker.settings.broker_name, 1)


async def test_a_stranger_gets_nothing_of_the_log_and_counts_for_nothing(tmp_path: Path) -> None:
    async with running_broker(tmp_path, **SECURE, **SYNC) as master, client(master.address, ROOT) as root:
        await root.create_topic()
        reader, writer = await asyncio.open_connection(*master.replication.master.address)
        writer.write(encode_report(0))
        challenge = await reader.readexactly(CHALLENGE_BYTES)
        assert challenge.startswith(CHALLENGE_MARK)
        for _ in range(5):
            answer = await root.send(b"for brokers only")
            assert answer.code == ResponseCode.SLAVE_NOT_AVAILABLE
            writer.write(encode_report(master.store.log.end))
        writer.write(encode_report(0) * 1000)
        refusal = await reader.read()
        assert refusal.startswith(REFUSAL_MARK)
        assert b"it does not say who it is" in refusal
        assert master.replication.master.links == []
        writer.close()


@pytest.mark.parametrize(
    "who",
    [
        Credentials(SERVER.access_key, "not the password"),
        Credentials("nobody", SERVER.secret_key),
        ALICE,
    ],
    ids=["wrong secret", "unknown", "not a broker"],
)
async def test_a_hello_with_other_keys_is_refused(
    tmp_path: Path, who: Credentials, caplog: pytest.LogCaptureFixture
) -> None:
    async with running_broker(tmp_path, **SECURE, **SYNC) as master, client(master.address, ROOT) as root:
        await root.call(user_creation(ALICE))
        reader, writer = await asyncio.open_connection(*master.replication.master.address)
        challenge = await reader.readexactly(CHALLENGE_BYTES)
        writer.write(encode_report(0) + encode_hello(challenge, own_member(master), who))
        refusal = await reader.read()
        reason = f"its hello has not the signature of a broker: {who.access_key!r}"
        assert refusal.startswith(REFUSAL_MARK)
        assert refusal.endswith(reason.encode())
        assert caplog.text.count(reason) == 1
        writer.close()


async def test_a_hello_of_another_group_is_refused(tmp_path: Path) -> None:
    async with running_broker(tmp_path, **SECURE) as master:
        reader, writer = await asyncio.open_connection(*master.replication.master.address)
        challenge = await reader.readexactly(CHALLENGE_BYTES)
        member = own_member(master)._replace(group="another")
        writer.write(encode_report(0) + encode_hello(challenge, member, SERVER))
        assert b"it is a broker of " in await reader.read()
        writer.close()


async def test_a_hello_cannot_be_used_again(tmp_path: Path) -> None:
    async with running_broker(tmp_path, **SECURE) as master:
        hello = b""
        for is_right in (True, False):
            reader, writer = await asyncio.open_connection(*master.replication.master.address)
            challenge = await reader.readexactly(CHALLENGE_BYTES)
            hello = hello or encode_hello(challenge, own_member(master), SERVER)
            writer.write(encode_report(0) + hello)
            if is_right:
                await until(lambda: len(master.replication.master.links) == 1)
            else:
                assert (await reader.read()).startswith(REFUSAL_MARK)
            writer.close()


async def test_replicas_say_hello_and_one_with_another_secret_says_why_it_copies_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with (
        broker_group(tmp_path, **SECURE) as group,
        group.master(**SECURE, **SYNC) as master,
        client(master.address, ROOT) as root,
    ):
        async with group.replica(**SECURE) as replica:
            await until(lambda: len(master.replication.master.links) == 1)
            await root.create_topic()
            assert (await root.send(b"paid")).code == ResponseCode.SUCCESS
            await caught_up(replica, master)
        wrong = {**SECURE, "inner_credentials": '{"accessKey":"server","secretKey":"another"}'}
        async with group.replica(2, **wrong) as other:
            link = other.replication.replica._make_link()
            host, port = master.replication.master.address
            await asyncio.get_running_loop().create_connection(lambda: link, host, port)
            with pytest.raises(Exception, match="the master refuses this broker: its hello has not the sig"):
                await link.ended


async def test_a_replica_without_keys_says_which_setting_is_missing(tmp_path: Path) -> None:
    async with (
        broker_group(tmp_path) as group,
        group.master(**SECURE) as master,
        group.replica() as replica,
    ):
        link = replica.replication.replica._make_link()
        host, port = master.replication.master.address
        await asyncio.get_running_loop().create_connection(lambda: link, host, port)
        with pytest.raises(ConfigError, match=r"innerClientAuthenticationCredentials.*the master asks who"):
            await link.ended


async def test_replicas_of_apache_are_served_if_the_settings_say_so(tmp_path: Path) -> None:
    allowed: dict[str, Any] = {"allow_unsigned_replicas": True, "ha_allowed_networks": "127.0.0.1"}
    async with (
        running_broker(tmp_path, **SECURE, **allowed) as master,
        client(master.address, ROOT) as root,
    ):
        await root.create_topic()
        await root.send(b"for all")
        reader, writer = await asyncio.open_connection(*master.replication.master.address)
        writer.write(encode_report(0))
        header = await reader.readexactly(HEADER_BYTES)
        assert b"for all" in await reader.readexactly(int.from_bytes(header[8:]))
        writer.close()


async def test_strangers_do_not_keep_replicas_out_by_waiting(tmp_path: Path) -> None:
    async with (
        broker_group(tmp_path, **SECURE) as group,
        group.master(**SECURE) as master,
    ):
        strangers = [await asyncio.open_connection(*master.replication.master.address) for _ in range(64)]
        async with group.replica(**SECURE):
            await until(lambda: len(master.replication.master.links) == 1)
        for _, writer in strangers:
            writer.close()
