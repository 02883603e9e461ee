"""`Admin`: what services do with topics and groups, blocking and with asyncio."""

from collections.abc import Iterator
from datetime import timedelta

import pytest

from pyromq import Admin, Message, NotFound, Producer, PullConsumer, SimpleConsumer, StateError, aio
from pyromq.errors import ConfigError
from pyromq.testing import RunningCluster, cluster

TIMEOUT_S = 60.0


@pytest.fixture(scope="module")
def running() -> Iterator[RunningCluster]:
    with cluster(auto_create_topics=False, brokers=2) as found:
        yield found


def test_a_topic_is_made_described_listed_and_deleted(running: RunningCluster) -> None:
    with Admin(running.namesrv) as admin:
        admin.create_topic("Made", queues=3, message_type="FIFO")
        admin.create_topic("Made", queues=3, message_type="FIFO")
        with Producer("tills", namesrv=running.namesrv) as producer:
            producer.send([Message("Made", b"1"), Message("Made", b"2")])
        found = admin.describe_topic("Made")
        assert (found.name, found.message_type, len(found.queues), found.messages) == ("Made", "FIFO", 6, 2)
        assert sum(each.changed_at is not None for each in found.queues) == 1
        assert admin.topics() == ["Made"]
        admin.delete_topic("Made")
        assert admin.topics() == []
        with pytest.raises(NotFound, match="there is no topic Made"):
            admin.describe_topic("Made")


def test_lag_is_told_and_offsets_are_reset(running: RunningCluster) -> None:
    def read() -> list[bytes]:
        with PullConsumer("books", namesrv=running.namesrv, start_from="first") as consumer:
            consumer.subscribe("Payments")
            found = [message.body for message in consumer.poll(timeout_s=TIMEOUT_S, min_messages=3)]
            consumer.commit()
        return sorted(found)

    with Admin(running.namesrv) as admin, Producer("tills", namesrv=running.namesrv) as producer:
        admin.create_topic("Payments", queues=1)
        before = running.now()
        for body in (b"1", b"2", b"3"):
            producer.send(Message("Payments", body))
        assert read() == [b"1", b"2", b"3"]
        assert admin.groups() == ["books"]
        assert admin.lag("books").total == 0
        assert set(admin.reset_offsets("books", "Payments", "first").values()) == {0}
        assert admin.lag("books", "Payments").total == 3
        assert read() == [b"1", b"2", b"3"]
        admin.reset_offsets("books", "Payments", before - timedelta(seconds=1))
        assert admin.lag("books", "Payments").total == 3
        admin.reset_offsets("books", "Payments", "last")
        assert admin.lag("books", "Payments").total == 0
        assert admin.describe_topic("Payments").groups == ("books",)
        with pytest.raises(ConfigError, match="to=frist"):
            admin.reset_offsets("books", "Payments", "frist")  # type: ignore[arg-type]


def test_a_group_that_has_never_read_has_the_whole_topic_before_it(running: RunningCluster) -> None:
    with Admin(running.namesrv) as admin, Producer("tills", namesrv=running.namesrv) as producer:
        admin.create_topic("Unread", queues=2)
        assert admin.lag("newcomers", "Unread").total == 0
        for _ in range(3):
            producer.send(Message("Unread", b"1"))
        assert admin.lag("newcomers", "Unread").total == 3
        with pytest.raises(NotFound):
            admin.lag("newcomers", "Nowhere")
        with pytest.raises(NotFound):
            admin.lag("newcomers")


def test_a_purge_skips_what_waits_for_one_group_also_if_it_pops(rocketmq: RunningCluster) -> None:
    with Admin(rocketmq.namesrv) as admin, Producer("tills", namesrv=rocketmq.namesrv) as producer:
        admin.create_topic("Tasks", queues=2)
        with SimpleConsumer("workers", rocketmq.namesrv, start_from="first") as consumer:
            consumer.subscribe("Tasks")
            producer.send(Message("Tasks", b"read"))
            (message,) = consumer.receive(1, wait_s=TIMEOUT_S)
            consumer.ack(message)
            for _ in range(5):
                producer.send(Message("Tasks", b"waits"))
            assert admin.purge("workers", "Tasks") == 5
            assert admin.lag("workers", "Tasks").total == 0
            producer.send(Message("Tasks", b"new"))
            assert [each.body for each in consumer.receive(16, wait_s=TIMEOUT_S)] == [b"new"]
        assert admin.lag("others", "Tasks").total == 7


async def test_the_same_for_asyncio_with_names_in_a_namespace(running: RunningCluster) -> None:
    async with aio.Admin(running.namesrv, namespace="shop") as admin:
        await admin.create_topic("Orders", queues=1)
        assert await admin.topics() == ["Orders"]
        async with aio.Admin(running.namesrv) as all_namespaces:
            assert "shop%Orders" in await all_namespaces.topics()
        await admin.delete_topic("Orders")
        with pytest.raises(NotFound):
            await admin.lag("nobody")


def test_it_is_used_inside_its_block(running: RunningCluster) -> None:
    with pytest.raises(StateError, match="not started"):
        Admin(running.namesrv).topics()
    with pytest.raises(ConfigError, match="addresses of name servers"):
        Admin(namesrv_url="http://127.0.0.1/addresses")
