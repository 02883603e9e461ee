"""Latency at a fixed rate: PyroMQ and what else a user might pick, each with its own client.

    python -m benchmarks.open_loop [--quick] [--systems pyromq,kafka,…] [--topics 1,16] [--json FILE]

At first, each system shows what it can do: a closed loop with 256 messages in flight, a producer and a
consumer in processes of their own. Then messages are due at 10, 50 and 80 % of that rate, whether or not
earlier ones were answered. Latency counts from the time at which a message was due, to its answer (publish)
and to its consumer (end to end). Systems run one after the other, round by round; the figure is the median
of the rounds. What cannot be had is left out, with the reason.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.broker import APACHE_JVM, SETTINGS
from benchmarks.client import JVM, REPOSITORY, SIZES, create_topics, say, with_load
from benchmarks.compare_with_kafka import python_with
from benchmarks.frameworks import rabbitmq, redis, running
from benchmarks.open_loop_client import IN_FLIGHT, SHARES
from benchmarks.process_cpu import cpu_seconds_of_tree
from benchmarks.rate_plot import Curve, picture
from tests.support.apache import ApacheBroker
from tests.support.apache_releases import (
    APACHE_5,
    APACHE_NEWEST,
    PeerUnavailable,
    Release,
    cache_directory,
    tool,
)
from tests.support.kafka import KAFKA_VERSION, KafkaBroker
from tests.support.own_broker import OwnBroker
from tests.support.own_nameserver import OwnNameServer

from pyromq.testing.held_ports import held_port

PACKAGES: Final = (
    "aio-pika==9.5.7",
    "confluent-kafka==2.16.1",
    "nats-py==2.12.0",
    "redis==7.1.0",
    "uvloop==0.23.0",
)
NATS_VERSION: Final = "v2.15.2"
PERCENTS: Final = (10, 50, 80)
_LONGEST_S: Final = 180.0


@dataclass
class Started:
    """A running system."""

    place: str
    """What its client is told."""
    pid: int
    client: Sequence[str]
    """The command of a client, without mode and place."""
    prepare: Callable[[Sequence[str]], object]
    """Makes topics."""


Figures = dict[str, float]
_Client = subprocess.Popen[str]
Start = Callable[[Path], AbstractContextManager[Started]]


# ---------------------------------------------------------------------- systems


def _python(*words: str) -> list[str]:
    return [str(python_with(PACKAGES)), "-m", "benchmarks.open_loop_client", *words]


@contextmanager
def pyromq(place: Path) -> Iterator[Started]:
    settings = {**SETTINGS, "storePathRootDir": str(place / "store")}
    client = [sys.executable, "-m", "benchmarks.open_loop_client", "pyromq"]
    with OwnNameServer() as names, OwnBroker(names.address, settings=settings) as broker:
        address = broker.address
        yield Started(
            names.address, broker.pid, client, lambda topics: asyncio.run(create_topics(address, topics))
        )


@contextmanager
def apache(release: Release, place: Path) -> Iterator[Started]:
    """With our name server: only the broker and the client are measured."""
    client = [
        tool("java"),
        *JVM,
        f"-Duser.home={place}",
        "-cp",
        with_load(release, "OpenLoop.java"),
        "OpenLoop",
    ]
    with (
        OwnNameServer() as names,
        ApacheBroker(release, names.address, place / "store", settings=SETTINGS, jvm=APACHE_JVM) as broker,
    ):
        assert broker.pid is not None
        address = broker.address
        yield Started(
            names.address, broker.pid, client, lambda topics: asyncio.run(create_topics(address, topics))
        )


def _prepared_by_client(place: str, pid: int, system: str) -> Started:
    client = _python(system)

    def prepare(topics: Sequence[str]) -> None:
        prefix = topics[0].rpartition("-")[0]
        command = [*client, "prepare", place, str(len(topics)), prefix]
        subprocess.run(command, cwd=REPOSITORY, check=True, stdout=subprocess.DEVNULL, timeout=_LONGEST_S)

    return Started(place, pid, client, prepare)


@contextmanager
def kafka(place: Path) -> Iterator[Started]:
    with KafkaBroker(place / "log", jvm=("-Xms1g", "-Xmx1g", "-XX:+UseG1GC")) as broker:
        assert broker.pid is not None
        yield _prepared_by_client(broker.address, broker.pid, "kafka")


@contextmanager
def rabbitmq_quorum(place: Path) -> Iterator[Started]:
    with rabbitmq(place) as broker:
        yield _prepared_by_client(broker.url, broker.process.pid, "rabbitmq")


@contextmanager
def redis_streams(place: Path) -> Iterator[Started]:
    with redis(place, "--appendonly", "yes", "--appendfsync", "everysec") as broker:
        yield _prepared_by_client(broker.url, broker.process.pid, "redis")


def nats_server() -> Path:
    home = cache_directory().parent / "nats" / NATS_VERSION
    program = home / "nats-server"
    if not program.exists():
        go = shutil.which("go")
        if go is None:
            raise PeerUnavailable("NATS is built with Go, which is not here")
        say(f"building nats-server {NATS_VERSION} ...")
        package = f"github.com/nats-io/nats-server/v2@{NATS_VERSION}"
        done = subprocess.run(
            [go, "install", package],
            env=os.environ | {"GOBIN": str(home)},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise PeerUnavailable(f"go install {package}: {done.stderr.strip()[-300:]}")
    return program


@contextmanager
def nats(place: Path) -> Iterator[Started]:
    program = str(nats_server())
    with held_port() as port:
        options = ["-js", "-sd", str(place), "-a", "127.0.0.1", "-p", str(port)]
        with running([program, *options], port) as process:
            yield _prepared_by_client(f"nats://127.0.0.1:{port}", process.pid, "nats")


SYSTEMS: Final[dict[str, tuple[Start, str, str]]] = {
    "pyromq": (pyromq, "aio.Producer and PushConsumer", "written to the page cache, flushed every 500 ms"),
    "rocketmq-5.3.3": (
        lambda place: apache(APACHE_5, place),
        "Java client 5.3.3",
        "written to the page cache, flushed every 500 ms",
    ),
    "rocketmq-5.5.0": (
        lambda place: apache(APACHE_NEWEST, place),
        "Java client 5.5.0",
        "written to the page cache, flushed every 500 ms",
    ),
    f"kafka-{KAFKA_VERSION}": (
        kafka,
        "confluent-kafka, acks=all, linger.ms=1",
        "written to the page cache, flushed by the kernel",
    ),
    "rabbitmq": (
        rabbitmq_quorum,
        "aio-pika, publisher confirms",
        "quorum queue: synced before the answer, which cannot be turned off",
    ),
    "redis": (redis_streams, "redis-py, 64 connections", "append-only file, synced every second"),
    f"nats-{NATS_VERSION[1:]}": (nats, "nats-py, JetStream", "file store, synced every two minutes"),
}
"""How to start it, its client, and what an answer promises."""


# ---------------------------------------------------------------------- one load


def measure(
    started: Started, prefix: str, topics: int, body_bytes: int, rate: float, warm_up_s: float, seconds: float
) -> Figures:
    """Rate 0: as fast as the client can. Names of figures: `publish …`, `end to end …`."""
    started.prepare([f"{prefix}-{number}" for number in range(topics)])
    words = [started.place, str(topics), prefix]
    cpu_s = cpu_seconds_of_tree(started.pid)
    with _client(started, "receive", *words) as receiver:
        assert receiver.stdin is not None
        assert receiver.stdout is not None
        if receiver.stdout.readline().strip() != "ready":
            raise RuntimeError(f"{started.client[-1]}: the receiver has ended")
        load = [str(each) for each in (body_bytes, rate, warm_up_s, seconds)]
        with _client(started, "send", *words, *load) as sender:
            publish = _figures(sender)
        receiver.stdin.write(f"{publish['sent'] - publish['failed']:.0f}\n")
        receiver.stdin.flush()
        end_to_end = _figures(receiver)
    figures = {f"publish {name}": value for name, value in publish.items()}
    figures |= {f"end to end {name}": value for name, value in end_to_end.items()}
    used_s = cpu_seconds_of_tree(started.pid) - cpu_s
    return figures | {"broker CPU µs": used_s / publish["sent"] * 1e6, "load": os.getloadavg()[0]}


@contextmanager
def _client(started: Started, mode: str, *words: str) -> Iterator[_Client]:
    process = subprocess.Popen(
        [*started.client, mode, *words],
        cwd=REPOSITORY,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def _figures(process: _Client) -> Figures:
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        raise RuntimeError(f"{process.args!r} has ended without figures")
    found: Figures = json.loads(line)
    return found


def can_do(
    started: Started, prefix: str, topics: int, body_bytes: int, warm_up_s: float, seconds: float
) -> float:
    """Messages a second, sent and received: the slower of both."""
    found = measure(started, prefix, topics, body_bytes, 0, warm_up_s, seconds)
    return min(found["publish rate"], found["end to end rate"])


# ---------------------------------------------------------------------- all of them


Found = dict[str, dict[str, list[Figures]]]
"""By cell and system: one entry for each round."""


def cell_name(body_bytes: int, topics: int, percent: int) -> str:
    return f"{body_bytes} B, {topics} topic{'s' * (topics > 1)}, {percent} %"


def run_system(
    name: str, found: Found, most: dict[str, float], *, sizes: Sequence[int], topics: Sequence[int],
    warm_up_s: float, seconds: float, turn: int,
) -> None:  # fmt: skip
    """All loads of one system in one round. `most` keeps what it can do from the first round."""
    start = SYSTEMS[name][0]
    with tempfile.TemporaryDirectory(prefix="pyromq-open-loop-") as directory, ExitStack() as stack:
        started = stack.enter_context(start(Path(directory)))
        for body_bytes in sizes:
            for count in topics:
                prefix = f"t{turn}-{body_bytes}-{count}"
                key = f"{name} {body_bytes} {count}"
                if key not in most:
                    most[key] = can_do(started, f"{prefix}-most", count, body_bytes, warm_up_s, seconds)
                    say(f"{name}, {body_bytes} B, {count} topics: can do {most[key]:,.0f}/s")
                for percent in PERCENTS:
                    rate = most[key] * percent / 100
                    figures = measure(
                        started, f"{prefix}-{percent}", count, body_bytes, rate, warm_up_s, seconds
                    )
                    figures["asked rate"] = rate
                    cell = cell_name(body_bytes, count, percent)
                    found.setdefault(cell, {}).setdefault(name, []).append(figures)
                    say(f"{name}, {cell}: " + ", ".join(f"{k} {v:,.2f}" for k, v in figures.items()))


def middle(rounds: Sequence[Figures], name: str) -> float | None:
    values = [each[name] for each in rounds if name in each]
    return statistics.median(values) if values else None


def table(found: Found, names: Sequence[str]) -> str:
    columns = [f"{way} {share}" for way in ("publish", "end to end") for share in SHARES]
    titles = [each.replace("p9999", "p99.99").replace("p999", "p99.9") + " ms" for each in columns]
    parts = []
    for cell, systems in found.items():
        parts += ["", f"### {cell}", "", f"| | messages/s | {' | '.join(titles)} | lost or refused |"]
        parts.append("|---" + "|---:" * (len(columns) + 2) + "|")
        for name in names:
            rounds = systems.get(name, [])
            if not rounds:
                continue
            cells = [middle(rounds, each) for each in columns]
            shown = " | ".join("–" if each is None else f"{each:,.2f}" for each in cells)
            bad = sum(each["publish failed"] + each["end to end missing"] for each in rounds)
            parts.append(f"| {name} | {middle(rounds, 'asked rate'):,.0f} | {shown} | {bad:,.0f} |")
    return "\n".join(parts).strip()


def draw(
    found: Found, names: Sequence[str], sizes: Sequence[int], topics: Sequence[int], place: Path
) -> None:
    """A picture for each size and number of topics: p99 of the end-to-end latency over the rate."""
    for body_bytes in sizes:
        for count in topics:
            curves = []
            for name in names:
                cells = [found.get(cell_name(body_bytes, count, each), {}).get(name, []) for each in PERCENTS]
                points = [
                    (rate, latency)
                    for rounds in cells
                    if (rate := middle(rounds, "asked rate"))
                    and (latency := middle(rounds, "end to end p99"))
                ]
                curves.append(Curve(name, points))
            title = f"p99 from due to consumed, {body_bytes} B, {count} topic{'s' * (count > 1)}"
            (place / f"open-loop-{body_bytes}-{count}.svg").write_text(picture(title, curves))


def known_systems(wanted: Sequence[str]) -> list[str]:
    """By name, or by the beginning of a name."""
    found = [name for name in SYSTEMS if any(name.startswith(each) for each in wanted)]
    if not found:
        raise SystemExit(f"no such system: {', '.join(wanted)}; there are {', '.join(SYSTEMS)}")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="one short round: does it work at all?")
    parser.add_argument("--systems", default=",".join(SYSTEMS))
    parser.add_argument("--sizes", default=",".join(map(str, SIZES)))
    parser.add_argument("--topics", default="1,16")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--warm-up", type=float, default=5, help="seconds of each load before what is measured"
    )
    parser.add_argument("--seconds", type=float, default=15, help="measured time of each load")
    parser.add_argument("--json", type=Path, help="write the figures to this file as well")
    parser.add_argument("--pictures", type=Path, help="a directory for pictures")
    options = parser.parse_args()
    names = known_systems(options.systems.split(","))
    sizes, topics = (list(map(int, each.split(","))) for each in (options.sizes, options.topics))
    rounds, warm_up_s, seconds = options.rounds, options.warm_up, options.seconds
    if options.quick:
        rounds, warm_up_s, seconds = 1, 1.0, 2.0
    found: Found = {}
    most: dict[str, float] = {}
    began_s = time.monotonic()
    for turn in range(rounds):
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            try:
                run_system(
                    name,
                    found,
                    most,
                    sizes=sizes,
                    topics=topics,
                    warm_up_s=warm_up_s,
                    seconds=seconds,
                    turn=turn,
                )
            except (PeerUnavailable, OSError, RuntimeError, subprocess.SubprocessError) as reason:
                say(f"{name} left out: {reason}")
    shown = [name for name in names if any(name in systems for systems in found.values())]
    python = sys.version.split()[0]
    loads = [figures["load"] for systems in found.values() for each in systems.values() for figures in each]
    print(
        f"Python {python}; {os.cpu_count()} cores; {rounds} rounds;"
        f" {(time.monotonic() - began_s) / 60:.0f} min"
    )
    if loads:
        print(f"Load of the machine, that of the benchmark included: {min(loads):.1f} to {max(loads):.1f}.")
    print(
        f"\n| system | client | what an answer promises | can do, {IN_FLIGHT} in flight |\n|---|---|---|---|"
    )
    for name in shown:
        can = ", ".join(f"{rate:,.0f}/s" for key, rate in most.items() if key.startswith(f"{name} "))
        print(f"| {name} | {SYSTEMS[name][1]} | {SYSTEMS[name][2]} | {can} |")
    print(f"\n{table(found, shown)}")
    if options.pictures:
        options.pictures.mkdir(parents=True, exist_ok=True)
        draw(found, shown, sizes, topics, options.pictures)
    if options.json:
        options.json.write_text(json.dumps({"can do": most, "open loop": found}, indent=1) + "\n")


if __name__ == "__main__":
    main()
