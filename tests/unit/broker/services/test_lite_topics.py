"""Which lite topics expire, and what is left of them, with real parts and a clock that the test moves."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from tests.support.broker_parts import BrokerParts, FakeChannel, broker_parts
from tests.support.small_stores import BORN_HOST

from pyromq.broker.flow.draft import Draft
from pyromq.broker.flow.lite.delivery import LiteDelivery
from pyromq.broker.flow.popping.held_pops import HeldPops
from pyromq.broker.services.lite_topics import LiteTopics
from pyromq.broker.table_fitting import fit_to_log
from pyromq.broker.tables.role import Role
from pyromq.clock import ManualClock
from pyromq.errors import Refused
from pyromq.protocol.codes import ResponseCode
from pyromq.protocol.frame import Frame
from pyromq.protocol.lite import MAX_EXPIRATION_MINUTES
from pyromq.protocol.names import lite_queue
from pyromq.protocol.properties import INNER_MULTI_DISPATCH, encode_properties
from pyromq.protocol.requests.groups import SubscriptionGroupConfig
from pyromq.protocol.requests.lite import (
    ChangeLiteSubscriptions,
    LiteSubscriptionAction,
    LiteSubscriptionCtlRequestBody,
    LiteSubscriptionDTO,
)
from pyromq.remoting.routing import Caller
from pyromq.remoting.slices import Slices

PARENT, GROUP = "Sessions", "agents"
QUEUE = lite_queue(PARENT, "a")
MINUTE_S = 60.0
LIFE_MINUTES = 30


class Bench:
    def __init__(self, parts: BrokerParts) -> None:
        self.parts = parts
        self.store = parts.store
        self.delivery = LiteDelivery(parts.context, parts.durability, HeldPops(parts.context.slices))
        self.lite_topics = LiteTopics(parts.context, self.delivery)

    def put(self, count: int = 1, queue: str = QUEUE) -> None:
        properties = encode_properties({INNER_MULTI_DISPATCH: queue}).encode()
        for _ in range(count):
            assert self.parts.appending.append(Draft(PARENT, 0, b"x", properties, 1, BORN_HOST)).is_ok
        self.dispatch()

    def read_to_the_end(self, count: int, queue: str = QUEUE) -> None:
        """Put messages; a group, which is bound to no topic, has read them, and its offset is on disk."""
        self.put(count, queue)
        self.parts.offsets.commit(GROUP, queue, 0, count)
        self.parts.offsets.persist()

    def dispatch(self) -> None:
        while self.store.dispatch():
            pass

    def copy_from(self, master: "Bench") -> None:
        """Copy what this log lacks, and dispatch it."""
        begin = self.store.log.end
        self.store.copying.append(begin, master.store.log.bytes_at(begin, 1 << 20))
        self.dispatch()

    def end(self, queue: str = QUEUE) -> int:
        return self.store.queues.max_offset(queue, 0)


@contextmanager
def _bench(root: Path, clock: ManualClock | None = None) -> Iterator[Bench]:
    root.mkdir(exist_ok=True)
    on = {"light_queues": True, "multi_dispatch": True}
    with broker_parts(root, store=on, clock=clock) as parts:
        parts.add_topic(
            PARENT, attributes={"message.type": "LITE", "lite.topic.expiration": str(LIFE_MINUTES)}
        )
        yield Bench(parts)


@contextmanager
def _master_and_replica(root: Path) -> Iterator[tuple[Bench, Bench, ManualClock]]:
    clock = ManualClock()
    with _bench(root / "master", clock) as master, _bench(root / "replica", clock) as replica:
        replica.parts.tables.role.change(Role(1, 1))
        replica.store.copying.begin()
        yield master, replica, clock


async def test_a_lite_topic_may_live_for_a_month(tmp_path: Path) -> None:
    """java: 40,000 minutes in milliseconds are beyond 32 bits, and it was over at once."""
    with _bench(tmp_path) as bench:
        bench.parts.add_topic(
            PARENT, attributes={"message.type": "LITE", "lite.topic.expiration": str(MAX_EXPIRATION_MINUTES)}
        )
        bench.put()
        bench.parts.clock.advance((MAX_EXPIRATION_MINUTES - 1) * MINUTE_S)
        await bench.lite_topics.remove_expired()
        assert bench.end() == 1
        bench.parts.clock.advance(2 * MINUTE_S)
        await bench.lite_topics.remove_expired()
        assert bench.end() == 0


async def test_a_replica_keeps_a_lite_topic_whose_latest_messages_it_lacks(tmp_path: Path) -> None:
    with _master_and_replica(tmp_path) as (master, replica, clock):
        master.put(10)
        replica.copy_from(master)
        clock.advance(20 * MINUTE_S)
        master.put()
        clock.advance(28 * MINUTE_S)  # and the replica is cut off from its master
        await replica.lite_topics.remove_expired()
        replica.copy_from(master)
        assert (replica.store.queues.min_offset(QUEUE, 0), replica.end()) == (0, 11)


async def test_a_replica_removes_a_lite_topic_that_is_old_by_the_time_of_its_log(tmp_path: Path) -> None:
    with _master_and_replica(tmp_path) as (master, replica, clock):
        master.put(10)
        clock.advance(60 * MINUTE_S)
        master.put(queue=lite_queue(PARENT, "b"))
        replica.copy_from(master)
        await replica.lite_topics.remove_expired()
        assert replica.end() == 0
        assert replica.end(lite_queue(PARENT, "b")) == 1


async def test_a_lite_topic_whose_last_message_is_damaged_keeps_the_others(tmp_path: Path) -> None:
    with _bench(tmp_path) as bench:
        bench.parts.clock.advance(20 * MINUTE_S)
        bench.put(2)
        _damage_last(bench)
        await bench.lite_topics.remove_expired()
        assert (bench.store.queues.min_offset(QUEUE, 0), bench.end()) == (0, 2)


def _damage_last(bench: Bench) -> None:
    place = bench.store.queues.log_offset(QUEUE, 0, bench.end() - 1)
    assert place is not None
    (path,) = (each for each in bench.store.paths.commit_log.iterdir() if each.is_file())
    with path.open("r+b") as file:  # the store has it mapped
        file.seek(place)
        file.write(bytes(8))
    assert bench.store.queues.store_time(QUEUE, 0, bench.end() - 1) == -1


async def test_a_crash_brings_no_offset_of_an_expired_lite_topic_back(tmp_path: Path) -> None:
    with _bench(tmp_path) as bench:
        bench.read_to_the_end(10)
        bench.parts.clock.advance(60 * MINUTE_S)
        await bench.lite_topics.remove_expired()
        assert bench.end() == 0
        bench.put(12)  # the same name again
        bench.store.flushes.flush()
        bench.store.abandon()
    with _bench(tmp_path) as bench:
        fit_to_log(bench.store, bench.parts.tables)
        assert bench.end() == 12
        assert bench.parts.offsets.query(GROUP, QUEUE, 0) == -1


async def test_a_crash_brings_no_offset_of_a_deleted_topics_lite_topics_back(tmp_path: Path) -> None:
    with _bench(tmp_path) as bench:
        bench.read_to_the_end(10)
        await bench.lite_topics.topic_deleted(PARENT)
        assert bench.end() == 0
        bench.store.abandon()
    with _bench(tmp_path) as bench:
        assert bench.parts.offsets.query(GROUP, QUEUE, 0) == -1


async def test_all_lite_topics_that_expire_together_cost_one_write(tmp_path: Path) -> None:
    with _bench(tmp_path) as bench:
        names = [lite_queue(PARENT, f"s{number}") for number in range(20)]
        for name in names:
            bench.read_to_the_end(1, name)
        bench.parts.clock.advance(60 * MINUTE_S)
        before = bench.parts.offsets.promises
        await bench.lite_topics.remove_expired()
        assert bench.parts.offsets.promises == before + 1
        assert not any(bench.end(name) for name in names)
        assert not list(bench.parts.offsets.pairs())
        await bench.lite_topics.remove_expired()
        assert bench.parts.offsets.promises == before + 1  # nothing is left to remove


async def test_a_lite_topic_that_gets_a_message_while_offsets_are_written_stays(tmp_path: Path) -> None:
    async def put_one() -> None:
        assert bench.parts.offsets.query(GROUP, QUEUE, 0) == 10  # a pop goes on where it was
        bench.put()

    with _bench(tmp_path) as bench:
        bench.read_to_the_end(10)
        bench.parts.clock.advance(60 * MINUTE_S)
        bench.parts.offsets.at_replicas = put_one
        await bench.lite_topics.remove_expired()
        assert bench.end() == 11
        bench.parts.offsets.persist()
        bench.store.abandon()
    with _bench(tmp_path) as bench:
        assert bench.parts.offsets.query(GROUP, QUEUE, 0) == 10


async def test_lite_topics_wait_for_replicas_that_still_have_their_offsets(tmp_path: Path) -> None:
    async def too_late() -> None:
        raise Refused(ResponseCode.SYSTEM_ERROR, "replicas did not confirm it")

    with _bench(tmp_path) as bench:
        bench.read_to_the_end(10)
        bench.parts.clock.advance(60 * MINUTE_S)
        bench.parts.offsets.at_replicas, usual = too_late, bench.parts.offsets.at_replicas
        await bench.lite_topics.remove_expired()
        assert (bench.end(), bench.parts.offsets.query(GROUP, QUEUE, 0)) == (10, 10)
        bench.parts.offsets.at_replicas = usual
        await bench.lite_topics.remove_expired()
        assert (bench.end(), bench.parts.offsets.query(GROUP, QUEUE, 0)) == (0, -1)


async def test_a_change_of_many_subscriptions_leaves_turns_to_others_and_the_next_change_waits_for_it(
    tmp_path: Path,
) -> None:
    with _bench(tmp_path) as bench:
        parts = bench.parts
        attributes = {"lite.bind.topic": PARENT}
        parts.groups.update(SubscriptionGroupConfig(group_name=GROUP, attributes=attributes))
        context = replace(parts.context, slices=Slices(parts.clock, 0.0))
        delivery = LiteDelivery(context, parts.durability, HeldPops(context.slices))
        lite_topics, subscriptions = LiteTopics(context, delivery), delivery.subscriptions
        bench.put(queue=lite_queue(PARENT, "n-999"))
        caller = Caller(FakeChannel("127.0.0.1:1"), Frame(0))

        def sync(action: LiteSubscriptionAction, *names: str) -> "asyncio.Future[None]":
            change = LiteSubscriptionDTO(
                action=action, client_id="c", group=GROUP, topic=PARENT, lite_topic_set=set(names)
            )
            body = LiteSubscriptionCtlRequestBody(subscription_set=[change])
            request = ChangeLiteSubscriptions(body=body)
            return asyncio.ensure_future(lite_topics.change(request, caller))

        add, remove, everything, leave = LiteSubscriptionAction
        many = [f"n-{number}" for number in range(1000)]
        changes = [sync(everything, *many), sync(remove, *many[:500]), sync(add, "late")]
        seen = set()
        while not all(each.done() for each in changes):
            seen.add(subscriptions.count)
            await asyncio.sleep(0)
        await asyncio.gather(*changes)
        assert len(seen) > 20
        client = subscriptions.get(GROUP, "c")
        assert client is not None
        assert set(client.queues) == {lite_queue(PARENT, each) for each in [*many[500:], "late"]}
        async for _ in context.slices.spread(range(2000)):
            pass  # the search for messages takes as many turns at most
        assert list(client.ready) == [lite_queue(PARENT, "n-999")]
        await asyncio.gather(sync(leave), sync(everything, "again"))
        client = subscriptions.get(GROUP, "c")
        assert client is not None
        assert (list(client.queues), subscriptions.count) == ([lite_queue(PARENT, "again")], 1)
        parts.clock.advance(60 * MINUTE_S)
        await lite_topics.forget_silent()
        assert (len(subscriptions), subscriptions.count) == (0, 0)
