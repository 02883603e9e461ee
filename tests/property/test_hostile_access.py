"""Hostile requests of every code under access control: without rights nothing changes."""

import asyncio
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.access import ALICE, ROOT, SECURE, WRONG, client, user_creation
from tests.support.broker_cluster import running_broker
from tests.support.chance import examples
from tests.support.hostile_frames import random_frame
from tests.support.wire_client import WireClient

import pyromq.protocol.requests  # noqa: F401  (fills the catalogue)
from pyromq.broker.broker import Broker
from pyromq.cluster.signing import signer
from pyromq.protocol.catalogue import BROKER, CATALOGUE
from pyromq.protocol.codes import ResponseCode
from pyromq.protocol.frame import Frame, HeaderForm
from pyromq.security.signature import Credentials


def hostile_requests(random: Random, who: Credentials | None) -> list[Frame]:
    """One of every code, as somebody sends them; each is answered."""
    sign = signer(who)
    frames = []
    for opaque, (_, declaration) in enumerate(sorted(CATALOGUE.items())):
        if declaration.to & BROKER:
            frame = random_frame(declaration, random.choice(list(HeaderForm)), random)
            frame.opaque, frame.flag = opaque, 0
            if sign is not None:
                sign(frame)
            frames.append(frame)
    return frames


def state(broker: Broker) -> tuple[object, ...]:
    figures = broker.statistics()
    return broker.access.users, broker.settings, figures.topics, figures.groups, broker.store.log_end


async def answers(broker: Broker, frames: list[Frame]) -> dict[int, int]:
    async with await WireClient.connect(broker.address) as wire:
        wire.send(*frames)
        found = {answer.opaque: answer.code for answer in await wire.frames(len(frames))}
    return {frame.code: found[frame.opaque] for frame in frames}


@pytest.mark.parametrize("who", [None, WRONG, ALICE], ids=["stranger", "thief", "user"])
def test_hostile_requests_without_rights_change_nothing(tmp_path: Path, who: Credentials | None) -> None:
    with asyncio.Runner() as runner:
        running = running_broker(tmp_path, **SECURE, auto_create_topics=True)
        broker = runner.run(running.__aenter__())

        async def prepare() -> None:
            async with client(broker.address, ROOT) as root:
                await root.create_topic()
                await root.call(user_creation(ALICE))

        runner.run(prepare())
        before = state(broker)

        @settings(max_examples=examples(10))
        @given(st.integers(0, 2**32))
        def check(seed: int) -> None:
            codes = runner.run(answers(broker, hostile_requests(Random(seed), who)))
            if who is not ALICE:
                assert set(codes.values()) == {ResponseCode.NO_PERMISSION}
            assert state(broker) == before

        check()
        runner.run(running.__aexit__(None, None, None))
