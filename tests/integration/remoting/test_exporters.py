"""Exporters of a real server, over real sockets."""

import asyncio

from pyromq.clock import ManualClock
from pyromq.metrics import Metrics
from pyromq.remoting.exporters import exporters
from pyromq.remoting.settings import ServerSettings

PATHS = ("/ready", "/metrics", "/health")


async def _status(address: tuple[str, int], path: str) -> int:
    reader, writer = await asyncio.open_connection(*address)
    writer.write(f"GET {path} HTTP/1.0\r\nHost: x\r\n\r\n".encode())
    line = await reader.readline()
    writer.close()
    await writer.wait_closed()
    return int(line.split()[1])


async def test_pages_have_nothing_to_show_until_the_server_has_started() -> None:
    (pages,) = exporters(
        ServerSettings(metrics_exporter="PROM"),
        "test",
        ("127.0.0.1", 0),
        {"/ready": lambda: (200, "ready\n")},
        ManualClock(),
    )
    await pages.start()
    address = pages.address
    assert address is not None
    try:
        assert [await _status(address, path) for path in PATHS] == [503, 503, 200]
        pages.show(Metrics())
        assert [await _status(address, path) for path in PATHS] == [200, 200, 200]
    finally:
        await pages.stop()
