"""What somebody tries who can reach a port and has seen traffic: old TLS, foreign and expired certificates,
replays, and the address of somebody else.
"""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.support.access import ROOT, SECURE, client, is_refused
from tests.support.broker_cluster import TOPIC, message, running_broker
from tests.support.certificates import Authority, CertificateFiles
from tests.support.signing import signer
from tests.support.wire_client import WireClient

from pyromq.broker.broker import Broker
from pyromq.errors import TransportError
from pyromq.protocol.catalogue import encode_request
from pyromq.protocol.codes import ResponseCode
from pyromq.protocol.frame import HeaderForm
from pyromq.protocol.framing import encode_frame
from pyromq.protocol.requests.settings import GetBrokerConfig
from pyromq.remoting.tls import TlsOptions
from pyromq.security.signature import Credentials

UNIQUE = {"UNIQ_KEY": "A1"}
OLD_VERSIONS = (ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1)


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@asynccontextmanager
async def tls_broker(authority: Authority, root: Path, **settings: Any) -> AsyncIterator[Broker]:
    files = authority.issue("server")
    chosen: dict[str, Any] = {
        **SECURE,
        "tls_mode": "enforcing",
        "tls_cert_path": files.certificate,
        "tls_key_path": files.key,
        "tls_trust_cert_path": authority.trust,
    }
    async with running_broker(root, **chosen | settings) as broker:
        async with client(broker.address, ROOT, tls=options(authority, authority.issue("root"))) as root_user:
            await root_user.create_topic()
        yield broker


def options(authority: Authority, files: CertificateFiles | None = None) -> TlsOptions:
    return TlsOptions(
        certificate_path=None if files is None else files.certificate,
        key_path=None if files is None else files.key,
        trust_path=authority.trust,
        verify=True,
    )


def old_client(version: ssl.TLSVersion) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_ciphers("ALL:@SECLEVEL=0")  # else it would not even offer the old version
    context.minimum_version, context.maximum_version = ssl.TLSVersion.MINIMUM_SUPPORTED, version
    return context


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion:DeprecationWarning")
@pytest.mark.parametrize("version", OLD_VERSIONS, ids=lambda version: version.name)
async def test_versions_of_tls_before_1_2_are_refused(
    authority: Authority, tmp_path: Path, version: ssl.TLSVersion
) -> None:
    async with tls_broker(authority, tmp_path / "store") as broker:
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await WireClient.connect(broker.address, ssl=old_client(version))
        newer = old_client(ssl.TLSVersion.TLSv1_2)
        async with await WireClient.connect(broker.address, ssl=newer) as wire:
            answer = await wire.call(encode_request(GetBrokerConfig(), 1))
            assert answer.code == ResponseCode.NO_PERMISSION


async def test_with_required_certificates_only_those_of_our_authority_that_have_not_expired_enter(
    authority: Authority, tmp_path: Path
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    foreign = Authority(elsewhere).issue("root")
    expired = authority.issue("late", is_expired=True)
    settings = {"tls_client_auth": "require", "certificate_users": "*"}
    async with tls_broker(authority, tmp_path / "store", **settings) as broker:
        for shown in (None, foreign, expired):
            async with client(broker.address, ROOT, tls=options(authority, shown)) as stranger:
                with pytest.raises(TransportError):
                    await stranger.send(properties=UNIQUE)
        # One whose name is not a user's enters, and may do nothing without a signature.
        async with client(broker.address, tls=options(authority, authority.issue("guest"))) as guest:
            assert await is_refused(guest, message(properties=UNIQUE))
        async with client(broker.address, tls=options(authority, authority.issue("root"))) as root:
            await root.send(properties=UNIQUE)
        assert broker.store.queues.max_offset(TOPIC, 0) == 1


class Recorder(asyncio.Protocol):
    """Passes a connection on and keeps what the client said, as one on the way would see it."""

    def __init__(self, target: tuple[str, int]) -> None:
        self._target = target
        self.seen = bytearray()
        self._server: asyncio.Server | None = None
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> "Recorder":
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @property
    def address(self) -> tuple[str, int]:
        assert self._server is not None
        host, port = self._server.sockets[0].getsockname()[:2]
        return host, port

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        onward_reader, onward_writer = await asyncio.open_connection(*self._target)

        async def pipe(source: asyncio.StreamReader, sink: asyncio.StreamWriter, keep: bool) -> None:
            try:
                while data := await source.read(65536):
                    if keep:
                        self.seen += data
                    sink.write(data)
            finally:
                sink.close()

        self._tasks += [
            asyncio.create_task(pipe(reader, onward_writer, True)),
            asyncio.create_task(pipe(onward_reader, writer, False)),
        ]


async def test_recorded_tls_traffic_says_nothing_on_another_connection(
    authority: Authority, tmp_path: Path
) -> None:
    async with tls_broker(authority, tmp_path / "store") as broker:
        async with (
            Recorder(broker.address) as tap,
            client(tap.address, ROOT, tls=options(authority)) as root,
        ):
            for _ in range(3):
                await root.send(b"overheard", properties=UNIQUE)
            recorded = bytes(tap.seen)
        assert b"overheard" not in recorded
        for data in (recorded, recorded[1:], recorded * 2):
            async with await WireClient.connect(broker.address) as wire:
                wire.write(data)
                wire.end()
                assert await wire.wait_closed() == []
        assert broker.store.queues.max_offset(TOPIC, 0) == 3


@pytest.mark.parametrize("form", list(HeaderForm), ids=lambda form: form.name.lower())
async def test_what_one_connection_may_do_quickly_another_one_may_not(
    authority: Authority, tmp_path: Path, form: HeaderForm
) -> None:
    """The fast path believes a connection, not its address, its certificate or its session."""
    sign = signer(ROOT)
    context = ssl.create_default_context(cafile=authority.trust)
    context.check_hostname = False
    async with tls_broker(authority, tmp_path / "store") as broker:
        async with await WireClient.connect(broker.address, ssl=context) as first:
            for _ in range(3):
                frame = encode_request(message(properties=UNIQUE), 7, form=form)
                sign(frame)
                assert (await first.call(frame)).code == ResponseCode.SUCCESS
            unsigned = encode_request(message(properties=UNIQUE), 8, form=form)
            named = encode_request(message(b"another", properties=UNIQUE), 9, form=form)
            named.ext |= {"AccessKey": ROOT.access_key, "Signature": frame.ext["Signature"]}
            for forged in (unsigned, named):
                async with await WireClient.connect(broker.address, ssl=context) as second:
                    for _ in range(3):
                        assert (await second.call(forged)).code == ResponseCode.NO_PERMISSION
        assert broker.store.queues.max_offset(TOPIC, 0) == 3


# Addresses that access control 1.0 trusts, and proxies that say where a connection comes from

ADMIN = Credentials("the-admin", "secret of admin")
INSIDE, OUTSIDE = "10.1.2.3", "203.0.113.9"
ACCOUNTS = {
    "globalWhiteRemoteAddresses": ["10.1.2.*"],
    "accounts": [
        {"accessKey": "the-admin", "secretKey": "secret of admin", "admin": True},
        {
            "accessKey": "batch-jobs",
            "secretKey": "secret of jobs",
            "whiteRemoteAddress": "10.9.*.*",
            "admin": True,
        },
    ],
}


def preamble(source: str) -> bytes:
    return f"PROXY TCP4 {source} 127.0.0.1 4000 10911\r\n".encode()


@asynccontextmanager
async def broker_of_1_0(tmp_path: Path, proxies: str) -> AsyncIterator[Broker]:
    file = tmp_path / "plain_acl.yml"
    file.write_text(yaml.safe_dump(ACCOUNTS))
    async with running_broker(
        tmp_path / "store", acl_enable=True, acl_file=file, proxy_protocol_trusted_addresses=proxies
    ) as broker:
        async with client(broker.address, ADMIN) as admin:
            await admin.create_topic()
        yield broker


async def said(broker: Broker, *start: bytes, key: str = "") -> int | None:
    """The code of the answer to a send behind these bytes; None if the connection is closed."""
    frame = encode_request(message(properties=UNIQUE), 1)
    if key:
        frame.ext["AccessKey"] = key
    async with await WireClient.connect(broker.address) as wire:
        wire.write(b"".join(start) + encode_frame(frame))
        wire.end()
        answers = await wire.wait_closed()
    return answers[0].code if answers else None


async def test_trusted_addresses_are_those_of_the_client_and_not_of_the_proxy(tmp_path: Path) -> None:
    refused, served = ResponseCode.SYSTEM_ERROR, ResponseCode.SUCCESS
    async with broker_of_1_0(tmp_path, "127.0.0.1") as broker:
        assert await said(broker, preamble(INSIDE)) == served
        assert await said(broker, preamble(OUTSIDE)) == refused
        assert await said(broker, preamble("10.9.1.1"), key="batch-jobs") == served
        assert await said(broker, preamble("10.9.1.1"), key="the-admin") == refused
        assert await said(broker, preamble("10.9.1.1")) == refused
        assert await said(broker) == refused
        assert await said(broker, b"PROXY UNKNOWN\r\n") == refused
        # A second preamble is the client's own, behind that of the proxy.
        assert await said(broker, preamble(OUTSIDE), preamble(INSIDE)) is None
        assert broker.store.queues.max_offset(TOPIC, 0) == 2


async def test_a_client_that_claims_a_trusted_address_is_not_heard(tmp_path: Path) -> None:
    async with broker_of_1_0(tmp_path, "192.0.2.1") as broker:
        binary = b"\r\n\r\n\x00\r\nQUIT\n\x21\x11\x00\x0c" + bytes((10, 1, 2, 3, 127, 0, 0, 1, 1, 1, 2, 2))
        for start in (preamble(INSIDE), binary):
            assert await said(broker, start) is None
        assert broker.store.queues.max_offset(TOPIC, 0) == 0
