"""A server on a real socket: what it accepts, how it ends."""

import asyncio
import socket

import pytest
from tests.support.echo_service import Echo, EchoAnswer, EchoService, Large, Note, Wait
from tests.support.loop import turn_until
from tests.support.serving import address_of, dialing, serving
from tests.support.wire_client import WireClient

from pyromq.clock import ManualClock
from pyromq.errors import ConnectionLost, StateError
from pyromq.protocol.catalogue import CLIENT, encode_request
from pyromq.protocol.frame import Frame, HeaderForm
from pyromq.protocol.framing import encode_frame
from pyromq.remoting.connection import Connection
from pyromq.remoting.ports import Ports
from pyromq.remoting.routing import Caller, Routes, handles
from pyromq.remoting.server import Server, ServerLimits


async def test_requests_are_answered_over_a_socket() -> None:
    service = EchoService()
    async with serving(service) as server, await WireClient.connect(server.address) as client:
        answer = await client.call(encode_request(Echo(text="hi", body=b"there"), 5, form=HeaderForm.BINARY))
        assert (answer.opaque, answer.ext["text"], answer.body) == (5, "hi", b"there")
        assert answer.form == HeaderForm.BINARY
        assert service.callers == [client.address]


async def test_a_frame_may_arrive_byte_by_byte() -> None:
    data = encode_frame(encode_request(Echo(text="slow", body=bytes(50)), 1))
    async with serving(EchoService()) as server, await WireClient.connect(server.address) as client:
        for position in range(len(data)):
            client.write(data[position : position + 1])
            await asyncio.sleep(0)
        assert (await client.frame()).ext["text"] == "slow"


class Talker:
    """The client's side of a duplex connection."""

    @handles(Echo)
    def echo(self, request: Echo, caller: Caller) -> EchoAnswer:
        return EchoAnswer(text=f"client says {request.text}", body=b"")


async def test_both_sides_call_each_other_on_one_connection() -> None:
    async with serving(EchoService()) as server, dialing(routes=Routes(Talker(), serving=CLIENT)) as dialer:
        ours = await dialer.connection(address_of(server))
        assert (await ours.call(Echo(text="up"), 60)).text == "up"
        (theirs,) = server.connections
        down, up = await asyncio.gather(theirs.call(Echo(text="down"), 60), ours.call(Echo(text="again"), 60))
        assert (down.text, up.text) == ("client says down", "again")
        assert theirs.peer_address == ours.local_address


async def test_large_bodies_travel_both_ways() -> None:
    async with serving(EchoService()) as server, dialing() as dialer:
        body = bytes(range(256)) * 40_000
        answer = await dialer.call(address_of(server), Echo(text="", body=body), 60)
        assert answer.body == body


async def test_much_in_both_directions_does_not_block_itself() -> None:
    async with serving(EchoService()) as server, dialing() as dialer:
        body = bytes(1_000_000)
        calls = (dialer.call(address_of(server), Echo(text=str(n), body=body), 100) for n in range(150))
        answers = await asyncio.gather(*calls)
        assert [answer.text for answer in answers] == [str(n) for n in range(150)]


async def test_many_oneways_wait_for_each_other() -> None:
    service = EchoService()
    limits = ServerLimits(max_unsent_bytes_per_connection=1_000_000)
    async with serving(service) as server, dialing(limits=limits) as dialer:
        for number in range(200):
            await dialer.send_oneway(address_of(server), Note(text=f"{number}" + "x" * 100_000))
        await turn_until(lambda: len(service.notes) == 200)
        assert dialer.statistics().closed_for_not_reading == 0


async def test_many_calls_share_a_connection() -> None:
    async with serving(EchoService()) as server, dialing() as dialer:
        address = address_of(server)
        answers = await asyncio.gather(*(dialer.call(address, Echo(text=str(n)), 60) for n in range(500)))
        assert [answer.text for answer in answers] == [str(n) for n in range(500)]
        assert server.statistics().opened == 1


async def test_sockets_have_the_options_that_latency_needs() -> None:
    server = Server(EchoService().routes())
    await server.listen(Ports().listen("127.0.0.1", 0, receive_buffer_bytes=65_536, send_buffer_bytes=65_536))
    async with await WireClient.connect(server.address) as client:
        await client.call(encode_request(Echo(), 1))
        (connection,) = server.connections
        accepted = connection._outbox.transport.get_extra_info("socket")
        assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        # The kernel doubles what it is asked for.
        assert accepted.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) == 131_072
    await server.stop()


async def test_a_port_can_be_used_again_at_once() -> None:
    first = Server(EchoService().routes())
    await first.start("127.0.0.1", 0)
    async with await WireClient.connect(first.address) as client:
        await client.call(encode_request(Echo(), 1))
        await first.stop()  # the server closes first: its side waits in TIME_WAIT
        await client.wait_closed()
    second = Server(EchoService().routes())
    await second.start(*first.address)
    assert second.address == first.address
    await second.stop()


async def test_a_taken_port_is_an_error_and_leaks_nothing() -> None:
    async with serving(EchoService()) as server:
        other = Server(EchoService().routes())
        with pytest.raises(OSError, match="in use"):
            await other.start(*server.address)
        with pytest.raises(StateError):
            _ = other.address


async def test_ipv6_is_served() -> None:
    if not socket.has_ipv6:
        pytest.skip("this machine has no IPv6")
    service = EchoService()
    try:
        async with serving(service, host="::1") as server, dialing() as dialer:
            assert address_of(server).startswith("[::1]:")
            await dialer.call(address_of(server), Echo(), 60)
            assert service.callers[0].startswith("[::1]:")
    except OSError as problem:
        pytest.skip(f"IPv6 is switched off here: {problem}")


async def test_connections_beyond_the_limit_are_closed_at_once() -> None:
    async with serving(EchoService(), limits=ServerLimits(max_connections=2)) as server:
        first = await WireClient.connect(server.address)
        await first.call(encode_request(Echo(), 1))
        second = await WireClient.connect(server.address)
        await second.call(encode_request(Echo(), 1))
        third = await WireClient.connect(server.address)
        await third.wait_closed()
        assert server.statistics().rejected == 1
        await first.close()
        await turn_until(lambda: len(server.connections) == 1)
        fourth = await WireClient.connect(server.address)
        assert (await fourth.call(encode_request(Echo(), 1))).code == 0
        for client in (second, third, fourth):
            await client.close()


async def test_the_owner_learns_of_every_connection_that_ends() -> None:
    lost: asyncio.Queue[Connection] = asyncio.Queue()
    async with serving(EchoService()) as server:
        server.on_connection_lost(lost.put_nowait)
        client = await WireClient.connect(server.address)
        await client.call(encode_request(Echo(), 1))
        (connection,) = server.connections
        await client.close()
        assert await lost.get() is connection
        assert not connection.is_open
        assert len(server.connections) == 0
        with pytest.raises(ConnectionLost, match="the peer closed the connection"):
            connection.send_oneway(Note(text="too late"))


async def test_silent_connections_are_closed_after_the_idle_time() -> None:
    clock = ManualClock()
    async with serving(EchoService(), clock=clock) as server:
        never_spoke = await WireClient.connect(server.address)
        spoke = await WireClient.connect(server.address)
        await spoke.call(encode_request(Echo(), 1))
        speaking = await WireClient.connect(server.address)
        await speaking.call(encode_request(Echo(), 1))
        clock.advance(60)
        server.close_idle()
        await speaking.call(encode_request(Echo(), 1))
        clock.advance(60)
        server.close_idle()
        await speaking.call(encode_request(Echo(), 1))
        clock.advance(60)
        server.close_idle()
        await never_spoke.wait_closed()
        await spoke.wait_closed()
        assert (await speaking.call(encode_request(Echo(), 1))).code == 0
        for client in (never_spoke, spoke, speaking):
            await client.close()


async def test_idle_connections_are_looked_for_without_being_told() -> None:
    async with (
        serving(EchoService(), limits=ServerLimits(idle_s=0.01)) as server,
        await WireClient.connect(server.address) as client,
    ):
        await client.wait_closed()


async def test_stopping_finishes_what_is_in_flight_and_sends_others_away() -> None:
    service = EchoService()
    server = Server(service.routes())
    await server.start("127.0.0.1", 0)
    busy, other, old = [await WireClient.connect(server.address) for _ in range(3)]
    await other.call(encode_request(Echo(), 1))
    await old.call(encode_request(Echo(), 1))
    busy.send(encode_request(Wait(number=1), 9))
    await service.wait_arrived(1)
    stopping = asyncio.create_task(server.stop(grace_s=30))
    await asyncio.sleep(0)
    away = await other.call(encode_request(Echo(), 2))
    assert (away.code, away.remark) == (1500, "please go away: this server is stopping")
    assert (await old.call(encode_request(Echo(), 2, version=401))).code == 0
    with pytest.raises(OSError):
        await WireClient.connect(server.address)
    assert not stopping.done()
    service.release(1)
    assert (await busy.frame()).opaque == 9
    await stopping
    for client in (busy, other, old):
        assert await client.wait_closed() == []
        await client.close()
    assert server.statistics().connections == 0


async def test_stopping_does_not_wait_longer_than_the_grace() -> None:
    service = EchoService()
    server = Server(service.routes())
    await server.start("127.0.0.1", 0)
    client = await WireClient.connect(server.address)
    client.send(encode_request(Wait(number=1), 9))
    await service.wait_arrived(1)
    await server.stop(grace_s=0)
    (answer,) = await client.wait_closed()
    assert (answer.code, answer.remark) == (1, "the request was cancelled")
    await client.close()
    await server.stop()  # once more does no harm


async def test_stopping_does_not_wait_for_a_peer_that_never_reads() -> None:
    service = EchoService()
    server = Server(service.routes())
    await server.start("127.0.0.1", 0)
    client = await WireClient.connect(server.address)
    client._writer.transport.pause_reading()  # type: ignore[attr-defined]
    client.send(*(encode_request(Large(size_bytes=8_000_000), n) for n in range(4)))
    await turn_until(lambda: any(connection.unsent_bytes for connection in server.connections))
    await server.stop()
    assert server.statistics().connections == 0
    await client.close()


async def test_a_server_says_what_it_is() -> None:
    async with serving(EchoService()) as server:
        assert repr(server).startswith(
            f"<Server 127.0.0.1:{server.address[1]} <ConnectionGroup connections=0"
        )
        async with await WireClient.connect(server.address) as client:
            await client.call(Frame(29_999))
            statistics = server.statistics()
            assert (statistics.connections, statistics.frames_read, statistics.unsupported_requests) == (
                1,
                1,
                1,
            )
