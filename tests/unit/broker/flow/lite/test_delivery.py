"""Messages of lite topics, handed out by a real delivery over a real store."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.support.broker_parts import BrokerParts, FakeChannel, broker_parts
from tests.support.small_stores import BORN_HOST

from pyromq.broker.flow.draft import Draft
from pyromq.broker.flow.lite.delivery import LiteDelivery, LitePop
from pyromq.broker.flow.popping.held_pops import HeldPops
from pyromq.broker.table_fitting import fit_to_log
from pyromq.broker.tables.role import Role
from pyromq.errors import Refused
from pyromq.protocol.names import lite_queue
from pyromq.protocol.properties import INNER_MULTI_DISPATCH, encode_properties
from pyromq.protocol.record import decode_record

PARENT, GROUP = "Sessions", "agents"
QUEUE = lite_queue(PARENT, "a")


class Bench:
    """One client that has subscribed to one lite topic."""

    def __init__(self, parts: BrokerParts) -> None:
        self.parts = parts
        self.delivery = delivery = LiteDelivery(
            parts.context, parts.durability, HeldPops(parts.context.slices)
        )
        parts.appending.on_light_advance(delivery.light_advanced)
        self.client = delivery.subscriptions.join(GROUP, "c1", PARENT, FakeChannel(), reads_all=False)
        delivery.subscriptions.subscribe(self.client, QUEUE)

    def put(self, *bodies: bytes) -> None:
        properties = encode_properties({INNER_MULTI_DISPATCH: QUEUE}).encode()
        for body in bodies:
            assert self.parts.appending.append(Draft(PARENT, 0, body, properties, 1, BORN_HOST)).is_ok
        while self.parts.store.dispatch():
            pass
        self.delivery.light_advanced(self.parts.store.queues.take_light_advances())

    def pop(self) -> tuple[int, list[bytes]]:
        """The time of the pop, and what it got."""
        pop = LitePop(32, 60_000, self.parts.store.time.now_ms())
        self.delivery.take(self.client, pop)
        return pop.time_ms, [bytes(decode_record(view).body) for view in pop.views]

    def ack(self, popped_ms: int, *offsets: int) -> None:
        for offset in offsets:
            self.delivery.acknowledge(QUEUE, GROUP, offset, popped_ms)

    def become(self, role: Role) -> None:
        if role.is_master:
            fit_to_log(self.parts.store, self.parts.tables)
        self.parts.tables.role.change(role)
        if role.is_master:
            self.parts.store.copying.end()
        else:
            self.parts.store.copying.begin()


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    with broker_parts(tmp_path, store={"light_queues": True, "multi_dispatch": True}) as parts:
        parts.add_topic(PARENT, attributes={"message.type": "LITE"})
        yield Bench(parts)


async def test_a_broker_that_leads_again_hands_out_all_messages_that_replaced_lost_ones(bench: Bench) -> None:
    bench.put(b"0")
    kept = bench.parts.store.log.end
    bench.put(b"1", b"2", b"3")
    popped_ms, bodies = bench.pop()
    assert bodies == [b"0", b"1", b"2", b"3"]
    bench.ack(popped_ms, 0, 2, 3)
    bench.become(Role(1, 1))
    bench.parts.store.cutting.cut(kept)  # the other master had no more
    bench.become(Role(0, 2))
    bench.put(b"new 1", b"new 2", b"new 3")
    with pytest.raises(Refused, match="does not hold"):
        bench.ack(popped_ms, 1)  # by the receipt of a lost message
    again_ms, bodies = bench.pop()
    assert bodies == [b"new 1", b"new 2", b"new 3"]
    bench.ack(again_ms, 1, 2, 3)
    assert bench.pop()[1] == []
    assert bench.parts.offsets.query(GROUP, QUEUE, 0) == 4


async def test_what_was_out_when_the_role_changed_is_popped_again_at_once(bench: Bench) -> None:
    bench.put(b"0", b"1")
    popped_ms, _ = bench.pop()
    bench.ack(popped_ms, 0)
    assert bench.pop()[1] == []
    bench.become(Role(0, 1))
    assert bench.pop()[1] == [b"1"]
