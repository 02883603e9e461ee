"""Figures in bulk: everything once, then only the changes; counted in slices, at most once a second."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.broker_parts import BrokerParts, FakeChannel, broker_parts, caller_on
from tests.support.small_stores import append, dispatch_all

from pyromq.broker.services.figures import FiguresInBulk
from pyromq.broker.tables.clients import Client
from pyromq.clock import SystemClock
from pyromq.protocol import json_body
from pyromq.protocol.requests.groups import SubscriptionGroupConfig
from pyromq.protocol.requests.inspection import Figures, GetFigures
from pyromq.protocol.requests.membership import ConsumerData, MessageModel
from pyromq.remoting.slices import Slices

TOPIC, GROUP = "orders", "shop"


class Asker:
    def __init__(self, parts: BrokerParts) -> None:
        self.parts = parts
        self.slices = Slices(SystemClock())
        self.service = FiguresInBulk(parts.store, parts.tables, parts.clock, self.slices)
        self.version: str | None = None

    async def ask(self, since: str | None = None, *, wait_s: float = 2.0) -> Figures:
        self.parts.clock.advance(wait_s)
        answer = await self.service.get(GetFigures(since=since or self.version), caller_on())
        self.version = answer.ext["version"]
        return json_body.decode(answer.body, Figures)

    def store(self, *bodies: bytes, queue_id: int = 0) -> None:
        for body in bodies:
            append(self.parts.store, body, topic=TOPIC, queue_id=queue_id)
            self.parts.statistics.put(TOPIC, queue_id, 1, len(body))
        dispatch_all(self.parts.store)


@pytest.fixture
def asker(tmp_path: Path) -> Iterator[Asker]:
    with broker_parts(tmp_path) as parts:
        parts.add_topic(TOPIC, queues=2, attributes={"message.type": "FIFO"})
        parts.groups.update(SubscriptionGroupConfig(group_name=GROUP))
        yield Asker(parts)


async def test_the_first_answer_has_everything(asker: Asker) -> None:
    asker.store(b"a", b"bc")
    asker.parts.offsets.commit(GROUP, TOPIC, 0, 1)
    asker.parts.statistics.got(GROUP, TOPIC, 0, 1, 1)
    figures = await asker.ask()
    assert figures.has_all
    assert figures.at == asker.parts.clock.now_ms()
    assert figures.topics[TOPIC] == [2, 2, 6, 0]
    assert figures.types == {TOPIC: "FIFO"}
    assert figures.queues[TOPIC] == [0, 2, 0, 0]
    assert figures.stored[TOPIC] == [2, 3]
    lag, oldest_ms, read, lost = figures.lags[f"{TOPIC}@{GROUP}"]
    assert (lag, read, lost) == (1, 1, 0)
    assert oldest_ms == asker.parts.store.queues.store_time(TOPIC, 0, 1)
    assert figures.groups[GROUP] == [0, -1]
    assert "TBW102" in figures.topics
    assert figures.store.fault == ""


async def test_later_answers_have_only_changes(asker: Asker) -> None:
    await asker.ask()
    nothing = await asker.ask()
    assert not nothing.has_all
    assert not (nothing.topics)
    assert not (nothing.queues)
    assert not (nothing.stored)
    assert not (nothing.lags)
    assert not (nothing.groups)
    asker.store(b"x", queue_id=1)
    changed = await asker.ask()
    assert changed.queues == {TOPIC: [0, 0, 0, 1]}
    assert changed.stored == {TOPIC: [1, 1]}
    assert not changed.topics


async def test_commits_change_lags_and_the_age_of_the_oldest(asker: Asker) -> None:
    asker.store(b"a")
    asker.parts.clock.advance(60.0)
    asker.store(b"b")
    asker.parts.offsets.commit(GROUP, TOPIC, 0, 0)
    first = (await asker.ask()).lags[f"{TOPIC}@{GROUP}"]
    asker.parts.offsets.commit(GROUP, TOPIC, 0, 1)
    second = (await asker.ask()).lags[f"{TOPIC}@{GROUP}"]
    assert (first[0], second[0]) == (2, 1)
    assert second[1] - first[1] == 60_000
    asker.parts.offsets.commit(GROUP, TOPIC, 0, 2)
    assert (await asker.ask()).lags[f"{TOPIC}@{GROUP}"][:2] == [0, 0]


async def test_made_and_deleted_topics_are_told(asker: Asker) -> None:
    asker.store(b"a")
    asker.parts.offsets.commit(GROUP, TOPIC, 0, 0)
    await asker.ask()
    asker.parts.add_topic("new", queues=1)
    assert (await asker.ask()).topics == {"new": [1, 1, 6, 0]}
    asker.parts.topics.delete(TOPIC)
    gone = await asker.ask()
    assert (gone.topics, gone.queues, gone.stored) == ({TOPIC: []}, {TOPIC: []}, {TOPIC: []})
    assert gone.lags == {f"{TOPIC}@{GROUP}": []}
    everything = await asker.ask("unknown:1")
    assert TOPIC not in everything.topics
    assert TOPIC not in everything.queues


async def test_members_of_groups_are_counted(asker: Asker) -> None:
    await asker.ask()
    data = ConsumerData(group_name=GROUP, message_model=MessageModel.BROADCASTING)
    asker.parts.consumers.register(Client(FakeChannel(), "one", 3, 400, 0), data)
    assert (await asker.ask()).groups == {GROUP: [1, 1]}


async def test_messages_that_were_deleted_unread_are_counted(asker: Asker) -> None:
    for number in range(40):
        asker.store(b"x" * 20_000)
        asker.parts.clock.advance(1.0)
        if number == 0:
            asker.parts.offsets.commit(GROUP, TOPIC, 0, 0)
    asker.parts.store.flushes.flush()
    asker.parts.clock.advance(400_000_000.0)  # the files have the time of this machine
    assert asker.parts.store.clean(on_demand=True).segments_removed
    first = asker.parts.store.queues.min_offset(TOPIC, 0)
    lag, _, _, lost = (await asker.ask()).lags[f"{TOPIC}@{GROUP}"]
    assert (lag, lost) == (40, first)
    assert first > 0


async def test_several_askers_share_what_was_counted(asker: Asker) -> None:
    first = await asker.ask()
    asker.store(b"x")
    again = await asker.ask("unknown:1", wait_s=0.5)
    assert again.at == first.at
    assert again.queues == first.queues


@pytest.mark.parametrize("version", ["", "x", ":", "x:1", "x:99999999999999999999", "boot:-1"])
async def test_an_unknown_version_is_answered_with_everything(asker: Asker, version: str) -> None:
    await asker.ask()
    assert (await asker.ask(version or "?")).has_all


async def test_a_version_of_the_future_is_answered_with_everything(asker: Asker) -> None:
    await asker.ask()
    boot = (asker.version or "").partition(":")[0]
    assert (await asker.ask(f"{boot}:1000")).has_all


async def test_thousands_of_topics_are_counted_in_slices(asker: Asker) -> None:
    for number in range(1000):
        asker.parts.add_topic(f"t{number}", queues=4)
    # Slices that are over at once: every pause is counted, and others run in between.
    asker.slices = Slices(SystemClock(), slice_s=0.0)
    asker.service = FiguresInBulk(asker.parts.store, asker.parts.tables, asker.parts.clock, asker.slices)
    turns = 0
    done = asyncio.ensure_future(asker.ask())
    while not done.done():
        turns += 1
        await asyncio.sleep(0)
    assert len((await done).topics) >= 1000
    assert asker.slices.pauses > 300
    assert turns > 300
