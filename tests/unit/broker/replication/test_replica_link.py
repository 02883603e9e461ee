"""A master sends its log as fast as a replica takes it, or as fast as the settings allow."""

import asyncio
from typing import Any, cast

import pytest
from tests.support.fake_transport import FakeTransport

from pyromq.broker.replication.epoch_replica_link import EpochReplicaLink
from pyromq.broker.replication.replica_link import ReplicaLink
from pyromq.clock import ManualClock
from pyromq.protocol.epoch_replication import ReplicaGreeting
from pyromq.protocol.epoch_replication import encode_report as encode_epoch_report
from pyromq.protocol.replication import HEADER_BYTES, encode_report
from pyromq.security.replica_hello import HelloMember, HelloReader, encode_hello
from pyromq.security.signature import Credentials

LOG_BYTES = 3_000_000


class Store:
    """A log of zeros."""

    class epochs:  # noqa: N801
        epochs = ()

    class log:  # noqa: N801
        start, end = 0, LOG_BYTES

        @staticmethod
        def bytes_at(offset: int, size: int) -> memoryview:
            return memoryview(bytes(min(size, LOG_BYTES - offset)))


class Links:
    batch_bytes = 32_768
    from_last_file = False

    def __init__(self, max_bytes_per_s: int | None) -> None:
        self.max_bytes_per_s = max_bytes_per_s

    def opened(self, link: ReplicaLink) -> str:
        return ""

    def begins_at(self, offset: int) -> None:
        pass

    def acknowledged(self, link: ReplicaLink) -> None:
        pass

    def lost(self, link: ReplicaLink) -> None:
        pass


def linked(limit: int | None) -> tuple[ReplicaLink, ManualClock, FakeTransport]:
    clock = ManualClock()
    link = ReplicaLink(Links(limit), cast(Any, Store()), clock)
    transport = FakeTransport(link)
    link.connection_made(transport)
    link.data_received(encode_report(1))  # not empty: it gets the log from here on
    return link, clock, transport


def sent(transport: FakeTransport) -> int:
    return sum(map(len, transport.writes))


async def test_without_a_limit_the_whole_log_goes_out_in_a_few_turns() -> None:
    link, _, _ = linked(None)
    for _ in range(5):
        await asyncio.sleep(0)
    assert link.next_offset == LOG_BYTES


@pytest.mark.parametrize("limit", [1000, 100_000, 1_000_000])
async def test_with_a_limit_a_second_brings_so_many_bytes(limit: int) -> None:
    link, clock, transport = linked(limit)
    link.send_more()
    assert link.next_offset == 1  # no time has passed
    for _ in range(20):
        clock.advance(0.05)
        link.send_more()
        link.send_more()  # twice at the same time is once
    assert link.next_offset - 1 == pytest.approx(limit, rel=0.01)
    assert sent(transport) >= link.next_offset - 1 + HEADER_BYTES
    link.close("the test is over")


async def test_after_a_pause_at_most_one_second_is_made_up_for() -> None:
    link, clock, _ = linked(10_000)
    clock.advance(3600)
    link.send_more()
    assert link.next_offset == 10_001
    link.close("the test is over")


class EpochLinks(Links):
    confirmed = 0

    def greeted(self, link: object) -> bool:
        return True


@pytest.mark.parametrize("is_controlled", [False, True], ids=["fixed", "controlled"])
async def test_nothing_that_a_replica_says_counts_before_its_hello(is_controlled: bool) -> None:
    hello = HelloReader("c", "g", lambda _: ("secret",))
    link: ReplicaLink
    if is_controlled:
        link = EpochReplicaLink(cast(Any, EpochLinks(None)), cast(Any, Store()), ManualClock(), hello)
        first = ReplicaGreeting(2).encode() + encode_epoch_report(LOG_BYTES)
    else:
        link = ReplicaLink(Links(None), cast(Any, Store()), ManualClock(), hello)
        first = encode_report(LOG_BYTES)
    transport = FakeTransport(link)
    link.connection_made(transport)
    link.data_received(first)
    assert transport.writes == [hello.challenge]
    assert (link.is_proven, link.is_started) == (False, False)
    link.data_received(
        encode_hello(hello.challenge, HelloMember("c", "g", 2), Credentials("server", "secret"))
    )
    assert (link.is_proven, link.acknowledged) == (True, LOG_BYTES)
