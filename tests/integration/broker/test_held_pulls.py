"""Ten thousand pulls wait: they cost little memory, and a message wakes only those of its own queue."""

import resource
from pathlib import Path

import pytest
from tests.support.broker_cluster import BrokerClient, pull, running_broker
from tests.support.loop import turn_until
from tests.support.wire_client import WireClient

from pyromq.broker.broker import Broker
from pyromq.protocol.catalogue import encode_request
from pyromq.protocol.codes import ResponseCode
from pyromq.protocol.frame import HeaderForm

CONNECTIONS = 200
QUEUES = 50
MAX_BYTES_EACH = 8000


def resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


async def hold(broker: Broker, form: HeaderForm) -> list[WireClient]:
    """Every connection waits once for every queue."""
    clients = [await WireClient.connect(broker.address) for _ in range(CONNECTIONS)]
    frames = [
        encode_request(pull(queue_id=queue_id, hold_ms=600_000), queue_id, form=form)
        for queue_id in range(QUEUES)
    ]
    for client in clients:
        client.send(*frames)
    await turn_until(lambda: broker.statistics().held_pulls == CONNECTIONS * QUEUES)
    return clients


@pytest.mark.parametrize("form", HeaderForm)
async def test_ten_thousand_waiting_pulls(tmp_path: Path, form: HeaderForm) -> None:
    async with running_broker(tmp_path) as broker, BrokerClient(broker.address, form) as producer:
        await producer.create_topic(queues=QUEUES)
        before_bytes = resident_bytes()
        clients = await hold(broker, form)
        # Both ends are in this process.
        assert resident_bytes() - before_bytes < CONNECTIONS * QUEUES * MAX_BYTES_EACH
        await producer.send(b"news", queue_id=7)
        answers = [await client.frame() for client in clients]
        assert {answer.opaque for answer in answers} == {7}
        assert {answer.code for answer in answers} == {ResponseCode.SUCCESS}
        assert broker.statistics().held_pulls == CONNECTIONS * (QUEUES - 1)

        for client in clients:
            await client.close()
        await turn_until(lambda: broker.statistics().traffic.in_flight == 0)
        assert broker.statistics().held_pulls == 0


async def test_a_message_that_nobody_waits_for_wakes_nobody(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker, BrokerClient(broker.address) as producer:
        await producer.create_topic(queues=QUEUES)
        await producer.create_topic("Other")
        clients = await hold(broker, HeaderForm.BINARY)
        for number in range(100):
            await producer.send(b"%d" % number, "Other")
        assert broker.statistics().held_pulls == CONNECTIONS * QUEUES
        for client in clients:
            await client.close()
