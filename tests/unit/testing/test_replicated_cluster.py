"""A cluster with replicas, for tests of fail-over: the master dies, another takes over, nothing is lost."""

import pytest

from pyromq import Message, Producer, PullConsumer
from pyromq.errors import StateError
from pyromq.testing import aio_cluster, cluster

TOPIC = "Orders"


def read_all(namesrv: str, count: int) -> list[bytes]:
    found: list[bytes] = []
    with PullConsumer("billing", namesrv=namesrv, start_from="first") as consumer:
        consumer.subscribe(TOPIC)
        while len(found) < count:
            found += [message.body for message in consumer.poll(timeout_s=60)]
    return found


@pytest.mark.timeout(300)
def test_messages_survive_their_master_and_the_next_one() -> None:
    with cluster(replicas=3, default_topic_queues=1) as running:
        assert len(running.broker_addresses) == 3
        with Producer("orders", namesrv=running.namesrv, send_timeout_s=30, retries=1000) as producer:
            producer.send(Message(TOPIC, b"1"))
            first = running.kill_master()
            producer.send(Message(TOPIC, b"2"))
            assert running.master != first
            running.start_broker(first)
            running.wait_in_sync()
            second = running.kill_master()
            producer.send(Message(TOPIC, b"3"))
            assert running.master != second
        assert set(read_all(running.namesrv, 3)) == {b"1", b"2", b"3"}


@pytest.mark.timeout(300)
async def test_each_name_has_its_own_master() -> None:
    async with aio_cluster(brokers=2, replicas=2) as running:
        names = running.settings.broker_names()
        masters = [running.master_number(name) for name in names]
        assert [running.settings.broker_name_of(number) for number in masters] == names
        killed = await running.kill_master(names[1])
        assert killed == masters[1]
        assert running.master_number(names[0]) == masters[0]
        await running.wait_in_sync()
        assert running.master_number(names[1]) not in (killed, masters[0])


def test_a_cluster_without_replicas_has_one_master_for_ever() -> None:
    with cluster() as running:
        assert running.master == 0
        assert running.kill_master() == 0
        with pytest.raises(StateError):
            _ = running.master
