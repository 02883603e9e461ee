"""Under access control no port is forgotten: what status pages show, and what the gRPC port serves."""

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from tests.support.access import ALICE, ROOT, SECURE, SERVER, client, user_creation
from tests.support.broker_cluster import running_broker
from tests.support.controlled_brokers import controller
from tests.support.example_requests import example_request
from tests.support.front import front
from tests.support.name_servers import name_server
from tests.support.signing import signer
from tests.support.wire_client import WireClient

import pyromq.protocol.requests  # noqa: F401  (fills the catalogue)
from pyromq.protocol.catalogue import CATALOGUE, encode_request
from pyromq.protocol.codes import ResponseCode

PATHS = ("/metrics", "/status", "/ready", "/health", "/", "/config", "/metrics/../status", "/users")
LOOPBACK: dict[str, Any] = {"metrics_address": "127.0.0.1", "metrics_port": 0}
USER_CODES = range(3001, 3011)
"""Requests about users and their rights."""
EXPORTED: dict[str, Any] = {**LOOPBACK, "metrics_exporter": "PROM"}


async def said(address: tuple[str, int], method: str, path: str) -> bytes:
    reader, writer = await asyncio.open_connection(*address)
    writer.write(f"{method} {path} HTTP/1.0\r\nContent-Length: 0\r\n\r\n".encode())
    answer = await reader.read()
    writer.close()
    await writer.wait_closed()
    return answer


async def test_pages_show_no_secret_and_change_nothing(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        broker = await stack.enter_async_context(running_broker(tmp_path / "broker", **SECURE, **EXPORTED))
        names = await stack.enter_async_context(name_server(tmp_path / "names", **SECURE, **LOOPBACK))
        chooser = await stack.enter_async_context(controller(tmp_path / "controller", **SECURE, **EXPORTED))
        settings = {**SECURE, **EXPORTED, "auth_config_path": tmp_path / "front"}
        fronting = await stack.enter_async_context(front(settings=settings, **SECURE))
        for server in (broker, names, chooser, fronting.proxy):
            async with client(server.address, ROOT) as root:
                await root.call(user_creation(ALICE))
            for path in PATHS:
                shown = await said(server.metrics_address, "GET", path)
                for user in (ROOT, SERVER, ALICE):
                    assert user.secret_key.encode() not in shown
                assert ALICE.access_key.encode() not in shown, (server, path)
                for method in ("POST", "PUT", "DELETE", "PATCH"):
                    line = (await said(server.metrics_address, method, path)).partition(b"\r\n")[0]
                    assert b" 4" in line or b" 5" in line, (server, method, path, line)


async def test_the_grpc_port_serves_nothing_of_the_other_protocol_but_the_users_of_the_front(
    tmp_path: Path,
) -> None:
    sign = signer(ROOT)
    settings = {**SECURE, "auth_config_path": tmp_path / "access"}
    others = [declaration for code, declaration in sorted(CATALOGUE.items()) if code not in USER_CODES]
    frames = [
        encode_request(example_request(declaration), opaque) for opaque, declaration in enumerate(others)
    ]
    for frame in frames:
        sign(frame)
    async with (
        front(settings=settings, **SECURE) as running,
        await WireClient.connect(running.proxy.address) as wire,
    ):
        wire.send(*frames)
        codes = {answer.code for answer in await wire.frames(len(frames))}
    assert codes == {ResponseCode.REQUEST_CODE_NOT_SUPPORTED}
