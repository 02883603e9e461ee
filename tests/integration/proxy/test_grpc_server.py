"""Our gRPC server under C-core's client, the same that most languages use."""

import asyncio
import contextlib
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
from tests.conftest import ErrorLogs
from tests.support.certificates import Authority
from tests.support.echo_service import Echo
from tests.support.grpc_echo import Text, echo_client, echo_port

from pyromq.http2 import frames, hpack
from pyromq.proxy.grpc.server import GrpcServer
from pyromq.remoting.dialer import Dialer
from pyromq.remoting.limits import ServerLimits
from pyromq.remoting.tls import TlsOptions, TlsServer


def small_messages(methods: Any) -> GrpcServer:
    return GrpcServer(methods, max_message_bytes=1000)


async def _error_of(call: Any) -> grpc.aio.AioRpcError:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return caught.value


async def test_a_call_is_answered_and_sees_its_metadata() -> None:
    async with echo_port() as port, echo_client(port.target) as client:
        answer = await client.once()(Text(name="hello"), metadata=[("x-note", "seen")], timeout=5)
        assert (answer.name, answer.resource_namespace) == ("hello", "seen")


async def test_many_calls_share_a_connection() -> None:
    async with echo_port() as port, echo_client(port.target) as client:
        answers = await asyncio.gather(*(client.once()(Text(name=str(number))) for number in range(500)))
        assert [each.name for each in answers] == [str(number) for number in range(500)]
        assert len(port.grpc_server) == 1


@pytest.mark.parametrize("size", [0, 100_000, 5_000_000])
async def test_messages_of_any_size_go_both_ways(size: int) -> None:
    async with echo_port() as port, echo_client(port.target) as client:
        answer = await client.once()(Text(name="x" * size))
        assert len(answer.name) == size


async def test_an_error_has_its_code_and_its_text() -> None:
    async with echo_port() as port, echo_client(port.target) as client:
        error = await _error_of(client.once("Fail")(Text(name="naïve 100% of “it”\n")))
        assert error.code() == grpc.StatusCode.INVALID_ARGUMENT
        assert error.details() == "naïve 100% of “it”\n"


async def test_a_bug_is_logged_and_answered(error_logs: ErrorLogs) -> None:
    async with echo_port() as port, echo_client(port.target) as client:
        error = await _error_of(client.once("Break")(Text()))
        assert (error.code(), error.details()) == (grpc.StatusCode.INTERNAL, "ValueError: a bug")
        error_logs.expect("a gRPC call failed")


def impatient(methods: Any) -> GrpcServer:
    return GrpcServer(methods, limits=ServerLimits(idle_s=0.4))


async def test_a_peer_that_gives_no_sign_of_life_loses_its_stream() -> None:
    opened = hpack.encode(
        [
            (b":method", b"POST"),
            (b":scheme", b"http"),
            (b":path", b"/echo/Both"),
            (b"content-type", b"application/grpc"),
        ]
    )
    async with echo_port(make=impatient) as port, asyncio.timeout(10):
        reader, writer = await asyncio.open_connection(*port.server.address)
        writer.write(frames.PREFACE + frames.frame(frames.SETTINGS, 0, 0, b""))
        writer.write(frames.frame(frames.HEADERS, frames.END_HEADERS, 1, opened))
        await port.calls.waiting.wait()
        sent = b""
        with contextlib.suppress(ConnectionResetError):
            while more := await reader.read(65536):
                sent += more
        assert frames.frame(frames.PING, 0, 0, bytes(8)) in sent
        assert len(port.grpc_server) == 0
        writer.close()


async def test_an_unknown_method_is_not_implemented() -> None:
    async with echo_port() as port, echo_client(port.target) as client:
        error = await _error_of(client.once("Else")(Text()))
        assert error.code() == grpc.StatusCode.UNIMPLEMENTED


async def test_a_message_that_is_too_large_is_refused_and_the_connection_goes_on() -> None:
    async with echo_port(make=small_messages) as port, echo_client(port.target) as client:
        error = await _error_of(client.once()(Text(name="x" * 200_000)))
        assert error.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
        assert "at most 1000" in error.details()
        assert (await client.once()(Text(name="small"))).name == "small"


async def test_compressed_messages_are_not_implemented() -> None:
    async with echo_port() as port, echo_client(port.target) as client:
        call = client.once()(Text(name="x" * 10_000), compression=grpc.Compression.Gzip)
        assert (await _error_of(call)).code() == grpc.StatusCode.UNIMPLEMENTED


async def test_a_deadline_ends_the_handler() -> None:
    async with echo_port() as port, echo_client(port.target) as client:
        error = await _error_of(client.once("Wait")(Text(), timeout=0.2))
        assert error.code() == grpc.StatusCode.DEADLINE_EXCEEDED
        await port.calls.cancelled.wait()


async def test_a_cancelled_call_ends_the_handler() -> None:
    async with echo_port() as port, echo_client(port.target) as client:
        call = client.once("Wait")(Text())
        await port.calls.waiting.wait()
        call.cancel()
        await port.calls.cancelled.wait()


async def test_a_lost_client_ends_its_handlers() -> None:
    async with echo_port() as port:
        async with echo_client(port.target) as client:
            call = client.once("Wait")(Text())
            await port.calls.waiting.wait()
        await port.calls.cancelled.wait()
        assert call.done()


async def test_a_stream_of_answers_waits_for_a_slow_reader() -> None:
    async with echo_port() as port, echo_client(port.target) as client:
        call = client.many()(Text(name="200 50000"))
        names = [each.name async for each in call]
        assert names == [str(number) for number in range(200)]


async def test_streams_of_both_sides_interleave() -> None:
    async with echo_port() as port, echo_client(port.target) as client:
        call = client.both()()
        for word in ("one", "two"):
            await call.write(Text(name=word))
            assert (await call.read()).name == word.upper()
        await call.done_writing()
        assert await call.read() == grpc.aio.EOF
        assert await call.code() == grpc.StatusCode.OK


async def test_tls_cleartext_and_our_own_protocol_share_a_port(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    files = authority.issue("server", host="localhost")
    tls = TlsServer(certificate_path=files.certificate, key_path=files.key, offers_http2=True)
    async with echo_port(tls=tls) as port:
        target = f"localhost:{port.server.address[1]}"
        trust = authority.trust.read_bytes()
        async with echo_client(target, trust) as secure, echo_client(port.target) as plain:
            assert (await secure.once()(Text(name="secure"))).name == "secure"
            assert (await plain.once()(Text(name="plain"))).name == "plain"
            assert len(port.grpc_server) == 2
        for options in (None, TlsOptions()):
            dialer = Dialer(tls=options)
            assert (await dialer.call(port.target, Echo(text="own"), 5)).text == "own"
            await dialer.close()


async def test_a_stopping_server_ends_streams_and_finishes_calls() -> None:
    async with echo_port() as port, echo_client(port.target) as client:
        stream = client.both()()
        await port.calls.waiting.wait()
        port.calls.waiting.clear()
        unary = client.once("Wait")(Text(name="last"))
        await port.calls.waiting.wait()
        stopping = asyncio.create_task(port.grpc_server.stop(5))
        assert await stream.code() == grpc.StatusCode.UNAVAILABLE
        port.calls.release.set()
        assert (await unary).name == "last"
        await stopping
        assert len(port.grpc_server) == 0
