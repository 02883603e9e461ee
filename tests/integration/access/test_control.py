"""Access control 2.0 on a whole broker: who may do what, users and policies, replicas, certificates."""

import contextlib
import json
import logging
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from tests.support.access import ALICE, ROOT, SECURE, SERVER, WRONG, client, grant, is_refused, user_creation
from tests.support.broker_cluster import GROUP, TOPIC, consumer, message, pull, running_broker, topic_creation
from tests.support.certificates import Authority
from tests.support.replicas import broker_group, caught_up, until
from tests.support.signing import signer
from tests.support.wire_client import WireClient

from pyromq.broker.broker import Broker
from pyromq.errors import ConfigError, Refused
from pyromq.protocol.catalogue import encode_request
from pyromq.protocol.codes import ResponseCode
from pyromq.protocol.frame import HeaderForm
from pyromq.protocol.message_id import encode_offset_message_id
from pyromq.protocol.record import Host
from pyromq.protocol.requests.access import (
    DeleteAcl,
    DeleteUser,
    GetAcl,
    GetUser,
    ListAcls,
    ListUsers,
    UpdateUser,
    UserInfo,
)
from pyromq.protocol.requests.inspection import ConsumeMessageDirectly, GetBrokerRuntimeInfo
from pyromq.protocol.requests.pulling import QueryMessage, ViewMessage
from pyromq.protocol.requests.pushes import CheckTransactionState
from pyromq.protocol.requests.sending import SendMessageBack
from pyromq.protocol.requests.settings import GetBrokerConfig, UpdateBrokerConfig
from pyromq.protocol.requests.topics import DeleteTopicFromBroker
from pyromq.protocol.requests.transactions import EndTransaction
from pyromq.remoting.tls import TlsOptions
from pyromq.security.signature import Credentials

FORMS = [pytest.param(form, id=form.name.lower()) for form in HeaderForm]
UNIQUE = {"UNIQ_KEY": "A1"}


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    """With a topic, and with Alice, who has no rights yet."""
    async with running_broker(tmp_path, **SECURE) as broker:
        async with client(broker.address, ROOT) as root:
            await root.create_topic()
            await root.call(user_creation(ALICE))
        yield broker


@pytest.mark.parametrize("form", FORMS)
async def test_only_known_users_with_rights_send_and_pull(broker: Broker, form: HeaderForm) -> None:
    async with (
        client(broker.address, ROOT, form) as root,
        client(broker.address, ALICE, form) as alice,
        client(broker.address, WRONG, form) as thief,
        client(broker.address, Credentials("nobody", "x"), form) as nobody,
        client(broker.address, None, form) as stranger,
    ):
        for asking in (alice, thief, nobody, stranger):
            assert await is_refused(asking, message(properties=UNIQUE))
            assert await is_refused(asking, pull(0))
        await root.call(grant(ALICE, f"Pub on Topic:{TOPIC}"))
        for _ in range(3):
            await alice.send(properties=UNIQUE)
        assert await is_refused(alice, pull(0))
        await root.call(grant(ALICE, f"Pub,Sub on Topic:{TOPIC}", f"Sub on Group:{GROUP}"))
        for _ in range(3):
            assert len((await alice.pull(0)).messages) == 3
        assert await is_refused(alice, pull(0, group="another"))
        assert await is_refused(alice, message(topic="Another", properties=UNIQUE))
        for asking in (thief, nobody, stranger):
            assert await is_refused(asking, message(properties=UNIQUE))
    assert broker.store.queues.max_offset(TOPIC, 0) == 3


async def test_unknown_users_and_wrong_passwords_get_the_same_answer(broker: Broker) -> None:
    remarks = []
    for credentials in (WRONG, Credentials("nobody", "x")):
        async with client(broker.address, credentials) as asking:
            remarks.append((await asking.refusal(message())).remark or "")
    assert remarks[0].replace("alice", "nobody") == remarks[1]


@pytest.mark.parametrize("form", FORMS)
async def test_a_right_that_is_taken_away_is_gone_at_once_also_on_the_fast_path(
    broker: Broker, form: HeaderForm
) -> None:
    async with client(broker.address, ROOT) as root, client(broker.address, ALICE, form) as alice:
        await root.call(grant(ALICE, f"Pub on Topic:{TOPIC}"))
        for _ in range(3):
            await alice.send(properties=UNIQUE)
        await root.call(grant(ALICE, f"not Pub on Topic:{TOPIC}"))
        assert await is_refused(alice, message(properties=UNIQUE))
        await root.call(DeleteAcl(subject="User:alice"))
        assert await is_refused(alice, message(properties=UNIQUE))
        await root.call(grant(ALICE, "All on *"))
        await alice.send(properties=UNIQUE)
        await root.call(UpdateUser(username="alice", body=UserInfo(user_status="disable")))
        assert await is_refused(alice, message(properties=UNIQUE))
        await root.call(DeleteUser(username="alice"))
        assert await is_refused(alice, message(properties=UNIQUE))


async def test_a_request_that_was_changed_on_the_way_is_refused(broker: Broker) -> None:
    sign = signer(ROOT)
    async with await WireClient.connect(broker.address) as wire:
        for change in ("body", "ext", "key"):
            frame = encode_request(message(properties=UNIQUE), 7)
            sign(frame)
            if change == "body":
                frame.body += b"!"
            elif change == "ext":
                frame.ext["e"] = "1"
            else:
                frame.ext["AccessKey"] = "server"
            assert (await wire.call(frame)).code == ResponseCode.NO_PERMISSION, change


@pytest.mark.parametrize("form", FORMS)
async def test_another_users_name_on_a_known_connection_is_checked(broker: Broker, form: HeaderForm) -> None:
    sign = signer(ROOT)
    async with await WireClient.connect(broker.address) as wire:
        for _ in range(3):
            frame = encode_request(message(properties=UNIQUE), 7, form=form)
            sign(frame)
            assert (await wire.call(frame)).code == ResponseCode.SUCCESS
        frame = encode_request(message(properties=UNIQUE), 8, form=form)
        assert (await wire.call(frame)).code == ResponseCode.NO_PERMISSION
        frame.ext |= {"AccessKey": "alice", "Signature": "x"}
        assert (await wire.call(frame)).code == ResponseCode.NO_PERMISSION
    assert broker.store.queues.max_offset(TOPIC, 0) == 3


async def test_requests_with_everything_in_the_body_need_rights(broker: Broker) -> None:
    async with client(broker.address, ROOT) as root, client(broker.address, ALICE) as alice:
        await root.call(grant(ALICE, "Pub,Sub on Topic:*", "Sub on Group:*"))
        change = UpdateBrokerConfig(body="autoCreateTopicEnable=false")
        assert await is_refused(alice, change)
        assert await is_refused(alice, topic_creation("New", 4))
        assert await is_refused(alice, DeleteTopicFromBroker(topic=TOPIC))
        await root.call(change)


async def test_only_super_users_change_users_whatever_their_policies_say(broker: Broker) -> None:
    bob = Credentials("bob", "the password of bob")
    async with client(broker.address, ROOT) as root, client(broker.address, ALICE) as alice:
        await root.call(grant(ALICE, "All on *"))
        await alice.call(UpdateBrokerConfig(body="autoCreateTopicEnable=false"))
        assert await is_refused(alice, user_creation(bob, "Super"))
        assert await is_refused(alice, UpdateUser(username="alice", body=UserInfo(user_type="Super")))
        assert await is_refused(alice, grant(ALICE, "All on *"))
        assert await is_refused(alice, DeleteUser(username="root"))
        seen = (await alice.call(GetUser(username="root"))).body
        assert seen is not None
        assert (seen.user_type, seen.password) == ("Super", None)
        listed = (await alice.call(ListUsers())).body
        assert listed is not None
        assert [user.password for user in listed] == [None, None, None]
        listed = (await root.call(ListUsers(filter="alice"))).body or []
        assert [user.password for user in listed] == [ALICE.secret_key], "tools copy users from a list"


async def test_users_and_policies_can_be_read_and_changed(broker: Broker) -> None:
    async with client(broker.address, ROOT) as root:
        await root.call(grant(ALICE, "Pub on Topic:a", "Sub on Topic:b*"))
        await root.call(grant(ALICE, "All on Topic:a"))
        acl = (await root.call(GetAcl(subject="User:alice"))).body
        assert acl is not None
        assert acl.policies is not None
        entries = acl.policies[0].entries or []
        assert [(entry.resource, entry.actions) for entry in entries] == [
            ("Topic:b*", ["Sub"]),
            ("Topic:a", ["All"]),
        ]
        await root.call(DeleteAcl(subject="User:alice", resource="Topic:b*"))
        listed = (await root.call(ListAcls(subject_filter="ali", resource_filter="Topic"))).body
        assert listed is not None
        assert [len(each.policies or []) for each in listed] == [1]
        assert (await root.call(ListAcls(subject_filter="nobody"))).body == []
        names = [user.username for user in (await root.call(ListUsers(filter="a"))).body or []]
        assert names == ["alice"]
        for bad in (
            user_creation(ALICE),
            grant(Credentials("nobody", "x"), "All on *"),
            grant(ALICE, "Fly on *"),
            UpdateUser(username="nobody", body=UserInfo()),
            DeleteAcl(subject="User:server"),
            DeleteAcl(subject="alice"),
            GetUser(username=" "),
        ):
            assert (await root.refusal(bad)).code in (
                ResponseCode.NO_PERMISSION,
                ResponseCode.INVALID_PARAMETER,
            )
        await root.call(DeleteUser(username="server"))
        assert "last super user" in str(await root.refusal(DeleteUser(username="root")))


async def test_users_survive_a_restart_and_their_passwords_are_not_readable(tmp_path: Path) -> None:
    async with running_broker(tmp_path, **SECURE) as broker, client(broker.address, ROOT) as root:
        await root.call(user_creation(ALICE))
        await root.call(grant(ALICE, "Get on Cluster:*"))
    for file in (tmp_path / "config").iterdir():
        for user in (ROOT, SERVER, ALICE):
            assert user.secret_key.encode() not in file.read_bytes(), file
        if file.name.startswith("access"):
            assert file.stat().st_mode & 0o077 == 0, file
    first_user = {"first_user": json.dumps({"username": "root", "password": "another"})}
    async with running_broker(tmp_path, **{**SECURE, **first_user}) as broker:
        async with client(broker.address, ALICE) as alice:
            shown = (await alice.call(GetBrokerConfig())).body
            assert "password" not in shown
        async with client(broker.address, ROOT) as root:
            await root.call(GetBrokerConfig())


async def test_a_damaged_or_foreign_table_of_users_is_no_reason_to_let_everyone_in(tmp_path: Path) -> None:
    async with running_broker(tmp_path, **SECURE):
        pass
    key = tmp_path / "config" / "access.key"
    (tmp_path / "config" / "access.json.bak").unlink(missing_ok=True)
    content = key.read_bytes()
    for damage in (bytes(32), b"", None):
        if damage is None:
            key.unlink()
        else:
            key.write_bytes(damage)
        with pytest.raises(ConfigError, match=r"access\."):
            async with running_broker(tmp_path, **SECURE):
                pass
        key.write_bytes(content)


async def test_without_access_control_nobody_can_prepare_users(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker, client(broker.address) as stranger:
        for request in (user_creation(ALICE, "Super"), ListUsers()):
            assert (await stranger.refusal(request)).code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED


async def test_a_broker_that_denies_by_default_says_that_it_authenticates(broker: Broker) -> None:
    async with client(broker.address, ROOT) as root:
        told = (await root.call(GetBrokerConfig())).body.splitlines()
    assert {"authenticationEnabled=true", "authorizationEnabled=true"} <= set(told)


async def test_the_audit_log_says_what_was_changed_and_how_it_ended(
    broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="pyromq.audit")
    async with client(broker.address, ROOT) as root, client(broker.address, ALICE) as alice:
        await root.call(UpdateBrokerConfig(body="longPollingEnable=false\n"))
        with pytest.raises(Refused):
            await root.call(UpdateBrokerConfig(body="listenPort=1\n"))
        await alice.refusal(UpdateBrokerConfig(body="longPollingEnable=true\n"))
        await root.call(topic_creation("Made"))
    lines = [each.message for each in caplog.records if each.name == "pyromq.audit"]
    done, failed, refused, made = [line for line in lines if "CreateUser" not in line][-4:]
    assert "request=UpdateBrokerConfig outcome=SUCCESS changed=longPollingEnable: true -> false" in done
    assert "user=root" in done
    assert "request=UpdateBrokerConfig outcome=NO_PERMISSION" in failed
    assert "request=UpdateBrokerConfig: 'User:alice has no permission" in refused
    assert "outcome=SUCCESS" in made


async def test_codes_on_the_white_lists_need_nothing(tmp_path: Path) -> None:
    settings = {
        **SECURE,
        "deny_by_default": False,
        "authentication": True,
        "authorization": True,
        "authentication_whitelist": "28",
        "authorization_whitelist": "26",
    }
    async with running_broker(tmp_path, **settings) as broker:
        async with client(broker.address, ROOT) as root:
            await root.call(user_creation(ALICE))
        async with client(broker.address) as stranger, client(broker.address, ALICE) as alice:
            await stranger.call(GetBrokerRuntimeInfo())
            assert await is_refused(stranger, GetBrokerConfig())
            await alice.call(GetBrokerConfig())


async def test_a_certificate_proves_who_somebody_is(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    server, of_alice, of_bob = (authority.issue(name) for name in ("server", "orders-service", "bob"))
    settings = {
        **SECURE,
        "tls_cert_path": server.certificate,
        "tls_key_path": server.key,
        "tls_trust_cert_path": authority.trust,
        "tls_client_auth": "optional",
        "certificate_users": "orders-service=alice;*",
    }

    def tls(files: object) -> TlsOptions:
        certificate, key = getattr(files, "certificate", None), getattr(files, "key", None)
        return TlsOptions(certificate_path=certificate, key_path=key, trust_path=authority.trust, verify=True)

    async with running_broker(tmp_path / "store", **settings) as broker:
        async with client(broker.address, ROOT, tls=tls(None)) as root:
            await root.create_topic()
            await root.call(user_creation(ALICE))
            await root.call(grant(ALICE, f"Pub on Topic:{TOPIC}"))
        async with client(broker.address, tls=tls(of_alice)) as alice:
            for _ in range(3):
                await alice.send(properties=UNIQUE)
            assert await is_refused(alice, pull(0))
        for stranger in (of_bob, None):
            async with client(broker.address, tls=tls(stranger)) as unknown:
                assert await is_refused(unknown, message(properties=UNIQUE))


async def test_administration_and_refusals_are_in_the_audit_log(
    broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with client(broker.address, ROOT) as root, client(broker.address, ALICE) as alice:
        await root.create_topic("Audited")
        await root.call(user_creation(Credentials("carol", "the password of carol"), "Super"))
        for _ in range(100):
            await is_refused(alice, DeleteTopicFromBroker(topic="Audited"))
    lines = [record.getMessage() for record in caplog.records if record.name == "pyromq.audit"]
    assert any("user=root" in line and "Create on Topic:Audited" in line for line in lines)
    (created,) = [line for line in lines if "request=CreateUser" in line and "carol" in line]
    assert "user=root" in created
    assert "changed=User:carol: - -> Super; enable" in created
    refused = [line for line in lines if line.startswith("refused")]
    assert "alice" in refused[0]
    assert len(refused) <= 30, "an attack does not fill the log"
    assert "the password of" not in caplog.text


async def test_settings_of_access_control_contradict_each_other_loudly(tmp_path: Path) -> None:
    for settings in (
        {"authorization": True},
        {**SECURE, "acl_enable": True},
        {**SECURE, "authentication_whitelist": "10"},
        {**SECURE, "authentication_whitelist": "ten", "deny_by_default": False, "authentication": True},
        {**SECURE, "first_user": "root:password"},
        {**SECURE, "inner_credentials": "{}"},
        {**SECURE, "certificate_users": "name"},
        {"deny_by_default": True},
    ):
        with pytest.raises(ConfigError) as refused:
            async with running_broker(tmp_path, **settings):
                pass
        assert "password" not in str(refused.value).replace('"password":"..."', "").replace("a password", "")


async def test_access_control_cannot_be_changed_over_the_network(broker: Broker) -> None:
    async with client(broker.address, ROOT) as root:
        for change in ("authenticationEnabled=false", "aclEnable=false", "authenticationWhitelist=10"):
            with pytest.raises(Refused) as refused:
                await root.call(UpdateBrokerConfig(body=change))
            assert refused.value.code == ResponseCode.NO_PERMISSION


async def test_a_message_of_another_topic_is_not_reached_by_its_offset(broker: Broker) -> None:
    async with client(broker.address, ROOT) as root, client(broker.address, ALICE) as alice:
        await root.create_topic("Secrets")
        await root.send(b"for root only", topic="Secrets", properties=UNIQUE)
        offset = 0
        await root.call(grant(ALICE, f"All on Topic:{TOPIC}", "All on Group:*"))
        for named in (TOPIC, None):
            assert await is_refused(alice, ViewMessage(topic=named, offset=offset))
        await alice.heartbeat(consumer())
        back = SendMessageBack(group=GROUP, offset=offset, delay_level=1, origin_topic=TOPIC)
        assert await is_refused(alice, back)
        handed = ConsumeMessageDirectly(
            consumer_group=GROUP,
            client_id="c1",
            msg_id=encode_offset_message_id(Host(bytes(4), 0), offset),
            topic=TOPIC,
        )
        assert await is_refused(alice, handed)
        await root.call(ViewMessage(offset=offset))


async def test_a_message_of_another_topic_is_not_reached_by_a_key_with_the_same_hash(broker: Broker) -> None:
    async with client(broker.address, ROOT) as root, client(broker.address, ALICE) as alice:
        for topic in ("Aa", "BB"):  # in Java's hash these texts are the same
            await root.create_topic(topic)
        await root.send(b"for root only", topic="BB", properties={**UNIQUE, "KEYS": "k"})
        await root.call(grant(ALICE, "All on Topic:Aa"))
        found = QueryMessage(topic="BB", key="k", max_num=32, begin_timestamp=0, end_timestamp=1 << 62)
        while True:  # the index is written a moment later
            with contextlib.suppress(Refused):
                await root.call(found)
                break
        refusal = await alice.refusal(replace(found, topic="Aa"))
        assert refusal.code == ResponseCode.QUERY_NOT_FOUND


async def test_transactions_of_another_topic_cannot_be_ended(broker: Broker) -> None:
    half = {**UNIQUE, "TRAN_MSG": "true", "PGROUP": "tills"}
    async with client(broker.address, ROOT) as root, client(broker.address, ALICE) as alice:
        sent = await root.send(properties=half, sys_flag=4)
        await root.call(grant(ALICE, "Pub on Topic:Another"))
        end = EndTransaction(
            producer_group="tills",
            tran_state_table_offset=sent.queue_offset,
            commit_log_offset=0,
            commit_or_rollback=8,
            msg_id="A1",
        )
        assert await is_refused(alice, end)
        await root.call(end)
    assert broker.store.queues.max_offset(TOPIC, 0) == 1


async def test_half_messages_are_shown_only_to_producers_who_may_send_them(tmp_path: Path) -> None:
    half = {**UNIQUE, "TRAN_MSG": "true", "PGROUP": "tills"}
    at_once: dict[str, Any] = {
        "transaction_timeout_ms": 0,
        "transaction_check_interval_ms": 20,
        "transaction_op_interval_ms": 20,
        "transaction_check_max": 10**6,
    }
    async with (
        running_broker(tmp_path, **SECURE, **at_once) as broker,
        client(broker.address, ROOT, client_id="root") as root,
        client(broker.address, ALICE, client_id="alice") as alice,
    ):
        await root.create_topic()
        await root.call(user_creation(ALICE))
        await root.call(grant(ALICE, "Pub on Topic:Another"))
        await alice.heartbeat(producers=("tills",))
        await root.heartbeat(producers=("tills",))
        await root.send(b"for root only", properties=half, sys_flag=4)
        for _ in range(4):
            assert isinstance(await root.pushed.get(), CheckTransactionState)
        assert alice.pushed.empty()
        await root.call(grant(ALICE, f"Pub on Topic:{TOPIC}"))
        assert isinstance(await alice.pushed.get(), CheckTransactionState)


async def test_replicas_copy_users_and_policies_and_sign_to_their_master(tmp_path: Path) -> None:
    async with (
        broker_group(tmp_path, **SECURE) as group,
        group.master(**SECURE) as master,
        group.replica(**SECURE) as replica,
    ):
        async with client(master.address, ROOT) as root:
            await until(lambda: replica.replication.table_sync.copies)
            await root.create_topic()
            await root.call(user_creation(ALICE))
            assert "alice" in replica.access.users.users
            await root.call(grant(ALICE, f"Pub,Sub on Topic:{TOPIC}", f"Sub on Group:{GROUP}"))
            assert replica.access.users.policies.get("alice")
            await root.send(properties=UNIQUE)
        await caught_up(replica, master)
        async with client(replica.address, ALICE) as alice, client(replica.address, WRONG) as thief:
            assert len((await alice.pull(0)).messages) == 1
            assert await is_refused(thief, pull(0))


async def test_servers_that_do_not_sign_are_refused_by_those_that_ask_for_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with broker_group(tmp_path, **SECURE) as group, group.master():
        assert "Check signature" in caplog.text or "No accessKey" in caplog.text


async def test_every_signature_is_checked_where_others_could_write_to_the_connection(tmp_path: Path) -> None:
    sign = signer(ROOT)
    settings = {**SECURE, "proxy_protocol_trusted_addresses": "127.0.0.1"}
    async with running_broker(tmp_path, **settings) as broker:
        async with client(broker.address, ROOT) as root:
            await root.create_topic()
        async with await WireClient.connect(broker.address) as wire:
            wire.write(b"PROXY TCP4 10.1.2.3 127.0.0.1 4000 10911\r\n")
            now_ms = int(time.time() * 1000)
            for _ in range(3):
                frame = encode_request(message(properties=UNIQUE, born_timestamp=now_ms), 7)
                sign(frame)
                assert (await wire.call(frame)).code == ResponseCode.SUCCESS
            old = encode_request(message(properties=UNIQUE, born_timestamp=now_ms - 1_000_000), 7)
            sign(old)
            assert (await wire.call(old)).code == ResponseCode.NO_PERMISSION, "overheard long ago"
            frame.body += b"!"
            assert (await wire.call(frame)).code == ResponseCode.NO_PERMISSION
        assert broker.store.queues.max_offset(TOPIC, 0) == 3
