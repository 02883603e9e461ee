"""Which filter servers a broker names: those that it hears of, on connections that are open."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.support.broker_parts import BrokerParts, FakeChannel, broker_parts, caller_on, refusal

from pyromq.broker.services.filter_servers import MAX_FILTER_SERVERS, FilterServers
from pyromq.protocol.codes import ResponseCode
from pyromq.protocol.requests.filter_servers import RegisterFilterServer, RegisterFilterServerAnswer

ONE, OTHER = "10.0.0.1:30000", "10.0.0.1:30001"


class World:
    def __init__(self, parts: BrokerParts) -> None:
        self.parts = parts
        self.announced: list[Sequence[str]] = []
        self.service = FilterServers(parts.live, parts.tables.role, parts.clock, self.announced.append)

    def register(self, address: str, channel: FakeChannel) -> RegisterFilterServerAnswer:
        request = RegisterFilterServer(filter_server_addr=address)
        return self.service.register(request, caller_on(channel))

    def pass_s(self, seconds: float) -> None:
        self.parts.clock.advance(seconds)
        self.service.expire()


@pytest.fixture
def world(tmp_path: Path) -> World:
    with broker_parts(tmp_path) as parts:
        return World(parts)


async def test_a_filter_server_is_announced_once_and_learns_whose_it_is(world: World) -> None:
    channel = FakeChannel()
    answer = world.register(ONE, channel)
    assert (answer.broker_name, answer.broker_id) == (world.parts.live.now.broker_name, 0)
    world.register(ONE, channel)
    world.register(OTHER, FakeChannel())
    assert world.announced == [[ONE], [ONE, OTHER]]


async def test_one_is_gone_with_its_connection(world: World) -> None:
    channel, other = FakeChannel(), FakeChannel()
    world.register(ONE, channel)
    world.register(OTHER, other)
    world.service.connection_lost(channel)
    assert world.announced[-1] == [OTHER]


async def test_a_new_connection_takes_the_place_of_an_older_one(world: World) -> None:
    older = FakeChannel()
    world.register(ONE, older)
    world.register(ONE, FakeChannel())
    world.service.connection_lost(older)
    assert world.announced == [[ONE]]


async def test_one_is_gone_thirty_seconds_after_it_was_heard_of(world: World) -> None:
    channel = FakeChannel()
    world.register(ONE, channel)
    world.register(OTHER, channel)
    world.pass_s(25)
    world.register(ONE, channel)
    world.pass_s(6)
    assert world.announced[-1] == [ONE]
    world.pass_s(25)
    assert world.announced[-1] == []


@pytest.mark.parametrize(
    "address", ["", "host", ":1", "host:0", "host:65536", "a b:1", "a\n:1", "h:x", "h" * 300 + ":1"]
)
async def test_what_is_no_address_is_refused(world: World, address: str) -> None:
    refused = refusal(lambda: world.register(address, FakeChannel()))
    assert refused.code == ResponseCode.INVALID_PARAMETER
    assert "expected host:port" in str(refused)
    assert world.announced == []


async def test_a_broker_does_not_take_any_number_of_them(world: World) -> None:
    for number in range(MAX_FILTER_SERVERS):
        world.register(f"host:{number + 1}", FakeChannel())
    assert "takes no more" in str(refusal(lambda: world.register("host:999", FakeChannel())))
    world.register("host:1", FakeChannel())
