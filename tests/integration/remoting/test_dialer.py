"""Connections that are opened when they are needed."""

import asyncio
import socket
from collections.abc import Iterator

import pytest
from tests.support.echo_service import Echo, EchoService, Fail, Note, Wait
from tests.support.loop import turn_until
from tests.support.serving import address_of, dialing, serving

from pyromq.clock import ManualClock
from pyromq.errors import CallTimeout, ConnectFailed, ConnectionLost, Refused, StateError
from pyromq.protocol.frame import Frame
from pyromq.remoting.connection import Connection
from pyromq.remoting.dialer import FIRST_BACKOFF_S, MAX_BACKOFF_S
from pyromq.remoting.server import Server, ServerLimits


@pytest.fixture
def deaf_address() -> Iterator[str]:
    """Bound and not listening: connecting is refused."""
    with socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{deaf.getsockname()[1]}"


@pytest.fixture
def silent_address() -> Iterator[str]:
    """A listener whose queue is full: connecting takes forever."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        fillers = []
        for _ in range(4):
            filler = socket.socket()
            filler.setblocking(False)
            filler.connect_ex(listener.getsockname())
            fillers.append(filler)
        yield f"127.0.0.1:{listener.getsockname()[1]}"
        for filler in fillers:
            filler.close()


async def test_concurrent_callers_share_one_attempt_and_one_connection() -> None:
    async with serving(EchoService()) as server, dialing() as dialer:
        address = address_of(server)
        connections = await asyncio.gather(*(dialer.connection(address) for _ in range(20)))
        assert len(set(connections)) == 1
        assert connections[0] is await dialer.connection(address)
        await connections[0].call(Echo(), 60)
        assert server.statistics().opened == 1


async def test_a_caller_that_gives_up_does_not_take_the_connection_from_others() -> None:
    async with serving(EchoService()) as server, dialing() as dialer:
        waiting = [asyncio.create_task(dialer.connection(address_of(server))) for _ in range(2)]
        await asyncio.sleep(0)
        waiting[0].cancel()
        assert (await waiting[1]).is_open


async def test_a_oneway_request_waits_for_a_server_that_does_not_read_no_longer_than_it_may() -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        async with dialing() as dialer:

            async def send_on() -> None:
                while True:
                    await dialer.send_oneway(address, Note(text="x" * 1_000_000), timeout_s=0.1)

            with pytest.raises(CallTimeout, match=r"not sent in 0\.1 s"):
                await send_on()


async def test_a_oneway_request_waits_for_a_connection_no_longer_than_it_may(silent_address: str) -> None:
    async with dialing() as dialer:
        with pytest.raises(CallTimeout, match="not connected before the deadline"):
            await dialer.send_oneway(silent_address, Note(text="late"), timeout_s=0.01)


async def test_addresses_have_connections_of_their_own() -> None:
    first, second = EchoService(), EchoService()
    async with serving(first) as one, serving(second) as two, dialing() as dialer:
        await dialer.call(address_of(one), Echo(), 60)
        await dialer.send_oneway(address_of(two), Note(text="two"))
        await turn_until(lambda: second.notes)
        assert (len(first.callers), second.notes) == (1, ["two"])
        assert dialer.statistics().connections == 2


async def test_refusals_reach_the_caller() -> None:
    async with serving(EchoService()) as server, dialing() as dialer:
        with pytest.raises(Refused, match="not today"):
            await dialer.call(address_of(server), Fail(how="refused"), 60)


async def test_a_lost_connection_is_opened_again() -> None:
    service = EchoService()
    async with serving(service) as server, dialing() as dialer:
        lost: asyncio.Queue[Connection] = asyncio.Queue()
        dialer.on_connection_lost(lost.put_nowait)
        first = await dialer.connection(address_of(server))
        call = asyncio.create_task(first.call(Wait(number=1), 60))
        await service.wait_arrived(1)
        next(iter(server.connections)).abort()
        with pytest.raises(ConnectionLost):
            await call
        assert await lost.get() is first
        assert (await dialer.call(address_of(server), Echo(text="back"), 60)).text == "back"
        service.release(1)


async def test_a_connection_that_ends_late_does_not_take_its_successor_along() -> None:
    async with serving(EchoService()) as server, dialing() as dialer:
        first = await dialer.connection(address_of(server))
        first.close()  # it has ended when the loop comes round
        second = await dialer.connection(address_of(server))
        assert second is not first
        assert await dialer.connection(address_of(server)) is second


async def test_an_address_that_is_expected_back_does_not_rest(deaf_address: str) -> None:
    async with dialing(clock=ManualClock()) as dialer:
        for attempts in (1, 2):
            with pytest.raises(ConnectFailed):
                await dialer.connection(deaf_address)
            assert dialer.statistics().failed_attempts == attempts
            with pytest.raises(ConnectFailed, match="next attempt in"):
                await dialer.connection(deaf_address)
            dialer.reset_backoff(deaf_address)


async def test_a_failing_address_rests_longer_each_time(deaf_address: str) -> None:
    clock = ManualClock()
    async with dialing(clock=clock) as dialer:
        pauses = []
        for _ in range(10):
            with pytest.raises(ConnectFailed, match=r"refused|Connect call failed"):
                await dialer.connection(deaf_address)
            attempts = dialer.statistics().failed_attempts
            with pytest.raises(ConnectFailed, match="next attempt in"):
                await dialer.connection(deaf_address)
            assert dialer.statistics().failed_attempts == attempts, "an address that rests was tried"
            pauses.append(dialer._destinations[deaf_address].retry_at - clock.monotonic())
            clock.advance(pauses[-1] + 0.001)
        assert pauses[:3] == pytest.approx([FIRST_BACKOFF_S, FIRST_BACKOFF_S * 2, FIRST_BACKOFF_S * 4])
        assert pauses[-1] == pytest.approx(MAX_BACKOFF_S)
        assert dialer.statistics().addresses_backing_off == 1


async def test_a_success_ends_the_resting() -> None:
    clock, service = ManualClock(), EchoService()
    server = Server(service.routes())
    with socket.socket() as reserved:
        reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        reserved.bind(("127.0.0.1", 0))
        port = reserved.getsockname()[1]
        async with dialing(clock=clock) as dialer:
            for _ in range(3):
                with pytest.raises(ConnectFailed):
                    await dialer.connection(f"127.0.0.1:{port}")
                clock.advance(MAX_BACKOFF_S)
            reserved.close()
            await server.start("127.0.0.1", port)
            await dialer.call(f"127.0.0.1:{port}", Echo(), 60)
            assert dialer.statistics().addresses_backing_off == 0
            await server.stop()
            await turn_until(lambda: dialer.statistics().connections == 0)
            with pytest.raises(ConnectFailed):
                await dialer.connection(f"127.0.0.1:{port}")
            wait_s = dialer._destinations[f"127.0.0.1:{port}"].retry_at - clock.monotonic()
            assert wait_s == pytest.approx(FIRST_BACKOFF_S)


async def test_a_failed_address_is_forgotten_in_the_end(deaf_address: str) -> None:
    clock = ManualClock()
    async with dialing(clock=clock) as dialer:
        with pytest.raises(ConnectFailed):
            await dialer.connection(deaf_address)
        clock.advance(60)
        dialer.close_idle()
        assert dialer.statistics().addresses_backing_off == 0


async def test_failed_addresses_are_looked_through_without_being_told(deaf_address: str) -> None:
    clock = ManualClock()
    async with dialing(clock=clock, limits=ServerLimits(idle_s=0.012)) as dialer:
        with pytest.raises(ConnectFailed):
            await dialer.connection(deaf_address)
        assert dialer.statistics().addresses_backing_off == 1
        clock.advance(60)
        await turn_until(lambda: dialer.statistics().addresses_backing_off == 0)


async def test_connecting_has_a_timeout(silent_address: str) -> None:
    async with dialing(connect_timeout_s=0.05) as dialer:
        with pytest.raises(ConnectFailed, match=r"no connection in 0\.05 s"):
            await dialer.connection(silent_address)


async def test_connecting_counts_towards_the_time_of_a_call(silent_address: str) -> None:
    async with dialing() as dialer:
        with pytest.raises(CallTimeout, match="not connected before the deadline"):
            await dialer.call(silent_address, Echo(), 0.05)


@pytest.mark.parametrize(
    "address", ["nowhere", "::1:80", "host:0", f"{'a' * 64}:80", "a..b:80", "..:80", "\ud800:80"]
)
async def test_what_is_no_address_cannot_be_dialed(address: str) -> None:
    async with dialing() as dialer:
        with pytest.raises(ConnectFailed, match="is not an address"):
            await dialer.connection(address)


async def test_idle_connections_are_closed_and_opened_again_on_demand() -> None:
    clock = ManualClock()
    async with serving(EchoService()) as server, dialing(clock=clock) as dialer:
        first = await dialer.connection(address_of(server))
        await first.call(Echo(), 60)
        dialer.close_idle()
        clock.advance(120)
        dialer.close_idle()
        assert not first.is_open
        await dialer.call(address_of(server), Echo(), 60)
        assert dialer.statistics().closed_for_idling == 1


async def test_idle_connections_are_looked_for_without_being_told() -> None:
    async with serving(EchoService()) as server, dialing(limits=ServerLimits(idle_s=0.01)) as dialer:
        lost = asyncio.Event()
        dialer.on_connection_lost(lambda _: lost.set())
        await dialer.connection(address_of(server))
        await lost.wait()


async def test_told_to_go_away_a_call_is_repeated_on_a_new_connection() -> None:
    """The old server drains while its successor already listens on the same port."""
    old_service, new_service = EchoService(), EchoService()
    old, new = Server(old_service.routes()), Server(new_service.routes())
    await old.start("127.0.0.1", 0)
    async with dialing() as dialer:
        address = address_of(old)
        long_call = asyncio.create_task(dialer.call(address, Wait(number=1), 30))
        await old_service.wait_arrived(1)
        stopping = asyncio.create_task(old.stop())
        await asyncio.sleep(0)
        await new.start(*old.address)
        assert (await dialer.call(address, Echo(text="hello"), 60)).text == "hello"
        assert (len(old_service.callers), len(new_service.callers)) == (0, 1)
        old_service.release(1)
        assert (await long_call).text == "1", "a call under way ends where it began"
        await stopping
        await turn_until(lambda: dialer.statistics().connections == 1)
    await new.stop()


async def test_told_to_go_away_twice_the_call_fails() -> None:
    service = EchoService()
    async with serving(service) as server, dialing() as dialer:
        server._group.is_draining = True
        with pytest.raises(Refused, match="please go away"):
            await dialer.call(address_of(server), Echo(), 60)
        assert server.statistics().go_away_answers == 2


async def test_requests_are_prepared() -> None:
    def sign(frame: Frame) -> None:
        frame.ext["text"] += " (signed)"

    async with serving(EchoService()) as server, dialing(new_signer=lambda: sign) as dialer:
        assert (await dialer.call(address_of(server), Echo(text="x"), 60)).text == "x (signed)"


async def test_closing_ends_calls_attempts_and_connections(silent_address: str) -> None:
    service = EchoService()
    async with serving(service) as server, dialing() as dialer:
        call = asyncio.create_task(dialer.call(address_of(server), Wait(number=1), 30))
        attempt = asyncio.create_task(dialer.connection(silent_address))
        await service.wait_arrived(1)
        await dialer.close()
        with pytest.raises(ConnectionLost, match="closed by this side"):
            await call
        with pytest.raises(ConnectFailed, match="the dialer was closed"):
            await attempt
        with pytest.raises(StateError):
            await dialer.connection(address_of(server))
        assert "closed" in repr(dialer)
