"""Replication over the loopback: how fast a master sends its log, how fast replicas copy it, and SYNC_MASTER.

    python -m benchmarks.replication [--quick] [--mib 512] [--servers pyromq,apache-5.3.3] [--json FILE]

- `stream`: a master sends its log to a peer that only reads; beside it, a plain socket that sends as much.
- `catch up`: an empty replica of the same kind copies the log, until it has reported all of it.
- `send`: one message after the other, to a master alone and to a SYNC_MASTER with `inSyncReplicas=2`.

CPU time is the master's.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import socket
import statistics
import struct
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from benchmarks.store import append
from tests.support.apache import ApacheBroker, free_ports
from tests.support.apache_releases import APACHE_4, APACHE_5, PeerUnavailable
from tests.support.own_broker import OwnBroker
from tests.support.own_nameserver import OwnNameServer

from pyromq import Message, Producer
from pyromq.protocol.replication import encode_report
from pyromq.protocol.requests.replication import GetHaStatus
from pyromq.remoting.blocking_link import Link, LinkOptions
from pyromq.store.message_store import MessageStore
from pyromq.store.settings import StoreSettings

MIB: Final = 1 << 20
OWN: Final = "pyromq"
RELEASES: Final = {"apache-4.9.7": APACHE_4, "apache-5.3.3": APACHE_5}
FILE_BYTES: Final = 1 << 30
NAME: Final = "broker-a"


def fill(root: Path, mib: int) -> None:
    settings = StoreSettings(root=root, log_segment_bytes=FILE_BYTES)
    with MessageStore.open(settings) as store:
        number = 0
        while store.log_end < mib * MIB:
            append(store, number, b"x" * 1024)
            number += 1
            if number % 4096 == 0:
                store.dispatch(1 << 20)


@contextlib.contextmanager
def broker(kind: str, names: str, store: Path, **settings: str) -> Iterator[tuple[str, int, int]]:
    """A running broker: its address, its HA port and its process id."""
    values = {"mappedFileSizeCommitLog": str(FILE_BYTES), "diskMaxUsedSpaceRatio": "95", **settings}
    broker_id = int(values.get("brokerId", "0"))
    if kind == OWN:
        port = free_ports(4) + 2
        values |= {"storePathRootDir": str(store), "listenPort": str(port)}
        with OwnBroker(names, NAME, settings=values) as own:
            yield own.address, port + 1, own.pid
    else:
        jvm = ("-Xms1g", "-Xmx1g")
        values |= {
            "mappedFileSizeConsumeQueue": "6000000",
            "maxHashSlotNum": "5000000",
            "maxIndexNum": "20000000",
        }
        with ApacheBroker(
            RELEASES[kind], names, store, NAME, broker_id=broker_id, settings=values, jvm=jvm
        ) as other:
            assert other.pid is not None
            yield other.address, other.port + 1, other.pid


def cpu_s(pid: int) -> float:
    return time.clock_gettime(~pid << 3 | 2)


def read_stream(address: tuple[str, int], wanted: int) -> float:
    """Seconds until a peer that only reads has so many bytes of the log."""
    with socket.create_connection(address) as peer:
        buffer = bytearray(4 * MIB)
        began = time.perf_counter()
        peer.sendall(encode_report(1))  # java: 0 asks for the last file only
        received = 0
        while received < wanted:
            received += peer.recv_into(buffer) or sys.exit("the master closed the connection")
        return time.perf_counter() - began


def plain_socket(mib: int) -> float:
    """Seconds for as many bytes through a plain socket, from memory, in frames like a master's."""
    listening = socket.create_server(("127.0.0.1", 0))

    def send() -> None:
        accepted, _ = listening.accept()
        with accepted:
            accepted.recv(8)
            block = memoryview(bytes(32 * 1024))
            frames: list[bytes | memoryview] = [struct.pack(">qi", 0, len(block)), block] * 32
            for _ in range(mib):
                remaining = sum(map(len, frames))
                sent = accepted.sendmsg(frames)
                if sent < remaining:
                    accepted.sendall(b"".join(frames)[sent:])

    thread = threading.Thread(target=send)
    thread.start()
    try:
        return read_stream(listening.getsockname()[:2], mib * MIB)
    finally:
        thread.join()
        listening.close()


def acknowledged(address: str) -> int:
    """How far the first replica of a master has the log; -1 without one."""
    with contextlib.closing(Link(address, LinkOptions())) as link:
        links = link.call(GetHaStatus()).body.ha_connection_info
    return links[0].slave_ack_offset if links else -1


def catch_up(kind: str, names: str, work: Path, address: str, end: int, pid: int) -> tuple[float, float]:
    """Seconds from the first byte to the last, of a replica and of the master's CPU."""
    shutil.rmtree(work / "replica", ignore_errors=True)
    began = used = 0.0
    with broker(kind, names, work / "replica", brokerId="1", brokerRole="SLAVE"):
        while (reached := acknowledged(address)) < end:
            if reached <= 0:
                began, used = time.perf_counter(), cpu_s(pid)
            time.sleep(0.005)
        return time.perf_counter() - began, cpu_s(pid) - used


def sends(names: str, count: int) -> float:
    """The median of the milliseconds that a send takes."""
    with Producer("bench", names) as producer:
        times = []
        for _ in range(count):
            began = time.perf_counter()
            producer.send(Message("Bench", b"x" * 1024))
            times.append((time.perf_counter() - began) * 1000)
    return statistics.median(times)


def measure(kind: str, mib: int, count: int, work: Path) -> dict[str, float]:
    figures: dict[str, float] = {}
    end = mib * MIB
    with OwnNameServer() as names:
        store = work / kind
        fill(store, mib)
        with broker(kind, names.address, store) as (address, ha_port, pid):
            used = cpu_s(pid)
            seconds = read_stream(("127.0.0.1", ha_port), end)
            figures["stream MiB/s"] = mib / seconds
            figures["stream CPU ms/MiB"] = (cpu_s(pid) - used) * 1000 / mib
            if kind == OWN:  # an empty replica of Apache's master gets the last file only
                seconds, cpu = catch_up(kind, names.address, work, address, end, pid)
                figures["catch up MiB/s"] = mib / seconds
                figures["catch up CPU ms/MiB"] = cpu * 1000 / mib
    for role in ("ASYNC_MASTER", "SYNC_MASTER"):
        with OwnNameServer() as names, contextlib.ExitStack() as stack:
            fresh = Path(tempfile.mkdtemp(dir=work))
            address, _, _ = stack.enter_context(
                broker(kind, names.address, fresh / "m", brokerRole=role, inSyncReplicas="2")
            )
            stack.enter_context(broker(kind, names.address, fresh / "r", brokerId="1", brokerRole="SLAVE"))
            if kind != "apache-4.9.7":
                while acknowledged(address) < 0:
                    time.sleep(0.1)
            sends(names.address, count // 4)
            figures[f"{role} send ms"] = sends(names.address, count)
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--mib", type=int, default=512)
    parser.add_argument("--servers", default=f"{OWN},apache-5.3.3")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    mib, count = (64, 200) if options.quick else (options.mib, 4000)
    results: dict[str, dict[str, Any]] = {"plain socket": {"stream MiB/s": mib / plain_socket(mib)}}
    with tempfile.TemporaryDirectory(dir=os.environ.get("TMPDIR")) as work:
        for kind in options.servers.split(","):
            try:
                results[kind] = measure(kind, mib, count, Path(work))
            except PeerUnavailable as problem:
                print(f"{kind} left out: {problem}", file=sys.stderr)
    columns = sorted({column for figures in results.values() for column in figures})
    print("|", " | ".join(["", *columns]), "|")
    print("|" + "---|" * (len(columns) + 1))
    for name, figures in results.items():
        print(
            "|",
            " | ".join([name, *(f"{figures[each]:.2f}" if each in figures else "" for each in columns)]),
            "|",
        )
    if options.json:
        options.json.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
