"""A secure cluster as a person meets it: `standalone --secure`, users by `mqadmin`, `pyromq acl check`."""

import asyncio
import logging
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc.aio
import pytest
from click.testing import CliRunner, Result
from tests.support.access import client, is_refused
from tests.support.broker_cluster import message, pull
from tests.support.front import user
from tests.support.front_user import Resource

from pyromq import Message, PyroError, ReceivedMessage, aio
from pyromq.apps.pyromq import COMMANDS
from pyromq.apps.secure_files import SecureFiles
from pyromq.cli.mqadmin.tree import mqadmin
from pyromq.errors import ConnectionLost, Refused
from pyromq.remoting.tls import TlsOptions
from pyromq.security.signature import Credentials, credentials_from_text
from pyromq.standalone import Standalone, StandaloneSettings


class Secure:
    def __init__(self, running: Standalone, files: SecureFiles) -> None:
        self.running = running
        self.files = files
        self.keys = credentials_from_text(files.key_file.read_text())
        self.tls = TlsOptions(trust_path=files.certificate, verify=True)

    async def run(self, *words: str, given: str = "", tool: str = "mqadmin") -> Result:
        options = ["--timeout", "60", "--key-file", str(self.files.key_file)]
        options += ["--tls-trust", str(self.files.certificate)]
        program = mqadmin if tool == "mqadmin" else COMMANDS
        env = {"NAMESRV_ADDR": self.running.namesrv}
        return await asyncio.to_thread(CliRunner().invoke, program, [*words, *options], input=given, env=env)


@pytest.fixture
async def secure(tmp_path: Path) -> AsyncIterator[Secure]:
    files = SecureFiles(tmp_path / "security")
    files.make("127.0.0.1")
    settings = StandaloneSettings(
        store=tmp_path,
        namesrv_port=0,
        broker_port=0,
        grpc_port=0,
        servers=files.settings(),
        store_settings={"log_segment_bytes": 1 << 20, "index_slots": 100, "index_units": 400},
    )
    async with Standalone(settings) as running:
        yield Secure(running, files)


async def test_only_users_over_tls_get_in(secure: Secure) -> None:
    address = secure.running.broker.address
    async with client(address, secure.keys) as plain:
        with pytest.raises(ConnectionLost):
            await plain.call(message())
    async with client(address, tls=secure.tls) as stranger:
        assert await is_refused(stranger, message())
    async with aio.Producer(
        "tills", secure.running.namesrv, tls=secure.tls, credentials=secure.keys, send_timeout_s=60
    ) as producer:
        await producer.send(Message("Orders", b"paid"))


async def test_grpc_clients_get_in_with_the_same_keys_over_tls(secure: Secure) -> None:
    certificate = secure.files.certificate.read_bytes()
    orders = Resource(name="Orders")
    async with aio.Producer(
        "tills", secure.running.namesrv, tls=secure.tls, credentials=secure.keys, send_timeout_s=60
    ) as producer:
        await producer.send(Message("Orders", b"paid"))
    async with user(secure.running.grpc_address, trusted=certificate) as admin:
        admin.sign(secure.keys.access_key, secure.keys.secret_key)
        assert await admin.code("QueryRoute", topic=orders) == "OK"
        await admin.publish("Orders")
        assert await admin.code("SendMessage", messages=[admin.message("Orders")]) == "OK"
    async with user(secure.running.grpc_address, trusted=certificate) as stranger:
        assert await stranger.code("QueryRoute", topic=orders) == "UNAUTHORIZED"
    async with user(secure.running.grpc_address) as plain:
        with pytest.raises(grpc.aio.AioRpcError):
            await plain.call("QueryRoute", topic=orders)


async def test_users_and_policies_by_mqadmin_and_which_rule_decides(
    secure: Secure, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    broker = secure.running.broker.advertised_address

    async def expect(*words: str, code: int = 0, given: str = "", tool: str = "mqadmin") -> str:
        done = await secure.run(*words, given=given, tool=tool)
        assert done.exit_code == code, done.output
        return done.output

    shown = await expect("createUser", "-b", broker, "-u", "alice", "-p", "-", given="hush-hush\n")
    assert f"create user to {broker} success." in shown
    await expect("updateUser", "-b", broker, "-u", "alice", "-s", "enable")
    quota = ("--attributes", "+quota.send.messages=500000,+quota.read.bytes=7,-quota.read.bytes")
    await expect("updateUser", "-b", broker, "-u", "alice", *quota)
    await expect("updateUser", "-b", broker, "-u", "alice", "--attributes", "quota", code=2)
    rights = ("-r", "Topic:Orders", "-a", "Pub,Get", "-d", "Allow", "-i", "127.0.0.0/8")
    await expect("createAcl", "-c", "DefaultCluster", "-s", "User:alice", *rights)
    await expect("updateAcl", "-b", broker, "-s", "User:alice", "-r", "Group:*", "-a", "Sub", "-d", "Deny")
    assert "Topic:Orders" in await expect("getAcl", "-b", broker, "-s", "User:alice")
    assert "Group:*" in await expect("listAcl", "-b", broker, "-s", "alice", "-r", "Group")
    users = await expect("listUser", "-b", broker, "-f", "ali")
    one = await expect("getUser", "-b", broker, "-u", "alice")
    assert "Normal" in users
    assert "Normal" in one
    assert "quota.send.messages=500000" in one
    assert "quota.read.bytes" not in one
    assert "hush" not in users + one

    check = ("acl", "check", "alice", "-b", broker)
    allowed = await expect(*check, "Pub", "Topic:Orders", tool="pyromq")
    assert allowed == ("allowed: User:alice, Custom policy: Allow Get,Pub on Topic:Orders from 127.0.0.0/8\n")
    refused = await expect(*check, "pub", "Topic:Orders", "--from", "10.0.0.1", code=3, tool="pyromq")
    assert refused.startswith("refused: no policy of user alice allows Pub on Topic:Orders from 10.0.0.1")
    assert "Deny Sub" in await expect(*check, "Sub", "Group:shop", code=3, tool="pyromq")

    alice = Credentials("alice", "hush-hush")
    async with client(secure.running.broker.address, alice, tls=secure.tls) as asking:
        with pytest.raises(Refused):
            await asking.call(message(topic="Another"))
    await expect("deleteAcl", "-b", broker, "-s", "User:alice", "-r", "Topic:Orders")
    await expect("copyUser", "-f", broker, "-t", broker, "-u", "alice")
    await expect("copyAcl", "-f", broker, "-t", broker)
    await expect("deleteUser", "-b", broker, "-u", "alice")
    assert "alice" not in await expect("listUser", "-b", broker)
    await expect("updateAclConfig", "-b", broker, "-a", "account", "-s", "a-long-secret", code=1)
    assert "hush" not in caplog.text
    assert secure.keys.secret_key not in caplog.text


def test_the_rule_of_an_account_file(tmp_path: Path) -> None:
    file = tmp_path / "plain_acl.yml"
    file.write_text(
        "accounts: [{accessKey: orders-service, secretKey: 12345678, topicPerms: ['orders=PUB']}]"
    )

    def check(*words: str) -> tuple[int, str]:
        arguments = ["acl", "check", "orders-service", *words, "--acl-file", str(file), "-n", "127.0.0.1:1"]
        done = CliRunner().invoke(COMMANDS, arguments)
        return done.exit_code, done.output

    assert check("Pub", "Topic:orders") == (
        0,
        "allowed: account orders-service, topicPerms: orders=PUB\n",
    )
    assert check("Sub", "Topic:orders")[0] == 3
    assert check("Fly", "Topic:orders")[0] == 1
    assert check("Pub", "orders")[0] == 1


def test_the_files_are_made_once_and_only_their_owner_reads_them(tmp_path: Path) -> None:
    files = SecureFiles(tmp_path / "security")
    files.make("127.0.0.1")
    before = {path.name: path.read_bytes() for path in files.directory.iterdir()}
    files.make("127.0.0.1")
    assert {path.name: path.read_bytes() for path in files.directory.iterdir()} == before
    for path in (files.directory, *files.directory.iterdir()):
        assert path.stat().st_mode & 0o077 == 0, path


async def test_a_user_with_few_rights_sends_and_consumes(secure: Secure) -> None:
    broker = secure.running.broker.advertised_address
    alice = Credentials("alice", "hush-hush")
    for words in (
        ("createUser", "-u", "alice", "-p", alice.secret_key),
        ("createAcl", "-s", "User:alice", "-r", "Topic:Orders", "-a", "Pub,Sub", "-d", "Allow"),
        ("createAcl", "-s", "User:alice", "-r", "Group:shop", "-a", "Sub", "-d", "Allow"),
        ("updateTopic", "-t", "Orders"),
    ):
        done = await secure.run(*words, "-b", broker)
        assert done.exit_code == 0, done.output
    await secure.running.name_server.access.check_files()
    arrived: asyncio.Queue[ReceivedMessage] = asyncio.Queue()
    options: dict[str, Any] = {"tls": secure.tls, "credentials": alice}
    namesrv = secure.running.namesrv
    consumer = aio.PushConsumer("shop", namesrv, start_from="first", **options)
    consumer.subscribe("Orders", "*", arrived.put)
    async with asyncio.timeout(60), consumer, aio.Producer("tills", namesrv, **options) as producer:
        await producer.send(Message("Orders", b"paid"))
        assert (await arrived.get()).body == b"paid"
        with pytest.raises(PyroError):
            await producer.send(Message("Secrets", b"x"))


async def test_a_user_reads_a_topic_without_a_group_with_keys_and_trust_from_the_environment(
    secure: Secure, tmp_path: Path
) -> None:
    broker = secure.running.broker.advertised_address
    for words in (
        ("createUser", "-u", "alice", "-p", "hush-hush"),
        ("createAcl", "-s", "User:alice", "-r", "Topic:Orders", "-a", "Pub,Sub", "-d", "Allow"),
        ("updateTopic", "-t", "Orders"),
    ):
        done = await secure.run(*words, "-b", broker)
        assert done.exit_code == 0, done.output
    await secure.running.name_server.access.check_files()
    keys = tmp_path / "alice.properties"
    keys.write_text("AccessKey=alice\nSecretKey=hush-hush\n")
    env = {
        "NAMESRV_ADDR": secure.running.namesrv,
        "PYROMQ_KEY_FILE": str(keys),
        "PYROMQ_TLS_TRUST": str(secure.files.certificate),
    }

    async def run(*words: str, given: str = "", code: int = 0) -> str:
        started = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "pyromq", *words),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, **env},
        )
        said, complained = await started.communicate(given.encode())
        assert started.returncode == code, complained.decode()
        return (complained if code else said).decode()

    await run("produce", "Orders", "--timeout", "60", given="paid\n")
    assert await run("consume", "Orders", "-q") == "paid\n"
    refused = await run("consume", "Orders", "--group", "shop", code=1)
    assert "the broker broker-a refuses this client: " in refused
    assert "User:alice has no permission to access Group:shop" in refused
    assert "broker-a" in await run("admin", "topicRoute", "-t", "Orders", "--timeout", "60")
    who = Credentials("alice", "hush-hush")
    async with client(secure.running.broker.address, who, tls=secure.tls) as alice:
        assert await is_refused(alice, pull(0, topic="Secrets", group="TOOLS_CONSUMER"))


async def test_without_keys_or_tls_a_command_says_which_option_is_missing(secure: Secure) -> None:
    options = {
        "sign requests with --key-file FILE": ("--tls-trust", str(secure.files.certificate)),
        "try --tls-trust FILE": ("--key-file", str(secure.files.key_file)),
    }
    for hint, given in options.items():
        for words in (("consume", "Orders"), ("admin", "topicList")):
            done = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "pyromq", *words, *given, "-n", secure.running.namesrv),
                stderr=subprocess.PIPE,
            )
            _, complained = await done.communicate()
            assert done.returncode == 1
            assert hint in complained.decode()
