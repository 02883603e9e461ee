"""Whatever a client sends, it gets an answer or is hung up on, and the broker goes on serving everyone else.

An ERROR log fails a test, so a handler that meets something it did not expect is found here.
"""

import asyncio
import json
import resource
import struct
import tracemalloc
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.broker_cluster import TOPIC, BrokerClient, consumer, message, pull, running_broker
from tests.support.chance import examples
from tests.support.hostile_frames import hostile_frames, random_frame
from tests.support.loop import FASTEST_LOOP, turn_until
from tests.support.wire_client import WireClient

from pyromq.broker.broker import Broker
from pyromq.broker.unserved import UNSERVED
from pyromq.protocol.catalogue import BROKER, CATALOGUE, Declaration, Request, encode_request
from pyromq.protocol.codes import ResponseCode
from pyromq.protocol.frame import Frame, HeaderForm
from pyromq.protocol.requests.groups import CreateOrUpdateGroup, SubscriptionGroupConfig
from pyromq.protocol.requests.inspection import GetBrokerConsumeStats, GetBrokerStatistics, GetConsumeStats
from pyromq.protocol.requests.membership import HeartbeatData, SendHeartbeat
from pyromq.protocol.requests.offsets import UpdateConsumerOffset
from pyromq.protocol.requests.settings import UpdateBrokerConfig

MIB = 1024 * 1024
HELD, CONFIG_UPDATE, TOPIC_DELETION = (11, 361, 200050, 200054), 25, 215
ADDRESSED = [declaration for declaration in CATALOGUE.values() if declaration.to & BROKER]


class Attacker:
    """Sends frames, and answers what the broker asks back with nonsense."""

    def __init__(self, broker: Broker, random: Random) -> None:
        self._broker = broker
        self._random = random
        self.client: WireClient

    async def __aenter__(self) -> "Attacker":
        await self._connect()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.client.close()

    async def _connect(self) -> None:
        self.client = await WireClient.connect(self._broker.address)
        beat = HeartbeatData(client_id="shop", consumer_data_set=[consumer()])
        await self.client.call(encode_request(SendHeartbeat(body=beat), 0))

    async def attack(self, frame: Frame) -> Frame | None:
        """The answer; None for a pull or pop that is held."""
        self.client.send(frame)
        if frame.code in HELD:
            self.client.send(Frame(-1))  # answered at once, so that a held request need not be waited for
        while True:
            answer = await self.client.frame()
            if answer.is_response and answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                return None
            if answer.is_response:
                if frame.code in HELD:
                    await self.client.frame()
                return answer
            if not answer.is_oneway:
                self._answer(answer)

    def _answer(self, question: Frame) -> None:
        reply = question.answer(self._random.choice((0, 0, 1)), "nonsense")
        reply.body = self._random.choice((b"", b"{}", b"[]", b'{"x":1}', b"\xff"))
        self.client.send(reply)


@asynccontextmanager
async def attacked_broker(root: Path) -> AsyncIterator[Broker]:
    """Someone else is served before and after."""
    async with running_broker(root) as broker, BrokerClient(broker.address) as bystander:
        await bystander.create_topic(queues=2)
        for queue_id in (0, 1):
            await bystander.send(b"first", queue_id=queue_id, properties={"TAGS": "a", "a": "9"})
        await bystander.create_topic("Bystander")
        await bystander.send(b"before", "Bystander")
        yield broker
        sent = await bystander.send(b"after", "Bystander")
        assert (await bystander.pull(0, "Bystander", group="bystander")).bodies == [b"before", b"after"]
        assert sent.queue_offset == 1


def memory_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


@pytest.mark.parametrize("form", HeaderForm)
async def test_every_bad_field_and_every_bad_body_is_answered(tmp_path: Path, form: HeaderForm) -> None:
    async with attacked_broker(tmp_path) as broker, Attacker(broker, Random(0)) as attacker:
        before = memory_bytes()
        for declaration in ADDRESSED:
            frames = list(hostile_frames(declaration, form))
            for start in range(0, len(frames), 64):
                part = [
                    msgspec.structs.replace(frame, opaque=opaque)
                    for opaque, frame in enumerate(frames[start : start + 64])
                ]
                attacker.client.send(*part)
                await _answers(attacker.client, declaration, part)
        assert memory_bytes() - before < 100 * MIB


async def _answers(client: WireClient, declaration: Declaration, asked: list[Frame]) -> None:
    waiting = {frame.opaque for frame in asked}
    while waiting:
        answer = await client.frame()
        if not answer.is_response:
            if not answer.is_oneway:
                client.send(answer.answer(ResponseCode.SYSTEM_ERROR, "no"))
            continue
        waiting.discard(answer.opaque)
        if declaration.code in UNSERVED:
            assert answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED


@settings(max_examples=examples(15))
@given(seed=st.integers(0, 2**32), form=st.sampled_from(HeaderForm))
def test_any_mixture_of_bad_requests_is_answered(
    tmp_path_factory: pytest.TempPathFactory, seed: int, form: HeaderForm
) -> None:
    random = Random(seed)

    async def attack() -> None:
        async with (
            attacked_broker(tmp_path_factory.mktemp("broker")) as broker,
            Attacker(broker, random) as attacker,
        ):
            for _ in range(200):
                frame = random_frame(random.choice(ADDRESSED), form, random)
                if frame.code not in (CONFIG_UPDATE, TOPIC_DELETION):
                    await attacker.attack(frame)

    (new_loop,) = FASTEST_LOOP.values()
    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(attack())


@pytest.mark.parametrize("text", ["\ud800", "a\udfffb"])
async def test_text_that_is_no_text_is_hung_up_on(tmp_path: Path, text: str) -> None:
    async with attacked_broker(tmp_path) as broker:
        client = await WireClient.connect(broker.address)
        header = json.dumps(
            {"code": 30, "opaque": 1, "flag": 0, "version": 479, "extFields": {"topic": text, "queueId": "0"}}
        ).encode()
        client.write(struct.pack(">II", 4 + len(header), len(header)) + header)
        assert await client.wait_closed() == []
        await client.close()


@pytest.mark.parametrize(
    "request_",
    [
        GetBrokerStatistics(stats_name="QUEUE_PUT_NUMS", stats_key="Orders@" + "9" * 5000),
        GetBrokerStatistics(stats_name="QUEUE_GET_NUMS", stats_key="Orders@" + "9" * 5000 + "@shop"),
        UpdateBrokerConfig(body="deleteWhen=²\n"),
        UpdateBrokerConfig(body=f"deleteWhen={'9' * 5000}\n"),
        UpdateBrokerConfig(body=f"namesrvAddr=host:{'9' * 5000}\n"),
        pull(subscription="a = " + "9" * 5000, expression_type="SQL92"),
    ],
    ids=lambda each: type(each).__name__,
)
async def test_digits_that_are_no_number_are_refused(tmp_path: Path, request_: Request[Any]) -> None:
    """Python reads no number of thousands of digits, and takes some things for digits that are none."""
    async with attacked_broker(tmp_path) as broker, BrokerClient(broker.address) as client:
        refusal = await client.refusal(request_)
        assert "ValueError" not in (refusal.remark or "")


async def test_pulls_of_a_client_that_has_gone_are_forgotten(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        async with BrokerClient(broker.address) as client:
            await client.create_topic(queues=1)
            connection = await client.connection()
            for _ in range(100):
                connection.send_oneway(pull(hold_ms=2**62))
            await client.call(GetConsumeStats(consumer_group="nobody"))
            assert broker.statistics().held_pulls == 100
        await turn_until(lambda: broker.statistics().traffic.in_flight == 0)
        assert broker.statistics().held_pulls == 0


async def test_a_group_with_absurdly_many_retry_queues_harms_nobody(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker, BrokerClient(broker.address) as client:
        config = SubscriptionGroupConfig(group_name="greedy", retry_queue_nums=2**31 - 1)
        refusal = await client.refusal(CreateOrUpdateGroup(body=config))
        assert refusal.code == ResponseCode.INVALID_PARAMETER
        await client.heartbeat(consumer("greedy", TOPIC))
        await client.call(
            UpdateConsumerOffset(consumer_group="greedy", topic="%RETRY%greedy", queue_id=0, commit_offset=0)
        )
        await client.call(GetBrokerConsumeStats(is_order=False))


def send_to_nowhere(text: str) -> Request[Any]:
    return message(topic=text)


def pull_by_tag(text: str) -> Request[Any]:
    return pull(subscription=f"a || {text}")


@pytest.mark.parametrize("asked", [send_to_nowhere, pull_by_tag])
async def test_long_texts_of_strangers_are_not_remembered(
    tmp_path: Path, asked: Callable[[str], Request[Any]]
) -> None:
    async with running_broker(tmp_path) as broker, BrokerClient(broker.address) as good:
        await good.send(properties={"TAGS": "a"})
        client = await WireClient.connect(broker.address)
        tracemalloc.start()
        try:
            for number in range(40):
                text = f"{number:04}" + "x" * (MIB // 4)
                for _ in range(2):  # the second time it may be known
                    await client.call(encode_request(asked(text), 1))
            kept_bytes, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert kept_bytes < 5 * MIB
        await client.close()
