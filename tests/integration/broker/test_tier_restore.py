"""A broker whose disk is lost starts with a store that was built again from its tier."""

import asyncio
import shutil
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import ErrorLogs
from tests.integration.broker.test_tier import (
    MESSAGES,
    QUEUES,
    SEGMENT_BYTES,
    body,
    offloaded,
    read_all,
    send_all,
    sent,
    tiered,
    uploaded,
)
from tests.support.broker_cluster import BROKER_NAME, CLUSTER, GROUP, TOPIC, consumer
from tests.support.loop import turn_until

from pyromq.broker.services import tiering as service
from pyromq.clock import TravellingClock
from pyromq.errors import StoreError
from pyromq.protocol.requests.offsets import QueryConsumerOffset, UpdateConsumerOffset
from pyromq.protocol.requests.topics import DeleteTopicFromBroker
from pyromq.tier.manifests import Manifests
from pyromq.tier.opening import open_objects
from pyromq.tier.restoring import Outcome, Restoring

QUIET, DELETED = "Quiet", "Deleted"


KILLED = """
import os, sys
from pyromq.cli.store import store
from pyromq.tier.restoring import Restoring

left, rebuild = int(sys.argv[1]), Restoring._rebuild

def rebuild_and_die(*arguments):
    global left
    rebuild(*arguments)
    left -= 1
    if not left:
        os.kill(os.getpid(), 9)

Restoring._rebuild = rebuild_and_die
store(sys.argv[2:])
"""


def restored(root: Path, newest: int | None = None) -> Outcome:
    """Instead of the store that is lost."""
    shutil.rmtree(root / "store", ignore_errors=True)
    return go_on(root, newest)


def go_on(root: Path, newest: int | None = None) -> Outcome:
    objects = open_objects(str(root / "lake"), CLUSTER, BROKER_NAME)
    restoring = Restoring(Manifests(objects, CLUSTER, BROKER_NAME, "restore"), root / "store")
    return restoring.run(restoring.plan(newest))


def log_files(root: Path) -> dict[str, bytes]:
    return {each.name: each.read_bytes() for each in (root / "store" / "commitlog").iterdir()}


async def lose(root: Path) -> tuple[dict[str, bytes], list[int]]:
    """A broker that is lost: its log files in the tier, and where its queues ended there."""
    async with tiered(root) as (broker, client):
        for topic in (TOPIC, QUIET, DELETED):
            await client.create_topic(topic, queues=QUEUES)
        await client.heartbeat(consumer())
        for number in range(3):
            await client.send(body(number), topic=QUIET, queue_id=0)
            await client.send(body(number), topic=DELETED, queue_id=0)
        await send_all(client)
        await client.call(DeleteTopicFromBroker(topic=DELETED))
        for topic, queue_id, offset in ((TOPIC, 0, 5), (TOPIC, 1, MESSAGES // QUEUES), (QUIET, 0, 2)):
            await client.call(
                UpdateConsumerOffset(
                    consumer_group=GROUP, topic=topic, queue_id=queue_id, commit_offset=offset
                )
            )
        end = await uploaded(broker)
        tier = broker.tiering
        assert tier is not None
    # Its tables are in the tier once it has claimed it again.
    async with tiered(root) as (broker, _):
        tier = broker.tiering
        assert tier is not None
        copied = f"{broker.store.log.end:020d}"
        await turn_until(lambda: tier.manifest is not None and copied in tier.manifest.tables)
        ends = [tier.history.index.end_of((TOPIC, queue_id)) for queue_id in range(QUEUES)]
    assert 0 < min(ends) < MESSAGES // QUEUES
    return {name: content for name, content in log_files(root).items() if int(name) < end}, ends


async def pulled(client: Any, ends: Iterable[int]) -> None:
    for queue_id, end in enumerate(ends):
        assert await read_all(client, queue_id, end) == sent(queue_id)[:end]


async def test_a_lost_broker_is_restored_and_goes_on_with_its_tier(tmp_path: Path) -> None:
    files, ends = await lose(tmp_path)
    outcome = await asyncio.to_thread(restored, tmp_path)
    assert not outcome.problems
    assert {name: log_files(tmp_path)[name] for name in files} == files
    async with tiered(tmp_path) as (broker, client):
        await pulled(client, ends)
        assert DELETED not in broker.store.topics.names()
        assert DELETED not in set(broker.tables.topics.all())
        for queue_id, offset in ((0, 5), (1, ends[1])):
            answer = await client.call(
                QueryConsumerOffset(consumer_group=GROUP, topic=TOPIC, queue_id=queue_id)
            )
            assert answer.offset == offset
        assert (await client.send(body(7), topic=QUIET, queue_id=0)).queue_offset == 3
        for queue_id, end in enumerate(ends):
            assert (await client.send(b"new", queue_id=queue_id)).queue_offset == end
        await send_all(client, 1000)
        await offloaded(broker)
        assert broker.tiering is not None
        assert not broker.tiering.problem
        found = await read_all(client, 0, ends[0] + 1 + MESSAGES // QUEUES)
        assert found[: ends[0] + 1] == [*sent(0)[: ends[0]], b"new"]
        assert found[-1] == body(1000 + MESSAGES - QUEUES)


async def test_a_store_that_had_a_controller_goes_on_with_its_tier_without_one(tmp_path: Path) -> None:
    await lose(tmp_path)
    Manifests(open_objects(str(tmp_path / "lake"), CLUSTER, BROKER_NAME), CLUSTER, BROKER_NAME, "old").claim(
        7
    )
    assert not (await asyncio.to_thread(restored, tmp_path)).problems
    async with tiered(tmp_path) as (broker, client):
        await send_all(client, 1000)
        await offloaded(broker)
        assert broker.tiering is not None
        assert broker.tiering.manifest is not None
        assert broker.tiering.manifest.epoch == 7
        assert not broker.tiering.problem


async def test_with_the_newest_files_alone_older_messages_come_from_the_tier(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "_POLL_S", 0.05)
    _, ends = await lose(tmp_path)
    assert (await asyncio.to_thread(restored, tmp_path, 1)).restored == 1
    async with tiered(tmp_path) as (broker, client):
        assert broker.store.log.start > 0
        await pulled(client, ends)
        found = await client.pull(0, topic=QUIET, hold_ms=15_000)
        assert found.bodies == [body(number) for number in range(3)]
        assert (await client.send(body(3), topic=QUIET, queue_id=0)).queue_offset == 3
        assert broker.tiering is not None
        assert broker.tiering.history.messages_out > 0
        await send_all(client, 1000)
        await offloaded(broker)
    async with tiered(tmp_path) as (_, client):
        found = await client.pull(3, topic=QUIET, hold_ms=15_000)
        assert found.bodies == [body(3)]


async def test_a_queue_whose_messages_cannot_be_read_goes_on_behind_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error_logs: ErrorLogs
) -> None:
    monkeypatch.setattr(service, "_POLL_S", 0.05)
    await lose(tmp_path)
    oldest = min((tmp_path / "lake").rglob("*.seg"))
    away = oldest.rename(tmp_path / "away")
    outcome = await asyncio.to_thread(restored, tmp_path, 1)
    assert not outcome.problems
    asked = QueryConsumerOffset(consumer_group=GROUP, topic=QUIET, queue_id=0)
    async with tiered(tmp_path, tier_read_timeout_ms=50) as (broker, client):
        assert (await client.call(asked)).offset == 2
        offset = (await client.send(b"new", topic=QUIET, queue_id=0)).queue_offset
        assert offset >= 3
        waits = await client.pull(2, topic=QUIET)
        assert (waits.messages, waits.answer.next_begin_offset) == ([], 2)
        away.rename(oldest)
        tier = broker.tiering
        assert tier is not None
        await turn_until(lambda: not tier.history.index.unknown)
        found, place = list[bytes](), 2
        while place <= offset:
            pulled = await client.pull(place, topic=QUIET)
            found, place = found + pulled.bodies, pulled.answer.next_begin_offset
        assert found == [body(2), b"new"]
    error_logs.expect_repeatedly("a segment cannot be read, its readers wait: ")


async def test_timed_and_delayed_messages_that_were_not_due_are_delivered_after_a_restore(
    tmp_path: Path,
) -> None:
    clock, hour_ms = TravellingClock(), 3_600_000
    async with tiered(tmp_path, clock=clock) as (broker, client):
        await client.create_topic(queues=QUEUES)
        await client.create_topic(QUIET, queues=QUEUES)
        timed = {"TIMER_DELIVER_MS": str(clock.now_ms() + hour_ms), "UNIQ_KEY": "k"}
        for name, properties in ((b"timed", timed), (b"delayed", {"DELAY": "18"})):
            await client.send(name, topic=QUIET, queue_id=0, properties=properties)
        await send_all(client)
        await uploaded(broker)
    outcome = await asyncio.to_thread(restored, tmp_path, 1)
    assert "1 older log files have timed or delayed messages" in outcome.remarks[-1]
    assert not (await asyncio.to_thread(restored, tmp_path)).remarks
    async with tiered(tmp_path, clock=clock) as (broker, client):
        await turn_until(lambda: broker.store.timers.counts.total)
        for number, name in enumerate((b"timed", b"delayed")):
            await turn_until(lambda: broker.store.queues.dispatched_offset == broker.store.log.end)
            assert broker.store.queues.max_offset(QUIET, 0) == number
            clock.advance(hour_ms / 1000)
            found = await client.pull(number, topic=QUIET, queue_id=0, hold_ms=15_000)
            assert found.bodies == [name]


async def test_a_store_that_is_not_restored_completely_does_not_start(
    tmp_path: Path, error_logs: ErrorLogs
) -> None:
    await lose(tmp_path)
    names = sorted((tmp_path / "lake").rglob("*.seg"))
    content = names[1].read_bytes()
    names[1].unlink()
    outcome = await asyncio.to_thread(restored, tmp_path)
    assert outcome.problems == [f"{names[1]}: it is missing"]
    with pytest.raises(StoreError, match="not restored completely"):
        async with tiered(tmp_path):
            pass
    names[1].write_bytes(content)
    outcome = await asyncio.to_thread(go_on, tmp_path)
    assert (outcome.restored, outcome.problems) == (1, [])
    async with tiered(tmp_path) as (_, client):
        assert (await client.pull(0)).bodies[0] == body(0)


async def test_an_empty_disk_in_place_of_a_lost_one_leaves_the_tier_as_it_is(
    tmp_path: Path, error_logs: ErrorLogs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "_MAX_PAUSE_S", 0.05)
    files, _ = await lose(tmp_path)
    end = max(map(int, files)) + SEGMENT_BYTES
    shutil.rmtree(tmp_path / "store")
    before = {each: each.read_bytes() for each in (tmp_path / "lake").rglob("*") if each.is_file()}
    async with tiered(tmp_path) as (broker, client):
        tier = broker.tiering
        assert tier is not None
        await turn_until(lambda: "pyromq store restore" in tier.problem)
        # Nor when its new log has become longer than the old one.
        await client.create_topic(queues=QUEUES)
        for begin in (0, MESSAGES):
            await send_all(client, begin)
        failures = tier.failures
        await turn_until(lambda: tier.failures > failures + 2)
        assert tier.problem
        assert broker.store.log.end > end
    assert {each: each.read_bytes() for each in before} == before
    error_logs.expect_repeatedly("nothing is uploaded to the tier any more: ")


async def test_a_restore_that_is_killed_again_and_again_ends_with_the_same_store(tmp_path: Path) -> None:
    files, ends = await lose(tmp_path)
    shutil.rmtree(tmp_path / "store")
    arguments = ["restore", "--from", str(tmp_path / "lake"), "--to", str(tmp_path / "store")]
    arguments += ["--cluster", CLUSTER, "--broker", BROKER_NAME]

    async def run(files: int) -> int | None:
        """Killed while it restores so many files, when the last one has no name yet."""
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", KILLED, str(files), *arguments, stdout=asyncio.subprocess.DEVNULL
        )
        return await process.wait()

    for count in (1, 2, 2):
        assert await run(count) == -9
    assert await run(0) == 0
    assert {name: log_files(tmp_path)[name] for name in files} == files
    async with tiered(tmp_path) as (_, client):
        await pulled(client, ends)
