"""An operator erases messages by key: their bytes leave the logs of all brokers, and the tier."""

import asyncio
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from tests.integration.broker.test_tier import QUEUES, body, offloaded, uploaded
from tests.integration.replication.test_tiered_replicas import tier
from tests.support.broker_cluster import BROKER_NAME, CLUSTER, TOPIC, BrokerClient, topic_creation
from tests.support.controlled_group import controlled_group
from tests.support.replicas import broker_group, caught_up, until

from pyromq.broker.broker import Broker
from pyromq.broker.services import erasing as service
from pyromq.broker.services import tiering
from pyromq.errors import Refused
from pyromq.protocol.message_id import decode_offset_message_id
from pyromq.protocol.requests.pulling import ViewMessage
from pyromq.protocol.requests.topics import EraseMessages, Erasure, GetErasures
from pyromq.tier.manifests import Manifests
from pyromq.tier.opening import open_objects
from pyromq.tier.rewriting import log_file
from pyromq.tier.uploading import OwnUploader

SECRET = b"somebody's address"
MESSAGES = 60
SECRETS = (2, 30, 58)
"""One that has left the disk, one in a closed file, and one in the file that is being written."""


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    objects = open_objects(str(tmp_path / "lake"), CLUSTER, BROKER_NAME)
    monkeypatch.setattr(tiering, "ChildUploader", lambda: OwnUploader(objects))
    monkeypatch.setattr(service, "_LOOK_S", 0.02)
    monkeypatch.setattr(tiering, "_LOOK_S", 0.02)
    monkeypatch.setattr(tiering, "_POLL_S", 0.05)


async def send(client: BrokerClient, begin: int, end: int) -> None:
    for number in range(begin, end):
        is_secret = number in SECRETS
        await client.send(
            SECRET + body(number) if is_secret else body(number),
            queue_id=number % QUEUES,
            properties={"KEYS": "who" if is_secret else "others", "UNIQ_KEY": f"A{number}"},
        )


async def erasures(broker: Broker) -> list[Erasure]:
    async with BrokerClient(broker.address) as client:
        return (await client.call(GetErasures(topic=TOPIC))).body.erasures


def is_finished(broker: Broker) -> bool:
    erasing = broker.store.erasing
    return bool(erasing.all()) and not erasing.unfinished()


async def erased(*brokers: Broker) -> None:
    for broker in brokers:
        await until(partial(is_finished, broker))
        assert [(each.key, each.is_done_here, each.is_done_in_tier) for each in await erasures(broker)] == [
            ("who", True, True)
        ]


def files(root: Path) -> list[bytes]:
    return [each.read_bytes() for each in root.glob("*/commitlog/*")]


def logs(root: Path) -> Iterator[bytes]:
    yield from files(root)
    objects = open_objects(str(root / "lake"), CLUSTER, BROKER_NAME)
    newest = Manifests(objects, CLUSTER, BROKER_NAME, "test").read_newest()
    assert newest is not None
    names = {each.name for each in newest.segments}
    assert {each.name for each in objects.list("segments/")} == names
    for entry in newest.segments:
        with log_file(objects, entry, root / "rebuilt") as log:
            yield log[:]


def secrets_in(root: Path) -> int:
    return sum(content.count(SECRET) for content in logs(root))


async def check(broker: Broker) -> None:
    """All other messages are read once and in order, from the tier and from the disk."""
    async with BrokerClient(broker.address) as client:
        for queue_id in range(QUEUES):
            found, offset = list[bytes](), 0
            async with asyncio.timeout(100):
                while offset < MESSAGES // QUEUES:
                    pulled = await client.pull(offset, queue_id=queue_id, hold_ms=15_000)
                    found += pulled.bodies
                    offset = pulled.answer.next_begin_offset
            wanted = [body(each) for each in range(queue_id, MESSAGES, QUEUES) if each not in SECRETS]
            assert found == wanted


async def test_erased_messages_leave_the_logs_of_master_and_replica_and_the_tier(tmp_path: Path) -> None:
    async with (
        broker_group(tmp_path) as group,
        group.master(**tier(tmp_path)) as master,
        group.replica(**tier(tmp_path)) as replica,
        BrokerClient(master.address) as client,
    ):
        await client.create_topic(queues=QUEUES)
        await send(client, 0, 20)
        await offloaded(master)
        assert master.store.log.start > 0
        await send(client, 20, 58)
        await uploaded(master)
        await send(client, 58, MESSAGES)
        await caught_up(replica, master)
        assert secrets_in(tmp_path) > len(SECRETS)
        answer = await client.call(EraseMessages(topic=TOPIC, keys="who"))
        assert answer.log_offset == master.store.log.end
        await erased(master, replica)
        assert secrets_in(tmp_path) == 0
        for broker in (master, replica):
            await check(broker)
        async with BrokerClient(replica.address) as other:
            with pytest.raises(Refused):
                await other.call(EraseMessages(topic=TOPIC, keys="who"))
    async with (
        broker_group(tmp_path) as group,
        group.master(**tier(tmp_path)) as master,
        group.replica(**tier(tmp_path)) as replica,
        BrokerClient(master.address) as client,
    ):
        await erased(master, replica)
        await check(master)
        await check(replica)
        await client.send(SECRET, queue_id=0, properties={"KEYS": "who"})
        await caught_up(replica, master)
        assert secrets_in(tmp_path) == 2  # what comes later stays


async def test_a_replica_that_was_away_when_its_last_message_was_erased_goes_on(tmp_path: Path) -> None:
    async with broker_group(tmp_path) as group, group.master() as master:
        async with BrokerClient(master.address) as client:
            await client.create_topic(queues=QUEUES)
            async with group.replica() as replica:
                sent = await client.send(SECRET, queue_id=0, properties={"KEYS": "who"})
                await caught_up(replica, master)
            await client.call(EraseMessages(topic=TOPIC, keys="who"))
            await erased(master)
            place = decode_offset_message_id(sent.msg_id).log_offset
            assert SECRET not in (await client.call(ViewMessage(offset=place))).body
            async with group.replica() as replica:
                await client.send(b"goes on", queue_id=0)
                await caught_up(replica, master)
                await erased(replica)
        assert not any(SECRET in each for each in files(tmp_path))


async def test_a_new_master_finishes_what_the_old_one_was_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with controlled_group(tmp_path) as group:
        old = await group.start("a", **tier(tmp_path))
        new = await group.start("b", **tier(tmp_path))
        await group.settled(2)
        async with BrokerClient(old.address) as client:
            await client.create_topic(queues=QUEUES)
            await send(client, 0, MESSAGES)
            await uploaded(old)
            await caught_up(new, old)
            advance = service.Erasing._advance

            async def do_nothing_as_old(self: service.Erasing) -> None:
                if self._store is not old.store:
                    await advance(self)

            monkeypatch.setattr(service.Erasing, "_advance", do_nothing_as_old)
            await client.call(EraseMessages(topic=TOPIC, keys="who"))
        await group.crash(old)
        await until(lambda: new.role.now.is_master and not new.role.barrier)
        monkeypatch.setattr(service.Erasing, "_advance", advance)
        await erased(new)
        old = await group.start("a", **tier(tmp_path))
        await group.settled(2)
        await erased(old)
        assert secrets_in(tmp_path) == 0
        await check(new)


async def test_topics_that_cannot_be_erased_from_are_refused(tmp_path: Path) -> None:
    async with (
        broker_group(tmp_path) as group,
        group.master() as master,
        BrokerClient(master.address) as client,
    ):
        compacted = topic_creation("C")
        compacted.attributes = "+cleanup.policy=COMPACTION"
        await client.call(compacted)
        await client.create_topic(queues=QUEUES)
        for topic, keys, why in (
            ("C", "who", "without a body"),
            ("SCHEDULE_TOPIC_XXXX", "who", "is a system topic"),
            ("Missing", "who", "does not exist"),
            (TOPIC, " ", "no key"),
        ):
            with pytest.raises(Refused, match=why):
                await client.call(EraseMessages(topic=topic, keys=keys))
