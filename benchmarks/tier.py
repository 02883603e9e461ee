"""The lake tier: what uploads cost, how fast old messages are read, and what a cold reader does to sends.

    python -m benchmarks.tier [--quick] [--json FILE]

A broker in a process of its own gets messages of 1 KiB in four queues, uploads its closed files to a
directory, and deletes them from its disk. Then one connection pulls a queue from its first message on, one
pull after the other: from the disk before that, from the tier with an empty cache, and from its cache. CPU
times are those of the broker's process, of all its threads; these answers may have 1 MiB. Sends at a steady
rate take turns, with the usual limits: alone, and while another process reads messages for the first time.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import random
import selectors
import statistics
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from multiprocessing import Process
from pathlib import Path
from typing import Any, Final

from benchmarks import wire
from benchmarks.lite import cpu_seconds
from tests.support.own_broker import OwnBroker
from tests.support.own_nameserver import OwnNameServer

from pyromq.tier.directory_objects import DirectoryObjects
from pyromq.tier.uploading import UploadTask, upload

TOPIC, QUEUES = "History", 4
BODY_BYTES: Final = 1024
FILE_BYTES: Final = 64 << 20
MESSAGES: Final = 300_000
IN_FLIGHT: Final = 64
RATE: Final = 500
ROUNDS: Final = 5
ROUND_S: Final = 3.0
COLD_PULLS: Final = 100
LARGE_ANSWERS: Final = {
    "maxTransferCountOnMessageInDisk": "1024",
    "maxTransferBytesOnMessageInDisk": str(1 << 20),
    "maxTransferCountOnMessageInMemory": "1024",
    "maxTransferBytesOnMessageInMemory": str(1 << 20),
}
"""By default an answer from far behind has 8 messages at most."""
_RUNTIME_INFO: Final = 28
_DELETE_EXPIRED: Final = 329
_RETRY: Final = 20
_WORDS: Final = ("order", "customer", "address", "amount", "status", "created", "basket", "article", "price")


@dataclass(frozen=True)
class Read:
    messages: int
    wall_s: float
    cpu_s: float

    def line(self, name: str) -> str:
        return f"| {name} | {self.messages / self.wall_s:,.0f} | {self.messages / self.cpu_s:,.0f} |"


@dataclass(frozen=True)
class Result:
    upload_cpu_s_per_gib: float
    upload_mib_per_s: float
    ratio: float
    local: Read
    cold: Read
    warm: Read
    cold_pull_ms: tuple[float, float]
    """The median, and the 95th of a hundred."""
    send_ms: tuple[float, float]
    """The 99th of a hundred sends, the median of the rounds: alone, and with a cold reader."""
    load: float

    def table(self) -> str:
        alone, beside = self.send_ms
        return "\n".join(
            [
                "| | messages a second | for each CPU second of the broker |",
                "|---|---|---|",
                self.local.line("catch-up of one queue from the disk"),
                self.cold.line("from the tier, cold"),
                self.warm.line("from the tier, in its cache"),
                "",
                "| | |",
                "|---|---|",
                f"| upload, one process | {self.upload_mib_per_s:,.0f} MiB/s |",
                f"| upload, CPU for each GiB of log | {self.upload_cpu_s_per_gib:.1f} s |",
                f"| times smaller | {self.ratio:.1f} |",
                "| one cold pull, p50 and p95 | {:.1f} and {:.1f} ms |".format(*self.cold_pull_ms),
                f"| p99 of sends, alone | {alone:.2f} ms |",
                f"| p99 of sends, with a cold reader | {beside:.2f} ms ({beside / alone - 1:+.0%}) |",
                f"| load average | {self.load:.0f} |",
            ]
        )


def bodies(count: int) -> Iterator[bytes]:
    """JSON that looks like a business's, each other than all before it."""
    chance = random.Random(1)
    for number in range(count):
        fields: dict[str, Any] = {"id": number}
        while len(text := json.dumps(fields)) < BODY_BYTES - 40:
            fields[chance.choice(_WORDS) + str(len(fields))] = chance.choice(_WORDS) + str(chance.random())
        yield text.ljust(BODY_BYTES).encode()


def send_all(broker: OwnBroker, count: int) -> None:
    frames = (wire.send(TOPIC, number % QUEUES, body) for number, body in enumerate(bodies(count)))
    with selectors.DefaultSelector() as selector, contextlib.closing(wire.Wire(broker.port)) as connection:
        selector.register(connection, selectors.EVENT_READ)
        connection.send(*itertools.islice(frames, IN_FLIGHT))
        answered = 0
        while answered < count:
            selector.select(60)
            headers = connection.receive_headers()
            if refused := [each for each in headers if b'"code":0' not in each]:
                raise RuntimeError(f"a message was refused: {refused[0]!r}")
            answered += len(headers)
            if following := list(itertools.islice(frames, len(headers))):
                connection.send(*following)


def pull(connection: wire.Wire, queue_id: int, offset: int) -> int:
    """The offset after the messages of one pull, which waits for the tier."""
    ext = {
        "consumerGroup": "readers",
        "topic": TOPIC,
        "queueId": str(queue_id),
        "queueOffset": str(offset),
        "maxMsgNums": "1024",
        "sysFlag": "6",
        "commitOffset": "0",
        "suspendTimeoutMillis": "15000",
        "subscription": "*",
        "subVersion": "1700000000000",
        "expressionType": "TAG",
    }
    header, _ = connection.call(wire.frame(wire.PULL_MESSAGE, ext))
    if header["code"] not in (0, _RETRY):
        raise RuntimeError(f"a pull was refused: {header}")
    return int(header["extFields"]["nextBeginOffset"])


def catch_up(broker: OwnBroker, queue_id: int, first: int, end: int) -> Read:
    with contextlib.closing(wire.Wire(broker.port)) as connection:
        cpu, wall, offset = cpu_seconds(broker.pid), time.perf_counter(), first
        while offset < end:
            offset = pull(connection, queue_id, offset)
        return Read(offset - first, time.perf_counter() - wall, cpu_seconds(broker.pid) - cpu)


def figures(connection: wire.Wire) -> dict[str, str]:
    _, body = connection.call(wire.frame(_RUNTIME_INFO, {}))
    table: dict[str, str] = json.loads(body)["table"]
    return table


def wait_until(connection: wire.Wire, key: str, least: int, *, cleaning: bool = False) -> None:
    while int(figures(connection).get(key, "0")) < least:
        if cleaning:
            connection.call(wire.frame(_DELETE_EXPIRED, {}))
        time.sleep(0.5)


def measure_upload(store: Path, root: Path) -> tuple[float, float, float]:
    """CPU seconds for a GiB, MiB a second, and how many times smaller: the work of the child process."""
    path = min((store / "commitlog").iterdir())
    task = UploadTask(str(path), int(path.name), 0, str(root / "segment.tmp"), "", "C", "b")
    cpu, wall = time.process_time(), time.perf_counter()
    entry = upload(DirectoryObjects(root / "other"), task)
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    log_bytes = entry.log_end - entry.log_start
    return cpu / log_bytes * (1 << 30), log_bytes / (1 << 20) / wall, log_bytes / entry.size_bytes


def sends_p99_ms(broker: OwnBroker) -> float:
    """Of sends at a steady rate, each from when it was due."""
    taken, body = [], b"x" * BODY_BYTES
    with contextlib.closing(wire.Wire(broker.port)) as connection:
        due = time.perf_counter()
        for _ in range(int(RATE * ROUND_S)):
            due += 1 / RATE
            time.sleep(max(0.0, due - time.perf_counter()))
            connection.call(wire.send("Hot", 0, body))
            taken.append((time.perf_counter() - due) * 1e3)
    return statistics.quantiles(taken, n=100)[98]


def read_on(port: int, queue_id: int, first: int, end: int) -> None:
    with contextlib.closing(wire.Wire(port)) as connection:
        offset = first
        while offset < end:
            offset = pull(connection, queue_id, offset)


@contextlib.contextmanager
def cold_reader(broker: OwnBroker, queue_id: int, first: int, end: int) -> Iterator[None]:
    """In a process of its own, which ends with the block."""
    reader = Process(target=read_on, args=(broker.port, queue_id, first, end), daemon=True)
    reader.start()
    try:
        yield
    finally:
        reader.kill()
        reader.join()


def measure(count: int) -> Result:
    each = count // QUEUES
    with (
        OwnNameServer() as names,
        tempfile.TemporaryDirectory(prefix="pyromq-tier-") as place,
    ):
        root = Path(place)
        usual = {
            "storePathRootDir": str(root / "store"),
            "mappedFileSizeCommitLog": str(FILE_BYTES),
            "waitTimeMillsInSendQueue": "30000",
            "osPageCacheBusyTimeOutMills": "30000",
            "fileReservedTime": "0",
        }
        with OwnBroker(names.address, settings=usual | LARGE_ANSWERS) as broker:
            with contextlib.closing(wire.Wire(broker.port)) as connection:
                connection.call(wire.create_topic(TOPIC, QUEUES))
                connection.call(wire.create_topic("Hot", QUEUES))
            send_all(broker, count)
            local = catch_up(broker, 0, 0, each)
            broker.terminate()
        cpu_per_gib, rate, ratio = measure_upload(root / "store", root)
        usual |= {
            "tieredStorageLevel": "NOT_IN_DISK",
            "tieredStoreFilePath": str(root / "lake"),
            "tierCacheBytes": str(256 << 20),
        }
        with OwnBroker(names.address, settings=usual | LARGE_ANSWERS) as broker:
            with contextlib.closing(wire.Wire(broker.port)) as connection:
                end = int(figures(connection)["commitLogMaxOffset"]) // FILE_BYTES * FILE_BYTES
                wait_until(connection, "tierEnd", end)
                wait_until(connection, "commitLogMinOffset", end, cleaning=True)
            # What the last file has is on the disk.
            old = int(each * end / (end + FILE_BYTES) * 0.95)
            cold = catch_up(broker, 0, 0, old)
            warm = catch_up(broker, 0, 0, old)
            with contextlib.closing(wire.Wire(broker.port)) as connection:
                times = []
                for place_of in random.Random(2).sample(range(0, old, 250), COLD_PULLS):
                    began = time.perf_counter()
                    pull(connection, 1, place_of)
                    times.append((time.perf_counter() - began) * 1e3)
            broker.terminate()
        with OwnBroker(names.address, settings=usual) as broker:  # nothing is in its cache
            sends_p99_ms(broker)
            alone, beside = list[float](), list[float]()
            step = (QUEUES - 1) * old // ROUNDS
            for number in range(ROUNDS):
                alone.append(sends_p99_ms(broker))
                queue_id, first = divmod(number * step, old)
                with cold_reader(broker, 1 + queue_id, first, old):
                    beside.append(sends_p99_ms(broker))
        return Result(
            cpu_per_gib,
            rate,
            ratio,
            local,
            cold,
            warm,
            (statistics.median(times), statistics.quantiles(times, n=20)[18]),
            (statistics.median(alone), statistics.median(beside)),
            os.getloadavg()[1],
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="a smaller history: to see whether it works")
    parser.add_argument("--json", type=Path, help="write the figures there as well")
    options = parser.parse_args()
    result = measure(160_000 if options.quick else MESSAGES)
    print(result.table())
    if options.json is not None:
        options.json.write_text(json.dumps(asdict(result), indent=1) + "\n")


if __name__ == "__main__":
    main()
