"""Plain and TLS connections on one port, certificates that change, and what proxies put in front."""

import asyncio
import logging
import os
import random
import ssl
from pathlib import Path

import pytest
from tests.support.certificates import Authority, CertificateFiles
from tests.support.echo_service import Echo, EchoService, Large
from tests.support.loop import turn_until
from tests.support.serving import address_of, dialing, serving
from tests.support.wire_client import WireClient

from pyromq.clock import ManualClock
from pyromq.errors import ConfigError, ConnectFailed, TransportError
from pyromq.protocol.catalogue import encode_request
from pyromq.protocol.framing import encode_frame
from pyromq.remoting.networks import Networks
from pyromq.remoting.server import Server, ServerLimits
from pyromq.remoting.tls import ClientAuth, TlsClient, TlsMode, TlsOptions, TlsServer


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


def offering(files: CertificateFiles, mode: TlsMode = "permissive", **options: object) -> TlsServer:
    return TlsServer(mode=mode, certificate_path=files.certificate, key_path=files.key, **options)  # type: ignore[arg-type]


async def peer_certificate(server: Server, authority: Authority) -> str:
    """The name in the certificate that a new connection is shown."""
    context = ssl.create_default_context(cafile=authority.trust)
    context.check_hostname = False
    async with await WireClient.connect(server.address, ssl=context) as client:
        await client.call(encode_request(Echo(), 1))
        shown = client._writer.get_extra_info("peercert")
        return str(dict(pair for rdn in shown["subject"] for pair in rdn)["commonName"])


def has_spoken(server: Server) -> bool:
    """Whether a pending connection has sent something."""
    return any(connection._has_spoken for connection in server._handshake.pending)


async def test_one_port_serves_plain_and_tls(authority: Authority) -> None:
    tls = offering(authority.issue("server"))
    verifying = TlsOptions(trust_path=authority.trust, verify=True)
    async with (
        serving(EchoService(), tls=tls) as server,
        dialing() as plain,
        dialing(tls=verifying) as secure,
    ):
        for dialer in (plain, secure):
            assert (await dialer.call(address_of(server), Echo(text="hi"), 60)).text == "hi"
            large = await dialer.call(address_of(server), Large(size_bytes=5_000_000), 60)
            assert large.body == bytes(5_000_000)


async def test_many_calls_in_flight_over_tls(authority: Authority) -> None:
    tls = offering(authority.issue("server"))
    async with serving(EchoService(), tls=tls) as server, dialing(tls=TlsOptions()) as dialer:
        body = random.randbytes(10_000)
        calls = (dialer.call(address_of(server), Echo(text=str(n), body=body), 60) for n in range(300))
        answers = await asyncio.gather(*calls)
        assert [answer.text for answer in answers] == [str(n) for n in range(300)]
        assert all(answer.body == body for answer in answers)


@pytest.mark.parametrize(
    ("mode", "plain_works", "tls_works"),
    [("disabled", True, False), ("permissive", True, True), ("enforcing", False, True)],
)
async def test_the_mode_decides_who_may_enter(
    authority: Authority, mode: TlsMode, plain_works: bool, tls_works: bool
) -> None:
    tls = offering(authority.issue("server"), mode)
    async with (
        serving(EchoService(), tls=tls) as server,
        dialing() as plain,
        dialing(tls=TlsOptions()) as secure,
    ):
        for dialer, works in ((plain, plain_works), (secure, tls_works)):
            if works:
                assert (await dialer.call(address_of(server), Echo(text="in"), 60)).text == "in"
            else:
                with pytest.raises(TransportError):
                    await dialer.call(address_of(server), Echo(), 60)
        assert server.statistics().rejected == [plain_works, tls_works].count(False)


async def test_a_server_without_tls_is_named_as_what_it_may_be(authority: Authority) -> None:
    tls = offering(authority.issue("server"), "disabled")
    async with serving(EchoService(), tls=tls) as server, dialing(tls=TlsOptions()) as secure:
        with pytest.raises(ConnectFailed, match="does it have TLS"):
            await secure.connection(address_of(server))


async def test_without_files_there_is_no_tls() -> None:
    tls = TlsServer()
    assert tls.context() is None
    assert repr(tls) == "<TlsServer permissive without a certificate client_auth=none>"
    async with serving(EchoService(), tls=tls) as server, dialing(tls=TlsOptions()) as secure:
        with pytest.raises(TransportError):
            await secure.call(address_of(server), Echo(), 60)
    with pytest.raises(ConfigError, match=r"tls\.server\.certPath"):
        TlsServer(mode="enforcing")


@pytest.mark.parametrize(
    ("client_auth", "with_certificate", "works"),
    [
        ("none", False, True),
        ("optional", False, True),
        ("optional", True, True),
        ("require", False, False),
        ("require", True, True),
    ],
)
async def test_clients_show_their_certificate_when_asked(
    authority: Authority, client_auth: ClientAuth, with_certificate: bool, works: bool
) -> None:
    tls = offering(
        authority.issue("server"), "enforcing", trust_path=authority.trust, client_auth=client_auth
    )
    ours = authority.issue("client")
    client = TlsOptions(
        certificate_path=ours.certificate if with_certificate else None,
        key_path=ours.key if with_certificate else None,
    )
    async with serving(EchoService(), tls=tls) as server, dialing(tls=client) as dialer:
        if works:
            assert (await dialer.call(address_of(server), Echo(text="in"), 60)).text == "in"
        else:
            with pytest.raises(TransportError):
                await dialer.call(address_of(server), Echo(), 60)
            assert server.statistics().connections == 0


@pytest.mark.parametrize("client_auth", ["optional", "require"])
async def test_a_strangers_certificate_is_not_accepted(
    authority: Authority, tmp_path: Path, client_auth: ClientAuth
) -> None:
    tls = offering(
        authority.issue("server"), "enforcing", trust_path=authority.trust, client_auth=client_auth
    )
    (tmp_path / "elsewhere").mkdir()
    stranger = Authority(tmp_path / "elsewhere").issue("stranger")
    client = TlsOptions(certificate_path=stranger.certificate, key_path=stranger.key)
    async with serving(EchoService(), tls=tls) as server, dialing(tls=client) as dialer:
        with pytest.raises(TransportError):
            await dialer.call(address_of(server), Echo(), 60)


def test_asking_for_certificates_needs_something_to_check_them_against(authority: Authority) -> None:
    with pytest.raises(ConfigError, match=r"tls\.server\.trustCertPath"):
        offering(authority.issue("server"), client_auth="require")


async def test_a_verifying_client_does_not_trust_a_stranger(authority: Authority, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    stranger = Authority(tmp_path / "elsewhere")
    verifying = TlsOptions(trust_path=stranger.trust, verify=True)
    async with serving(EchoService(), tls=offering(authority.issue("server"))) as server:
        async with dialing(tls=verifying) as dialer:
            with pytest.raises(ConnectFailed, match="certificate verify failed"):
                await dialer.connection(address_of(server))
        async with await WireClient.connect(server.address) as client:
            assert (await client.call(encode_request(Echo(), 1))).code == 0


async def test_a_key_may_have_a_password(authority: Authority) -> None:
    files = authority.issue("server", password="open sesame")
    async with serving(EchoService(), tls=offering(files, key_password="open sesame")) as server:
        assert await peer_certificate(server, authority) == "server"
    for wrong in ("guess", None):
        with pytest.raises(ConfigError, match="a PEM certificate that matches the key"):
            offering(files, key_password=wrong)


@pytest.mark.parametrize("broken", ["certificate", "key", "trust"])
def test_files_that_cannot_be_used_stop_the_start(authority: Authority, tmp_path: Path, broken: str) -> None:
    files = authority.issue("server")
    nonsense = tmp_path / "nonsense.pem"
    nonsense.write_text("nonsense")
    with pytest.raises(ConfigError, match="nonsense"):
        TlsServer(
            certificate_path=nonsense if broken == "certificate" else files.certificate,
            key_path=nonsense if broken == "key" else files.key,
            trust_path=nonsense if broken == "trust" else authority.trust,
            client_auth="require",
        )


async def test_changed_files_are_read_again_and_old_connections_go_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    clock, authority = ManualClock(), Authority(tmp_path)
    files = authority.issue("server")
    tls = offering(files, clock=clock)
    async with serving(EchoService(), tls=tls) as server, dialing(tls=TlsOptions()) as dialer:
        await dialer.call(address_of(server), Echo(), 60)
        renewed = authority.issue("renewed")

        # Only one of the two files has been replaced so far: they do not fit, and nothing changes.
        os.replace(renewed.key, files.key)
        clock.advance(1)
        with caplog.at_level(logging.WARNING):
            assert await peer_certificate(server, authority) == "server"
        assert "keeping the old ones" in caplog.text
        assert tls.failed_reloads == 1

        os.replace(renewed.certificate, files.certificate)
        assert await peer_certificate(server, authority) == "server", "looked at the files too often"
        clock.advance(1)
        assert await peer_certificate(server, authority) == "renewed"
        assert (tls.reloads, tls.failed_reloads) == (1, 1)

        assert (await dialer.call(address_of(server), Echo(text="still"), 60)).text == "still"
        assert dialer.statistics().opened == 1

        files.certificate.unlink()
        clock.advance(1)
        assert await peer_certificate(server, authority) == "renewed"


async def test_a_handshake_that_does_not_end_is_ended(authority: Authority) -> None:
    clock = ManualClock()
    limits = ServerLimits(handshake_s=10)
    tls = offering(authority.issue("server"))
    async with (
        serving(EchoService(), tls=tls, clock=clock, limits=limits) as server,
        await WireClient.connect(server.address) as slow,
    ):
        slow.write(b"\x16\x03\x01\x02\x00\x01")
        await turn_until(
            lambda: server._handshake.pending and next(iter(server._handshake.pending))._has_spoken
        )
        clock.advance(10)
        server.close_idle()
        await slow.wait_closed()
        await turn_until(lambda: server.statistics().pending == 0)
        assert server.statistics().rejected == 1


@pytest.mark.parametrize("garbage", [b"\x16" + b"\xff" * 300, b"\x16\x03\x01\x00\x02xx", b"\x16"])
async def test_what_only_looks_like_tls_is_closed(authority: Authority, garbage: bytes) -> None:
    async with serving(EchoService(), tls=offering(authority.issue("server"))) as server:
        async with await WireClient.connect(server.address) as client:
            client.write(garbage)
            client._writer.write_eof()
            await client.wait_closed()
        await turn_until(lambda: server.statistics().pending == 0)
        async with await WireClient.connect(server.address) as client:
            assert (await client.call(encode_request(Echo(), 1))).code == 0


async def test_garbage_inside_tls_closes_the_connection(authority: Authority) -> None:
    async with (
        serving(EchoService(), tls=offering(authority.issue("server"))) as server,
        await WireClient.connect(server.address, ssl=TlsClient(TlsOptions()).context()) as client,
    ):
        client.write(encode_frame(encode_request(Echo(text="whole"), 1)) + b"\xff" * 100)
        (answer,) = await client.wait_closed()
        assert answer.ext["text"] == "whole"
        assert server.statistics().closed_for_bad_input == 1


async def test_back_pressure_works_through_tls(authority: Authority) -> None:
    async with (
        serving(EchoService(), tls=offering(authority.issue("server"))) as server,
        await WireClient.connect(server.address, ssl=TlsClient(TlsOptions()).context()) as client,
    ):
        client._writer.transport.pause_reading()  # type: ignore[attr-defined]
        client.send(*(encode_request(Large(size_bytes=1_000_000), n) for n in range(100)))
        await turn_until(lambda: any(connection._pause_reasons for connection in server.connections))
        (connection,) = server.connections
        assert connection.unsent_bytes < 10_000_000
        client._writer.transport.resume_reading()  # type: ignore[attr-defined]
        assert [frame.opaque for frame in await client.frames(100)] == list(range(100))


# Preambles

TRUSTED = Networks.parse("192.0.2.0/24, 127.0.0.1", key="proxyProtocolTrustedAddresses")
FROM_A_PROXY = b"PROXY TCP4 192.0.2.7 192.0.2.8 4321 9876\r\n"


@pytest.mark.parametrize("with_tls", [False, True])
@pytest.mark.parametrize(
    "preamble",
    [
        b"PROXY TCP4 192.0.2.7 192.0.2.8 4321 9876\r\n",
        b"\r\n\r\n\x00\r\nQUIT\n\x21\x11\x00\x0c\xc0\x00\x02\x07\xc0\x00\x02\x08\x10\xe1\x26\x94",
    ],
)
@pytest.mark.parametrize("cut", [1, 14, None])
async def test_a_proxy_tells_where_a_connection_comes_from(
    authority: Authority, preamble: bytes, with_tls: bool, cut: int | None
) -> None:
    service = EchoService()
    async with (
        serving(service, tls=offering(authority.issue("server")), trusted_proxies=TRUSTED) as server,
        await WireClient.connect(server.address) as client,
    ):
        client.write(preamble[:cut])
        if cut is not None:
            await turn_until(lambda: has_spoken(server))
            client.write(preamble[cut:])
        if with_tls:
            await client.start_tls(TlsClient(TlsOptions()).context())
        assert (await client.call(encode_request(Echo(text="hi"), 1))).ext["text"] == "hi"
        assert service.callers == ["192.0.2.7:4321"]


async def test_a_proxy_may_not_know_where_a_connection_comes_from() -> None:
    service = EchoService()
    async with (
        serving(service, trusted_proxies=TRUSTED) as server,
        await WireClient.connect(server.address) as client,
    ):
        client.write(b"PROXY UNKNOWN\r\n")
        await client.call(encode_request(Echo(), 1))
        assert service.callers == [client.address]


@pytest.mark.parametrize(
    "preamble", [b"PROXY nonsense\r\n", b"GET / HTTP/1.1\r\n\r\n", b"PROXY " + b"x" * 5000]
)
async def test_a_bad_preamble_closes_the_connection(preamble: bytes) -> None:
    async with (
        serving(EchoService(), trusted_proxies=TRUSTED) as server,
        await WireClient.connect(server.address) as client,
    ):
        client.write(preamble)
        assert await client.wait_closed() == []


async def test_a_preamble_that_does_not_end_is_ended() -> None:
    clock = ManualClock()
    async with (
        serving(EchoService(), clock=clock, trusted_proxies=TRUSTED) as server,
        await WireClient.connect(server.address) as slow,
    ):
        slow.write(b"PROXY TCP4 ")
        await turn_until(lambda: has_spoken(server))
        clock.advance(10)
        server.close_idle()
        await slow.wait_closed()


@pytest.mark.parametrize("trusted", ["", "192.0.2.0/24", "127.0.0.2", "::1"])
@pytest.mark.parametrize("preamble", [b"P", FROM_A_PROXY, b"\r\n\r\n\x00\r\nQUIT\n"])
async def test_nobody_else_may_tell_where_a_connection_comes_from(
    trusted: str, preamble: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    service = EchoService()
    async with serving(service, trusted_proxies=Networks.parse(trusted, key="k")) as server:
        for _ in range(3):
            async with await WireClient.connect(server.address) as client:
                client.write(preamble)
                assert await client.wait_closed() == []
        assert server.statistics().rejected == 3
    assert service.callers == []
    warnings = [record for record in caplog.records if record.levelname == "WARNING"]
    assert len(warnings) == 1
    assert "proxyProtocolTrustedAddresses" in warnings[0].getMessage()


async def test_without_being_told_otherwise_a_server_trusts_no_proxy() -> None:
    async with serving(EchoService()) as server, await WireClient.connect(server.address) as client:
        client.write(FROM_A_PROXY)
        assert await client.wait_closed() == []


@pytest.mark.parametrize(("trusted", "is_believed"), [("127.0.0.1", True), ("::1", False)])
async def test_a_proxy_that_comes_in_ipv6s_clothes_is_known_by_its_ipv4_address(
    trusted: str, is_believed: bool
) -> None:
    service = EchoService()
    async with (
        serving(service, host="::", trusted_proxies=Networks.parse(trusted, key="k")) as server,
        await WireClient.connect(("127.0.0.1", server.address[1])) as client,
    ):
        client.write(FROM_A_PROXY)
        if is_believed:
            await client.call(encode_request(Echo(text="hi"), 1))
        else:
            assert await client.wait_closed() == []
    assert service.callers == (["192.0.2.7:4321"] if is_believed else [])
