"""The message store alone, in one process: appending, group commit, reading, recovery and start-up.

What has compiled twins (`pyromq-native`) is measured with them and, in a process of its own, without.

    python -m benchmarks.store [--quick] [--directory DIR] [--only append,sync,...] [--json FILE]

CPU time is the process's own, the flusher's thread included. Recovery and start-up happen in a fresh process,
the store's files thrown out of the page cache before.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from pyromq import compiled
from pyromq.protocol.batch import BatchEntry, encode_batch
from pyromq.protocol.record import Host
from pyromq.store.message_store import MessageStore
from pyromq.store.results import AppendResult, AppendStatus
from pyromq.store.settings import StoreSettings

TOPIC: Final = "Benchmark"
BORN_HOST: Final = Host.of("127.0.0.1", 40_001).pack()
STORE_HOST: Final = Host.of("127.0.0.1", 10_911).pack()
BORN_MS: Final = 1_700_000_000_000
PROPERTIES: Final = (
    "KEYS\x01k%d\x02UNIQ_KEY\x017F0000010B2A18B4AAC20B5F%08X\x02WAIT\x01true\x02TAGS\x01TagA\x02"
)
PROPERTY_SETS: Final = [(PROPERTIES % (n, n)).encode() for n in range(4096)]
KIB: Final = 1024
GIB: Final = 1 << 30

Figures = dict[str, float]


def settings(root: Path, **changes: object) -> StoreSettings:
    return StoreSettings(root=root, **changes)  # type: ignore[arg-type]


def append(store: MessageStore, number: int, body: bytes, topic: str = TOPIC) -> AppendResult:
    return store.append(
        topic,
        number & 3,
        body,
        PROPERTY_SETS[number & 4095],
        born_timestamp=BORN_MS,
        born_host=BORN_HOST,
        store_host=STORE_HOST,
    )


def fill(store: MessageStore, count: int, body: bytes) -> None:
    """Append and dispatch as a broker does: some of the one, then the other."""
    for first in range(0, count, 256):
        for number in range(first, min(first + 256, count)):
            append(store, number, body)
        store.dispatch()
        store.upkeep()
    while store.has_dispatch_work:
        store.dispatch()


# ------------------------------------------------------------------------------------------- appending


def appending(directory: Path, quick: bool) -> Figures:
    """Asynchronous flush. The disk is not waited for: figures are CPU time per message.

    Appends and dispatch take turns, as in a broker: 256 of the one, then the other. Dispatch fills the queue
    and adds two keys to the index.
    """
    figures: Figures = {}
    count = 20_000 if quick else 500_000
    for size in (100, KIB):
        body = bytes(size)
        with MessageStore.open(settings(directory / f"append-{size}")) as store:
            fill(store, 1_000, body)
            append_s = dispatch_s = 0.0
            best_s = 1.0
            for first in range(0, count, 256):
                began = time.process_time()
                for number in range(first, first + 256):
                    append(store, number, body)
                appended = time.process_time()
                store.dispatch()
                ended = time.process_time()
                append_s += appended - began
                dispatch_s += ended - appended
                best_s = min(best_s, ended - began)
                store.upkeep()
            total_s = append_s + dispatch_s
            figures[f"append + dispatch {size} B: CPU µs a message"] = total_s / count * 1e6
            figures[f"append + dispatch {size} B, best 256: CPU µs a message"] = best_s / 256 * 1e6
            figures[f"append {size} B: CPU µs a message"] = append_s / count * 1e6
            figures[f"dispatch {size} B, two keys: CPU µs a message"] = dispatch_s / count * 1e6
        shutil.rmtree(directory / f"append-{size}")
    return figures


def batches(directory: Path, quick: bool) -> Figures:
    """64 messages of 100 B in one request, as it came over the wire; with their dispatch."""
    count = 20_000 if quick else 500_000
    body = bytes(100)
    encoded = [
        encode_batch(BatchEntry(body, properties) for properties in PROPERTY_SETS[first : first + 64])
        for first in range(0, len(PROPERTY_SETS), 64)
    ]
    append_s = dispatch_s = 0.0
    with MessageStore.open(settings(directory / "batches")) as store:
        fill(store, 1_000, body)
        for number in range(count // 64):
            began = time.process_time()
            store.append_encoded_batch(
                TOPIC,
                number & 3,
                encoded[number % len(encoded)],
                born_timestamp=BORN_MS,
                born_host=BORN_HOST,
                store_host=STORE_HOST,
            )
            appended = time.process_time()
            store.dispatch()
            append_s += appended - began
            dispatch_s += time.process_time() - appended
            store.upkeep()
    shutil.rmtree(directory / "batches")
    done = count // 64 * 64
    return {
        "batch of 64 × 100 B, append + dispatch: CPU µs a message": (append_s + dispatch_s) / done * 1e6,
        "batch of 64 × 100 B, append: CPU µs a message": append_s / done * 1e6,
    }


def group_commit(directory: Path, quick: bool) -> Figures:
    """Synchronous flush: 64 senders that wait together, against one that waits for each message.

    Timed from the append to the word that it is safe; the queues are filled in between.
    """
    figures: Figures = {}
    rounds = 20 if quick else 500
    body = bytes(100)
    with MessageStore.open(settings(directory / "sync", flush_disk_type="SYNC_FLUSH")) as store:
        safe: list[AppendStatus] = []
        elapsed, syncs = 0.0, store.statistics().sync_count
        for _ in range(rounds):
            began = time.perf_counter()
            results = [append(store, number, body) for number in range(64)]
            for result in results:
                store.flushes.when_flushed(result, safe.append)
            store.flushes.wait(results[-1])
            store.flushes.settle()
            elapsed += time.perf_counter() - began
            store.dispatch()
        assert len(safe) == rounds * 64, (len(safe), rounds)
        figures["sync, 64 waiting: messages a second"] = rounds * 64 / elapsed
        figures["sync, 64 waiting: syncs a message"] = (store.statistics().sync_count - syncs) / (rounds * 64)
        elapsed, syncs = 0.0, store.statistics().sync_count
        for number in range(rounds):
            began = time.perf_counter()
            store.flushes.wait(append(store, number, body))
            elapsed += time.perf_counter() - began
            store.dispatch()
        figures["sync, one waiting: messages a second"] = rounds / elapsed
        figures["sync, one waiting: syncs a message"] = (store.statistics().sync_count - syncs) / rounds
    shutil.rmtree(directory / "sync")
    return figures


# ------------------------------------------------------------------------------------------- reading


def reading(directory: Path, quick: bool) -> Figures:
    """One queue from its start to its end, 32 messages at a time; the slices are handed out, not copied."""
    figures: Figures = {}
    for size, count in ((100, 20_000 if quick else 400_000), (10 * KIB, 2_000 if quick else 40_000)):
        limits = {
            "max_batch_on_disk": 32,
            "max_batch_bytes_on_disk": 1 << 20,
            "max_batch_bytes_in_memory": 1 << 20,
        }
        with MessageStore.open(settings(directory / f"read-{size}", **limits)) as store:
            fill(store, count, bytes(size))
            for attempt in ("cold", "warm"):
                reads = messages = size_bytes = 0
                began, cpu_began = time.perf_counter(), time.process_time()
                offset, end = 0, store.queues.max_offset(TOPIC, 0)
                while offset < end:
                    result = store.read(TOPIC, 0, offset, 32)
                    reads += 1
                    messages += result.message_count
                    size_bytes += result.size_bytes
                    offset = result.next_offset
                cpu_s, elapsed = time.process_time() - cpu_began, time.perf_counter() - began
                if attempt == "warm":
                    figures[f"read 32 × {size} B: CPU µs a read"] = cpu_s / reads * 1e6
                    figures[f"read 32 × {size} B: messages a second"] = messages / elapsed
                    figures[f"read 32 × {size} B: MB a second"] = size_bytes / elapsed / 1e6
        shutil.rmtree(directory / f"read-{size}")
    return figures


# ------------------------------------------------------------------------------------------- starting


def recovery(directory: Path, quick: bool) -> Figures:
    """A store that was never closed: how much of it is read again, and for how long."""
    root = directory / "recovery"
    size = GIB // 4 if quick else 10 * GIB
    body = bytes(10 * KIB)
    store = MessageStore.open(settings(root))
    fill(store, size // (10 * KIB + 200), body)
    figures = {"store to recover, GiB": store.statistics().log_end_offset / GIB}
    store.abandon()
    measured = open_in_new_process(root)
    figures["recovery: s"] = measured["seconds"]
    figures["recovery: MB of log checked"] = measured["bytes_checked"] / 1e6
    figures["recovery: MB read from disk"] = measured["bytes_read"] / 1e6
    shutil.rmtree(root)
    return figures


def many_queues(directory: Path, quick: bool) -> Figures:
    root = directory / "queues"
    count = 500 if quick else 10_000
    with MessageStore.open(settings(root)) as store:
        for number in range(count):
            append(store, 0, b"one", topic=f"topic-{number:06d}")
        while store.has_dispatch_work:
            store.dispatch()
    measured = open_in_new_process(root)
    shutil.rmtree(root)
    return {
        f"start with {count:,} queues: s": measured["seconds"],
        f"start with {count:,} queues: MB RSS": measured["rss_mb"],
        f"start with {count:,} queues: MB RSS before": measured["rss_before_mb"],
    }


def open_in_new_process(root: Path) -> dict[str, float]:
    forget_cached(root)
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.store", "--open", str(root)],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise RuntimeError(done.stderr)
    measured: dict[str, float] = json.loads(done.stdout)
    return measured


def forget_cached(root: Path) -> None:
    """Ask the system to drop the files from its page cache."""
    for path in root.rglob("*"):
        if path.is_file():
            descriptor = os.open(path, os.O_RDONLY)
            os.fsync(descriptor)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(descriptor)


def open_and_report(root: Path) -> None:
    rss_before, read_before, began = rss_mb(), bytes_read(), time.perf_counter()
    store = MessageStore.open(settings(root))
    seconds = time.perf_counter() - began
    print(
        json.dumps(
            {
                "seconds": seconds,
                "bytes_checked": store.recovery.bytes_checked,
                "bytes_read": bytes_read() - read_before,
                "rss_before_mb": rss_before,
                "rss_mb": rss_mb(),
            }
        )
    )
    store.close()


def rss_mb() -> float:
    return int(Path("/proc/self/status").read_text().split("VmRSS:")[1].split()[0]) / 1024


def bytes_read() -> int:
    return int(Path("/proc/self/io").read_text().split("read_bytes:")[1].split()[0])


# ------------------------------------------------------------------------------------------- all of it

WITH_TWINS: Final = ("append", "batch", "read")

PARTS: Final[dict[str, Callable[[Path, bool], Figures]]] = {
    "append": appending,
    "batch": batches,
    "sync": group_commit,
    "read": reading,
    "recovery": recovery,
    "queues": many_queues,
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="small numbers: does it work at all?")
    parser.add_argument("--only", default=",".join(PARTS), help=f"of {', '.join(PARTS)}")
    parser.add_argument(
        "--directory", type=Path, help="where to write; needs 11 GiB, a new directory in it is removed"
    )
    parser.add_argument("--json", type=Path, help="write the figures to this file as well")
    parser.add_argument("--open", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.open is not None:
        open_and_report(options.open)
        return
    figures: Figures = {}
    interpreted: Figures = {}
    with tempfile.TemporaryDirectory(prefix="pyromq-bench-", dir=options.directory) as directory:
        for part in options.only.split(","):
            figures |= tell(PARTS[part](Path(directory), options.quick))
            if compiled.IS_COMPILED and part in WITH_TWINS:
                interpreted |= tell(measure_interpreted(Path(directory), part, options.quick))
    print(f"Python {sys.version.split()[0]}, {os.cpu_count()} cores; compiled twins: {compiled.WHY}\n")
    print(
        "| figure | value | interpreted |\n|---|---:|---:|"
        if interpreted
        else "| figure | value |\n|---|---:|"
    )
    for name, value in figures.items():
        cells = [name, shown(value)]
        if interpreted:
            cells.append(shown(interpreted[name]) if name in interpreted else "")
        print(f"| {' | '.join(cells)} |")
    if options.json:
        options.json.write_text(json.dumps({"figures": figures, "interpreted": interpreted}, indent=1) + "\n")


def tell(measured: Figures) -> Figures:
    for name, value in measured.items():
        sys.stderr.write(f"  {name} = {value:,.3f}\n")
    return measured


def shown(value: float) -> str:
    return f"{value:,.4g}" if value < 1000 else f"{value:,.0f}"


def measure_interpreted(directory: Path, part: str, quick: bool) -> Figures:
    """The same part in a process that has no compiled twins."""
    kept = directory / "interpreted.json"
    command = [sys.executable, "-m", "benchmarks.store", "--only", part, "--directory", str(directory)]
    command += ["--json", str(kept), *(["--quick"] if quick else [])]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env=os.environ | {"PYROMQ_NATIVE": "0"}
    )
    if done.returncode != 0:
        raise RuntimeError(done.stderr)
    measured: Figures = json.loads(kept.read_text())["figures"]
    return measured


if __name__ == "__main__":
    main()
