"""A filter server in this process, next to a broker, and those who upload filters and pull through them."""

import platform
import sys
from binascii import crc32
from pathlib import Path
from typing import Any

import pytest
import wasmtime
from tests.support.broker_cluster import GROUP, TOPIC, BrokerClient, Pulled

from pyromq.broker.broker import Broker
from pyromq.clock import Clock
from pyromq.filterserver.filter_server import FilterServer
from pyromq.filterserver.settings import FilterServerSettings
from pyromq.protocol.requests.filter_servers import UploadFilter
from pyromq.remoting.addresses import format_address

CLASS_FILTER = 8
"""The bit of a pull's system flag."""

confined = pytest.mark.skipif(
    sys.platform != "linux" or platform.machine() not in ("x86_64", "aarch64"),
    reason="only the kernel of Linux confines filters",
)


def filter_server(broker: Broker, *, clock: Clock | None = None, **settings: Any) -> FilterServer:
    chosen: dict[str, Any] = {
        "bind_address": "127.0.0.1",
        "broker_address": format_address(*broker.address),
        "takes_filters": True,
        "shutdown_wait_seconds": 5,
        "log_dir": None,
    }
    return FilterServer(FilterServerSettings(**chosen | settings), clock=clock)


def upload(source: str | bytes, *, group: str = GROUP, topic: str = TOPIC, **fields: Any) -> UploadFilter:
    body = source if isinstance(source, bytes) else source.encode()
    values: dict[str, Any] = {"class_name": "chosen", "class_crc": crc32(body) & 0x7FFF_FFFF, **fields}
    return UploadFilter(consumer_group=group, topic=topic, body=body, **values)


def module_filter(match: str, others: str = "") -> bytes:
    """A module in WebAssembly; `match` is the body of its function, of $place, $body and $properties."""
    return bytes(
        wasmtime.wat2wasm(f"""(module (memory (export "memory") 2) {others}
            (func (export "allocate") (param i32) (result i32) (i32.const 1024))
            (func (export "match") (param $place i32) (param $body i32) (param $properties i32) (result i32)
                {match}))""")
    )


async def pull_filtered(client: BrokerClient, offset: int = 0, **fields: Any) -> Pulled:
    return await client.pull(offset, **{"sys_flag": CLASS_FILTER, **fields})


def recorded_uploads(caplog: pytest.LogCaptureFixture) -> list[str]:
    """The lines of the audit log that tell of uploads."""
    lines = [record.getMessage() for record in caplog.records if record.name == "pyromq.audit"]
    return [line for line in lines if "sha256=" in line]


def directory_of_users(broker: Broker, root: Path) -> Path:
    """Where a broker with this root keeps its users."""
    (found,) = {path.parent for path in root.rglob("access.json")}
    return found
