"""Replication over the loopback, beside Apache's in the same run: synchronous sends, and the log as a stream.

    python -m benchmarks.replication [--quick] [--rounds 5] [--mib 512] [--servers pyromq,apache-5.3.3]
                                     [--json FILE]

- `sync`: a SYNC_MASTER with `inSyncReplicas=2` and one replica of its kind. The pairs take turns, load by
  load, round by round (benchmarks/turns.py). CPU time is that of master and replica together.
- `stream`: a master sends its log to a peer that only reads; beside it, a plain socket that sends as much.
- `catch up`: an empty replica copies a log of one file, until it has reported all of it. Beside it the bound:
  a bare program copies the same file over a socket, into the mapping of a fresh file or with plain writes. It
  checks nothing and builds no queues.

CPU time of a stream is the master's. A server may also be the directory of another checkout with its `.venv`:
`--servers pyromq,../before` shows what a change costs.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import mmap
import os
import shutil
import signal
import socket
import statistics
import struct
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Final

from benchmarks.broker import APACHE_JVM, LONGEST, SETTINGS, Cell, Sample, available, load
from benchmarks.native import run_loadgen
from benchmarks.store import append
from benchmarks.turns import Running, compared, orders, short
from tests.support.apache import ApacheBroker, free_ports
from tests.support.apache_releases import APACHE_4, APACHE_5
from tests.support.own_broker import OwnBroker
from tests.support.own_nameserver import OwnNameServer
from tests.support.server_programs import BROKER

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
LOADS: Final = ((1, 1), (8, 1), (8, 8), (32, 8))
"""Connections, and sends in flight on each."""
PAIR: Final = {
    **SETTINGS,
    "inSyncReplicas": "2",
    # Those who wait for their turn are silent, and nobody shall hang up on them.
    "haHousekeepingInterval": "3600000",
    "haMaxTimeSlaveNotCatchup": "3600000",
}


def fill(root: Path, mib: int) -> None:
    settings = StoreSettings(root=root, log_segment_bytes=FILE_BYTES)
    with MessageStore.open(settings) as store:
        number = 0
        while store.log.end < mib * MIB:
            append(store, number, b"x" * 1024)
            number += 1
            if number % 4096 == 0:
                store.dispatch(1 << 20)


@contextlib.contextmanager
def broker(kind: str, names: str, store: Path, **settings: str) -> Iterator[tuple[str, int, int]]:
    """A running broker: its address, its HA port and its process id."""
    values = {**SETTINGS, **settings}
    broker_id = int(values.get("brokerId", "0"))
    if kind not in RELEASES:
        program = BROKER if kind == OWN else replace(BROKER, python=f"{kind}/.venv/bin/python")
        port = free_ports(4) + 2
        values |= {"storePathRootDir": str(store), "listenPort": str(port)}
        with OwnBroker(names, NAME, settings=values, program=program) as own:
            yield own.address, port + 1, own.pid
    else:
        with ApacheBroker(
            RELEASES[kind], names, store, NAME, broker_id=broker_id, settings=values, jvm=APACHE_JVM
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


def bare_copy(source: Path, target: Path, mib: int, *, is_mapped: bool) -> dict[str, float]:
    """The bound of a catch-up: the file over the loopback into a fresh one, and nothing else."""
    size_bytes = mib * MIB
    listening = socket.create_server(("127.0.0.1", 0))
    sender_cpu_s = 0.0

    def send() -> None:
        nonlocal sender_cpu_s
        with source.open("rb") as file, listening.accept()[0] as accepted:
            sent = 0
            while sent < size_bytes:
                sent += os.sendfile(accepted.fileno(), file.fileno(), sent, min(MIB, size_bytes - sent))
        sender_cpu_s = time.thread_time()

    descriptor = os.open(target, os.O_RDWR | os.O_CREAT | os.O_EXCL)
    os.posix_fallocate(descriptor, 0, size_bytes)
    os.fsync(descriptor)
    mapping = mmap.mmap(descriptor, size_bytes)
    thread = threading.Thread(target=send)
    thread.start()
    buffer = memoryview(bytearray(512 * 1024))
    with socket.create_connection(listening.getsockname()) as peer, listening:
        began, used, received = time.perf_counter(), time.thread_time(), 0
        while piece := peer.recv_into(buffer):
            if is_mapped:
                mapping[received : received + piece] = buffer[:piece]
            else:
                os.pwrite(descriptor, buffer[:piece], received)
            received += piece
        seconds, cpu = time.perf_counter() - began, time.thread_time() - used
    thread.join()
    mapping.close()
    os.close(descriptor)
    target.unlink()
    return catch_up_figures(mib, seconds, sender_cpu_s, cpu)


def catch_up_figures(mib: int, seconds: float, master_cpu_s: float, replica_cpu_s: float) -> dict[str, float]:
    return {
        "catch up MiB/s": mib / seconds,
        "master CPU ms/MiB": master_cpu_s * 1000 / mib,
        "replica CPU ms/MiB": replica_cpu_s * 1000 / mib,
    }


def catch_up(kind: str, names: str, work: Path, address: str, mib: int, pid: int) -> dict[str, float]:
    """From the first byte to the last that the master knows to be acknowledged."""
    shutil.rmtree(work / "replica", ignore_errors=True)
    began, used, own_used = time.perf_counter(), 0.0, 0.0
    with (
        broker(kind, names, work / "replica", brokerId="1", brokerRole="SLAVE") as (_, _, replica),
        contextlib.closing(Link(address, LinkOptions())) as link,
    ):
        while True:
            links = link.call(GetHaStatus()).body.ha_connection_info
            reached = links[0].slave_ack_offset if links else -1
            if reached >= mib * MIB:
                break
            if reached <= 0:
                began, used, own_used = time.perf_counter(), cpu_s(pid), cpu_s(replica)
            time.sleep(0.005)
        seconds = time.perf_counter() - began
        return catch_up_figures(mib, seconds, cpu_s(pid) - used, cpu_s(replica) - own_used)


def streams(kind: str, mib: int, work: Path) -> dict[str, float]:
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
            if kind != "apache-4.9.7":  # it does not tell how far its replica is
                figures |= catch_up(kind, names.address, work, address, mib, pid)
    return figures


def bounds(mib: int, work: Path) -> dict[str, dict[str, float]]:
    """The plain programs that the brokers are compared with."""
    source = work / "source"
    with source.open("wb") as file:
        for _ in range(mib):
            file.write(b"x" * MIB)
    found = {"plain socket": {"stream MiB/s": mib / plain_socket(mib)}}
    for name, is_mapped in (("bare copy, mapped", True), ("bare copy, written", False)):
        found[name] = bare_copy(source, work / "target", mib, is_mapped=is_mapped)
    source.unlink()
    return found


# --------------------------------------------------------------------------------------- synchronous sends


@dataclass(frozen=True)
class Pair(Running):
    """A master; its replica is stopped and goes on with it."""

    replica: int

    @contextlib.contextmanager
    def turn(self) -> Iterator[None]:
        for pid in (self.pid, self.replica):
            os.kill(pid, signal.SIGCONT)
        try:
            self._wait()
            yield
        finally:
            self.hold()

    def hold(self) -> None:
        for pid in (self.replica, self.pid):
            os.kill(pid, signal.SIGSTOP)

    def _wait(self) -> None:
        """Until one send is answered with success: master and replica are connected."""
        options = ("-m", "send", "-T", "sync", "-c", "1", "-w", "1", "-u", "0", "-t", "1")
        while int(run_loadgen("-P", str(self.port), "-p", str(self.pid), *options)["errors"]):
            time.sleep(0.1)


@contextlib.contextmanager
def pairs(kinds: Sequence[str], work: Path) -> Iterator[list[Pair]]:
    """All pairs, stopped."""
    with contextlib.ExitStack() as stack:
        found = []
        for kind in kinds:
            names = stack.enter_context(OwnNameServer()).address
            store = work / f"pair-{Path(kind).name}"
            address, _, pid = stack.enter_context(
                broker(kind, names, store / "master", **PAIR, brokerRole="SYNC_MASTER")
            )
            _, _, replica = stack.enter_context(
                broker(kind, names, store / "replica", **PAIR, brokerRole="SLAVE", brokerId="1")
            )
            pair = Pair(kind, int(address.rpartition(":")[2]), pid, replica)
            for each in (replica, pid):  # whoever is stopped cannot be ended
                stack.callback(os.kill, each, signal.SIGCONT)
            pair.hold()
            found.append(pair)
        yield found


def sample(pair: Pair, cell: Cell, cpu_s: int, warm_up: int) -> Sample:
    said = run_loadgen(
        "-P", str(pair.port), "-p", f"{pair.pid},{pair.replica}", "-u", str(warm_up),
        "-C", str(1000 * cpu_s), "-t", str(LONGEST * cpu_s), *cell.options,
    )  # fmt: skip
    figures = {name: float(said[name]) for name in ("rate", "cpu_us", "p50", "p99", "p999")}
    return Sample(**figures, errors=int(said["errors"]))


Found = dict[str, dict[str, list[Sample]]]


def synchronous(kinds: Sequence[str], rounds: int, quick: bool, work: Path) -> Found:
    """Samples by load and by kind of broker."""
    found: Found = {}
    cells = [
        Cell(f"{size:,} B, {c} × {w}",
             ("-m", "send", "-T", "sync", "-b", str(size), "-c", str(c), "-w", str(w)))
        for size, (c, w) in itertools.product((1024,) if quick else (100, 1024), LOADS)
    ]  # fmt: skip
    with pairs(kinds, work) as all_pairs:
        for pair in all_pairs:
            print(f"warming up {pair.name}", file=sys.stderr)
            with pair.turn():
                for cell in cells[1::2]:
                    load(pair, cell, 1 if quick else 15)
        by_name = {pair.name: pair for pair in all_pairs}
        for order in orders(all_pairs, rounds):
            for cell in cells:
                for pair in (by_name[each.name] for each in order):
                    with pair.turn():
                        one = sample(pair, cell, 1 if quick else 4, 0 if quick else 1)
                    print(f"  {cell.name}: {pair.name}: {one.rate:,.0f}/s, {one.cpu_us:.1f} µs CPU,"
                          f" p99 {one.p99:,.0f} µs", file=sys.stderr)  # fmt: skip
                    if one.errors:
                        raise RuntimeError(f"{pair.name} answered {one.errors} sends without success")
                    found.setdefault(cell.name, {}).setdefault(pair.name, []).append(one)
    return found


def sync_table(found: Found, other: str) -> list[str]:
    titles = {"rate": "messages/s", "cpu_us": "CPU µs/message", "p50": "p50 µs", "p99": "p99 µs"}
    lines = [f"| sync | {' | '.join(f'{title} | {other} | ratio' for title in titles.values())} |"]
    lines.append("|---" * (3 * len(titles) + 1) + "|")
    for cell, samples in found.items():
        row = [cell]
        for name in titles:
            row += compared(*([getattr(each, name) for each in samples[kind]] for kind in (OWN, other)))
        lines.append(f"| {' | '.join(row)} |")
    return lines


def stream_table(found: dict[str, list[dict[str, float]]]) -> list[str]:
    columns = list(dict.fromkeys(column for rounds in found.values() for each in rounds for column in each))
    lines = [f"| | {' | '.join(columns)} |", "|---" * (len(columns) + 1) + "|"]
    for name, rounds in found.items():
        values = [[each[column] for each in rounds if column in each] for column in columns]
        cells = [short(statistics.median(each)) if each else "" for each in values]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="one short round: does it work at all?")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--mib", type=int, default=512, help="the length of the log, less than a file of it")
    parser.add_argument("--servers", default=f"{OWN},apache-5.3.3")
    parser.add_argument("--only", choices=("sync", "streams"))
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    rounds, mib = (1, 128) if options.quick else (options.rounds, options.mib)
    kinds = available(options.servers.split(","))
    sends: Found = {}
    logs: dict[str, list[dict[str, float]]] = {}
    with tempfile.TemporaryDirectory(dir=os.environ.get("TMPDIR")) as work:
        if options.only != "streams":
            sends = synchronous(kinds, rounds, options.quick, Path(work))
        for number in range(0 if options.only == "sync" else min(rounds, 3)):
            for name, figures in bounds(mib, Path(work)).items():
                logs.setdefault(name, []).append(figures)
            for kind in kinds:
                logs.setdefault(kind, []).append(streams(kind, mib, Path(work, f"streams{number}")))
    for other in kinds[1:] if sends else ():
        print("\n".join([*sync_table(sends, other), ""]))
    if logs:
        print("\n".join(stream_table(logs)))
    if options.json:
        samples = {cell: {kind: [asdict(each) for each in found] for kind, found in by_kind.items()}
                   for cell, by_kind in sends.items()}  # fmt: skip
        options.json.write_text(json.dumps({"sync": samples, "streams": logs}, indent=1))


if __name__ == "__main__":
    main()
