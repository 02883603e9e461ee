"""The broker under load, over real sockets; the same load on Apache's own where Maven can fetch it.

    python -m benchmarks.broker [--quick] [--minutes N] [--servers pyromq,apache-5.3.3,apache-4.9.7]
                                [--json FILE]

All brokers take turns, load by load, round by round (benchmarks/turns.py). A measured load ends when the
broker has used a fixed CPU time, so that a busy machine makes it longer, not smaller.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import itertools
import json
import os
import selectors
import shutil
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from benchmarks import wire
from benchmarks.native import Responder, run_loadgen
from benchmarks.turns import Running, compared, hold, orders, ratios, short, spread
from tests.support.apache import ApacheBroker, free_ports
from tests.support.apache_releases import APACHE_4, APACHE_5, PeerUnavailable, Release, fetch
from tests.support.own_broker import OwnBroker
from tests.support.own_nameserver import OwnNameServer

# Apache's start script asks for 8 GB; its store lives in the page cache, and this heap never ran short here.
APACHE_JVM: Final = ("-Xms2g", "-Xmx2g", "-XX:+UseG1GC", "-XX:MaxDirectMemorySize=1g")

SETTINGS: Final = {
    # Files as large as they are by default; the tests make them small.
    "mappedFileSizeCommitLog": str(1 << 30),
    "mappedFileSizeConsumeQueue": str(300_000 * 20),
    "maxHashSlotNum": "5000000",
    "maxIndexNum": "20000000",
    # By default a pull gets 32 messages or 256 KiB at most, 8 or 64 KiB far behind the end of the log.
    "maxTransferCountOnMessageInMemory": "1000",
    "maxTransferBytesOnMessageInMemory": str(4 << 20),
    "maxTransferCountOnMessageInDisk": "1000",
    "maxTransferBytesOnMessageInDisk": str(4 << 20),
    # By default a send that waited 200 ms is refused: the load shall be served, not refused.
    "waitTimeMillsInSendQueue": "5000",
    "fileReservedTime": "72",
    "diskMaxUsedSpaceRatio": "95",
}
"""The same for every broker."""

FORMS: Final = ("json", "bin")
SIZES: Final = (100, 1024)
PULLED_TOPIC: Final = "pulled-{size}"
HELD_TOPIC: Final = "held"
HELD_QUEUES: Final = 100
LONGEST: Final = 2
"""A measured load that leaves the broker idle ends after this many times its CPU time."""
PATIENCE: Final = 5
"""The same of loads that only warm up."""


CACHED: Final = "pages of mapped files in memory"
"""They are cache: the kernel takes them back when others need them."""


@dataclass(frozen=True)
class Plan:
    in_flight: Sequence[tuple[int, int]]
    """Connections, and requests in flight on each."""
    readers: Sequence[int]
    """Connections of pulls."""
    forms: Sequence[str]
    pull_forms: Sequence[str]
    batches: Sequence[int]
    flushes: Sequence[str]
    rounds: int
    cpu_s: int
    """What a broker may use in each measured load."""
    warm_up: int
    """Seconds before each measured load."""
    compiling_s: int
    """CPU time of each kind of load before the first figure: a JVM compiles its hot paths only then."""
    filled_s: int
    held_connections: int
    held_per_connection: int
    idle_s: int

    @property
    def held(self) -> int:
        return self.held_connections * self.held_per_connection


# ------------------------------------------------------------------------------------------- brokers


@contextlib.contextmanager
def pyromq(name_server: str, store: Path, flush: str) -> Iterator[Running]:
    settings = {**SETTINGS, "flushDiskType": flush, "storePathRootDir": str(store)}
    with OwnBroker(name_server, settings=settings) as broker:
        yield Running("pyromq", broker.port, broker.pid)


@contextlib.contextmanager
def apache(release: Release, name_server: str, store: Path, flush: str) -> Iterator[Running]:
    settings = {**SETTINGS, "flushDiskType": flush}
    name = f"apache-{release.servers}"
    with ApacheBroker(release, name_server, store, name=name, settings=settings, jvm=APACHE_JVM) as broker:
        assert broker.pid is not None
        yield Running(name, broker.port, broker.pid)


Start = Callable[[str, Path, str], contextlib.AbstractContextManager[Running]]
SERVERS: Final[dict[str, Start]] = {
    "pyromq": pyromq,
    "apache-5.3.3": lambda *where: apache(APACHE_5, *where),
    "apache-4.9.7": lambda *where: apache(APACHE_4, *where),
}
OWN: Final = "pyromq"
TITLES: Final = {
    "rate": "messages/s",
    "cpu_us": "CPU µs/message",
    "p50": "p50 µs",
    "p99": "p99 µs",
    "p999": "p99.9 µs",
}


@contextlib.contextmanager
def running(names: Sequence[str], flush: str) -> Iterator[list[Running]]:
    """All brokers, stopped, each with an empty store on the same disk."""
    with contextlib.ExitStack() as stack:
        name_server = stack.enter_context(OwnNameServer())
        servers: list[Running] = []
        for name in names:
            # A JVM needs its own `with` block to end before its files go.
            store = Path(tempfile.mkdtemp(prefix="pyromq-bench-"))
            stack.callback(shutil.rmtree, store, ignore_errors=True)
            server = stack.enter_context(SERVERS[name](name_server.address, store / "store", flush))
            hold(server, stack)
            servers.append(server)
        yield servers


# ------------------------------------------------------------------------------------------- loads


@dataclass(frozen=True)
class Cell:
    """One load; `options` are loadgen's."""

    name: str
    options: tuple[str, ...]
    is_pull: bool = False


@dataclass
class Sample:
    """What one load showed."""

    rate: float
    cpu_us: float
    p50: float
    p99: float
    p999: float
    errors: int


@dataclass
class Results:
    samples: dict[tuple[str, str], list[Sample]] = field(default_factory=dict)
    figures: dict[str, dict[str, list[float]]] = field(default_factory=dict)
    """What is not about a load: one value a round, or one alone."""

    def add(self, cell: str, server: str, sample: Sample) -> None:
        self.samples.setdefault((cell, server), []).append(sample)
        _say(
            f"  {cell}: {server}: {sample.rate:,.0f}/s, {sample.cpu_us:.2f} µs CPU, "
            f"p99 {sample.p99:,.0f} µs{f', {sample.errors} refused' if sample.errors else ''}"
        )

    def note(self, figure: str, server: str, value: float) -> None:
        self.figures.setdefault(figure, {}).setdefault(server, []).append(value)
        _say(f"  {figure}: {server}: {value:,.2f}")


def send_cells(plan: Plan, flush: str) -> list[Cell]:
    return [
        Cell(
            f"{flush}, {size} B, {connections} × {window}, {form}",
            (
                "-m",
                "send",
                "-T",
                "sent",
                "-b",
                str(size),
                "-c",
                str(connections),
                "-w",
                str(window),
                "-s",
                form,
            ),
        )
        for size, (connections, window), form in itertools.product(SIZES, plan.in_flight, plan.forms)
    ]


def pull_cells(plan: Plan, queue_length: Callable[[int], int]) -> list[Cell]:
    return [
        Cell(
            f"{batch:,} at a time, {size} B, {connections} connections, {form}",
            (
                "-m", "pull", "-T", PULLED_TOPIC.format(size=size), "-n", str(batch), "-c", str(connections),
                "-s", form, "-R", str(queue_length(size)),
            ),
            is_pull=True,
        )
        for size, batch, connections, form in itertools.product(
            SIZES, plan.batches, plan.readers, plan.pull_forms
        )
    ]  # fmt: skip


def load(server: Running, cell: Cell, cpu_s: int) -> None:
    """A load until the server has used so much CPU time: with less, no JVM has compiled what matters."""
    run_loadgen(
        "-P", str(server.port), "-p", str(server.pid), "-u", "0",
        "-C", str(1000 * cpu_s), "-t", str(PATIENCE * cpu_s), *cell.options,
    )  # fmt: skip


def sample(server: Running, cell: Cell, cpu_s: int, warm_up: int) -> Sample:
    """A load that ends when the server has used so much CPU time, or has had time to use it twice."""
    said = run_loadgen(
        "-P", str(server.port), "-p", str(server.pid), "-u", str(warm_up),
        "-C", str(1000 * cpu_s), "-t", str(LONGEST * cpu_s), *cell.options,
    )  # fmt: skip
    requests, cpu_us = float(said["rate"]), float(said["cpu_us"])
    messages = float(said["messages"]) if cell.is_pull else requests
    return Sample(
        rate=messages,
        cpu_us=cpu_us * requests / messages if messages else 0.0,
        p50=float(said["p50"]),
        p99=float(said["p99"]),
        p999=float(said["p999"]),
        errors=int(said["errors"]),
    )


def measure(servers: Sequence[Running], cells: Sequence[Cell], plan: Plan, results: Results) -> None:
    """Every cell on every server in every round."""
    for order in orders(servers, plan.rounds):
        for cell in cells:
            for server in order:
                with server.turn():
                    results.add(cell.name, server.name, sample(server, cell, plan.cpu_s, plan.warm_up))
        for server in servers:
            cached_mb = server.file_pages_mb()
            results.note("under load: private memory, MB", server.name, server.rss_mb() - cached_mb)
            results.note(f"under load: {CACHED}, MB", server.name, cached_mb)


def compile_hot_paths(servers: Sequence[Running], plan: Plan) -> None:
    for server in servers:
        _say(f"  warming up {server.name}: {plan.compiling_s} s of CPU with each kind of load")
        with server.turn():
            for form, size in itertools.product(plan.forms, SIZES):
                options = ("-m", "send", "-T", "sent", "-b", str(size), "-c", "8", "-w", "8", "-s", form)
                load(server, Cell("", options), plan.compiling_s)


def fill(servers: Sequence[Running], plan: Plan) -> dict[int, int]:
    """Put messages of each size into a topic of their own; the length of its shortest queue anywhere."""
    shortest: dict[int, int] = {}
    for server in servers:
        with server.turn():
            for size in SIZES:
                topic = PULLED_TOPIC.format(size=size)
                options = ("-m", "send", "-T", topic, "-b", str(size), "-c", "8", "-w", "16")
                load(server, Cell("", options), plan.filled_s)
                asking = wire.Wire(server.port)
                for queue in range(4):
                    length = wire.max_offset(asking, topic, queue)
                    shortest[size] = min(shortest.get(size, length), length)
                asking.close()
    return shortest


# ------------------------------------------------------------------------------------------- idling


def idle(server: Running, plan: Plan, results: Results) -> None:
    with server.turn():
        time.sleep(2)
        before = server.cpu_s()
        time.sleep(plan.idle_s)
        results.note("idle: memory, MB RSS", server.name, server.rss_mb())
        results.note("idle: CPU, ms a second", server.name, (server.cpu_s() - before) / plan.idle_s * 1000)


def held_polls(server: Running, plan: Plan, results: Results) -> None:
    """Long polls on empty queues, then one message: only those who wait for its queue may be answered."""
    with server.turn(), contextlib.ExitStack() as stack:
        asking = stack.enter_context(contextlib.closing(wire.Wire(server.port)))
        header, _ = asking.call(wire.create_topic(HELD_TOPIC, HELD_QUEUES))
        if header["code"] != 0:
            raise RuntimeError(f"{server.name} did not create a topic: {header}")
        rss_before, cpu_before = server.rss_mb(), server.cpu_s()
        connections = [
            stack.enter_context(contextlib.closing(wire.Wire(server.port)))
            for _ in range(plan.held_connections)
        ]
        number = itertools.count()
        for connection in connections:
            connection.send(
                *(
                    wire.long_poll(HELD_TOPIC, index % HELD_QUEUES, wire.FIRST_OPAQUE + index)
                    for index in itertools.islice(number, plan.held_per_connection)
                )
            )
        time.sleep(3)
        results.note(f"{plan.held:,} held polls: CPU of their arrival, µs each", server.name,
                     (server.cpu_s() - cpu_before) / plan.held * 1e6)  # fmt: skip
        results.note(f"{plan.held:,} held polls: memory, KB RSS each", server.name,
                     (server.rss_mb() - rss_before) * 1024 / plan.held)  # fmt: skip
        cpu_before = server.cpu_s()
        time.sleep(plan.idle_s)
        results.note(f"{plan.held:,} held polls: CPU while idle, ms a second", server.name,
                     (server.cpu_s() - cpu_before) / plan.idle_s * 1000)  # fmt: skip
        began = time.perf_counter()
        cpu_before = server.cpu_s()
        header, _ = asking.call(wire.send(HELD_TOPIC, 7))
        if header["code"] != 0:
            raise RuntimeError(f"{server.name} did not take a message: {header}")
        woken, last = answered(connections, quiet_s=2.0)
        results.note(f"{plan.held:,} held polls: woken by one message", server.name, woken)
        results.note(f"{plan.held:,} held polls: until the last of them was answered, ms", server.name,
                     (last - began) * 1000)  # fmt: skip
        if woken != plan.held // HELD_QUEUES:
            raise RuntimeError(f"{server.name} woke {woken}, not {plan.held // HELD_QUEUES}")


def answered(connections: Sequence[wire.Wire], quiet_s: float) -> tuple[int, float]:
    """How many answers came until none came for a while, and when the last did."""
    count, last = 0, time.perf_counter()
    with selectors.DefaultSelector() as selector:
        for connection in connections:
            selector.register(connection, selectors.EVENT_READ)
        while ready := selector.select(quiet_s):
            for key, _ in ready:
                assert isinstance(key.fileobj, wire.Wire)
                count += len(key.fileobj.receive_whole())
            last = time.perf_counter()
    return count, last


# ------------------------------------------------------------------------------------------- reporting


def comparison(results: Results, cells: Sequence[str], own: str, other: str, names: Sequence[str]) -> str:
    """Markdown: for each of the named figures ours, Apache's, and ours ÷ Apache's with its spread."""
    lines = [
        "| load | " + " | ".join(f"{TITLES[name]} | {other} | ×" for name in names) + " |",
        "|---|" + "---:|" * (3 * len(names)),
    ]
    for cell in cells:
        ours, theirs = results.samples.get((cell, own), []), results.samples.get((cell, other), [])
        if not ours or not theirs:
            continue
        columns = [cell]
        for name in names:
            columns += compared([getattr(s, name) for s in ours], [getattr(s, name) for s in theirs])
        refused = sum(s.errors for s in ours), sum(s.errors for s in theirs)
        if any(refused):
            columns[0] += f" (refused: {refused[0]:,} and {refused[1]:,})"
        lines.append("| " + " | ".join(columns) + " |")
    return "\n".join(lines)


def alone(results: Results, cells: Sequence[str], server: str) -> str:
    lines = ["| load | messages/s | CPU µs/message | p50 µs | p99 µs | p99.9 µs |", "|---|" + "---:|" * 5]
    for cell in cells:
        if samples := results.samples.get((cell, server)):
            columns = [
                short(statistics.median(getattr(s, name) for s in samples))
                for name in ("rate", "cpu_us", "p50", "p99", "p999")
            ]
            lines.append("| " + " | ".join([cell, *columns]) + " |")
    return "\n".join(lines)


def figures_table(results: Results, names: Sequence[str], others: Sequence[str]) -> str:
    lines = [
        "| figure | " + " | ".join([*names, *(f"÷ {other}" for other in others)]) + " |",
        "|---|" + "---:|" * (len(names) + len(others)),
    ]
    for figure, values in results.figures.items():
        cells = [short(statistics.median(values[name])) if name in values else "–" for name in names]
        cells += [spread(ratios(values.get(OWN, []), values.get(other, []))) for other in others]
        lines.append(f"| {figure} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def behind(results: Results, own: str, other: str, names: Sequence[str] = tuple(TITLES)) -> list[str]:
    """Where the other is better: a lower rate, more CPU a message, longer waits, more memory."""
    said = []
    for (cell, server), ours in results.samples.items():
        theirs = results.samples.get((cell, other))
        if server != own or theirs is None:
            continue
        reasons = []
        for name in names:
            is_worse = -1 if name == "rate" else 1
            found = ratios([getattr(s, name) for s in ours], [getattr(s, name) for s in theirs])
            if found and (statistics.median(found) - 1) * is_worse > 0:
                reasons.append(f"{TITLES[name]} × {statistics.median(found):.2f}")
        if reasons:
            said.append(f"- {cell}: {', '.join(reasons)}")
    for figure, values in results.figures.items():
        found = ratios(values.get(own, []), values.get(other, []))
        # What is counted, not what is used up, is neither better nor worse.
        if found and statistics.median(found) > 1 and "woken by" not in figure and CACHED not in figure:
            said.append(f"- {figure}: × {statistics.median(found):.2f}")
    return said


def _say(line: str) -> None:
    sys.stderr.write(line + "\n")
    sys.stderr.flush()


# ------------------------------------------------------------------------------------------- all of it


def run(names: Sequence[str], plan: Plan) -> tuple[Results, list[str], list[str]]:
    results = Results()
    sends: list[str] = []
    pulls: list[str] = []
    with running(names, "ASYNC_FLUSH") as servers:
        for server in servers:
            idle(server, plan, results)
        for server in servers:
            held_polls(server, plan, results)
        compile_hot_paths(servers, plan)
        lengths = fill(servers, plan)
        cells = pull_cells(plan, lengths.__getitem__)
        pulls += [cell.name for cell in cells]
        # Pulls have hot paths of their own.
        for server in servers:
            with server.turn():
                for cell in cells[:: max(1, len(cells) // 4)]:
                    load(server, cell, plan.compiling_s)
        measure(servers, cells, plan, results)
        if "async" in plan.flushes:
            cells = send_cells(plan, "async")
            sends += [cell.name for cell in cells]
            measure(servers, cells, plan, results)
    if "sync" in plan.flushes:
        with running(names, "SYNC_FLUSH") as servers:
            compile_hot_paths(servers, plan)
            cells = send_cells(plan, "sync")
            sends += [cell.name for cell in cells]
            measure(servers, cells, plan, results)
    return results, sends, pulls


def generator_limit(plan: Plan, results: Results) -> None:
    """The same sends against a server that does next to nothing."""
    with Responder(free_ports(), 0) as responder:
        server = Running("loadgen's own responder", responder.port, responder.pid)
        for connections, window in ((1, 1), (8, 8), (64, 64)):
            options = ("-m", "send", "-T", "sent", "-b", "100", "-c", str(connections), "-w", str(window))
            rate = sample(server, Cell("", options), plan.cpu_s, 1).rate
            results.note(f"generator's own limit, {connections} × {window}: per s", server.name, rate)


def report(
    results: Results, sends: Sequence[str], pulls: Sequence[str], names: Sequence[str], plan: Plan
) -> str:
    parts = [
        f"{plan.rounds} interleaved rounds. A measured load ends when the broker has used {plan.cpu_s} s of "
        f"CPU, or after {LONGEST * plan.cpu_s} s; {plan.warm_up} s of the same load go before it. Python "
        f"{sys.version.split()[0]}; {os.cpu_count()} cores shared by the generator and one broker at a time, "
        "loopback. The ratio × is ours ÷ Apache's, the median of the rounds, with the lowest and highest.",
        f"Apache's brokers: {' '.join(APACHE_JVM)}, full JIT, {plan.compiling_s} s of CPU with each kind of "
        "load before the first figure. All brokers: "
        + ", ".join(f"{key}={value}" for key, value in SETTINGS.items())
        + ".",
    ]
    others = [name for name in names if name != OWN]
    for title, cells in (
        ("Sends (flush, size, connections × in flight, header form)", sends),
        ("Pulls", pulls),
    ):
        parts.append(f"## {title}")
        for other in others:
            parts.append(comparison(results, cells, OWN, other, ("rate", "cpu_us")))
            parts.append(comparison(results, cells, OWN, other, ("p50", "p99", "p999")))
        if not others:
            parts.append(alone(results, cells, names[0]))
    parts.append("## Memory, idling, and holding polls")
    parts.append(figures_table(results, [*names, "loadgen's own responder"], others))
    for other in others:
        parts.append(f"## Where ours is behind {other}")
        parts.append("\n".join(behind(results, OWN, other)) or "Nowhere in this run.")
    return "\n\n".join(parts)


def plan_of(options: argparse.Namespace, servers: int) -> Plan:
    if options.quick:
        return Plan(
            in_flight=((1, 1), (8, 8)), readers=(8,), forms=("json",), pull_forms=("json",), batches=(32,),
            flushes=("async", "sync"), rounds=2, cpu_s=1, warm_up=1, compiling_s=2, filled_s=1,
            held_connections=50, held_per_connection=20, idle_s=1,
        )  # fmt: skip
    flushes = tuple(options.flush.split(","))
    if options.minutes is not None:
        chosen = Plan(
            in_flight=((1, 1), (8, 8), (64, 64)), readers=(1, 8), forms=FORMS, pull_forms=("json",),
            batches=(32, 1000), flushes=flushes, rounds=1, cpu_s=options.seconds, warm_up=options.warm_up,
            compiling_s=5, filled_s=4, held_connections=500, held_per_connection=20, idle_s=5,
        )  # fmt: skip
        return dataclasses.replace(chosen, rounds=rounds_within(options.minutes * 60, chosen, servers))
    return Plan(
        in_flight=tuple(itertools.product((1, 8, 64), (1, 8, 64))), readers=(1, 8, 64), forms=FORMS,
        pull_forms=FORMS, batches=(32, 1000), flushes=flushes, rounds=options.rounds, cpu_s=options.seconds,
        warm_up=options.warm_up, compiling_s=10, filled_s=8, held_connections=500, held_per_connection=20,
        idle_s=15,
    )  # fmt: skip


def rounds_within(seconds: float, plan: Plan, servers: int) -> int:
    """How many rounds of a plan fit into a time; one at least."""
    kinds = len(plan.forms) * len(SIZES)
    # Starting, idling, holding polls; then loads of each kind, for each flush mode and for pulls.
    before = 20 + plan.idle_s * 2 + 10 + kinds * plan.compiling_s * (len(plan.flushes) + 1)
    before += plan.filled_s * len(SIZES)
    sends = len(SIZES) * len(plan.in_flight) * len(plan.forms) * len(plan.flushes)
    pulls = len(SIZES) * len(plan.batches) * len(plan.readers) * len(plan.pull_forms)
    # Most loads keep more than one core busy, some hardly any.
    a_round = (sends + pulls) * (plan.warm_up + 1.5 * plan.cpu_s)
    return max(1, int((seconds / servers - before) // a_round))


def available(names: Sequence[str]) -> list[str]:
    """Those that can be had; says which are left out and why."""
    found = []
    for name in names:
        try:
            if name.startswith("apache-"):
                fetch(name.removeprefix("apache-"), "servers")
            found.append(name)
        except PeerUnavailable as reason:
            _say(f"{name} left out: {reason}")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--quick", action="store_true", help="few cells, one short round: does it work at all?"
    )
    parser.add_argument("--servers", default="pyromq,apache-5.3.3", help=f"of {', '.join(SERVERS)}")
    parser.add_argument("--flush", default="async,sync", help="flush modes of the sends")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=int, default=2, help="CPU time a broker may use in each load")
    parser.add_argument(
        "--minutes", type=float, help="choose loads and rounds so that it takes about so long"
    )
    parser.add_argument("--warm-up", type=int, default=1, help="seconds of each load before that")
    parser.add_argument("--json", type=Path, help="write the figures to this file as well")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    names = available(options.servers.split(","))
    plan = plan_of(options, len(names))
    results, sends, pulls = run(names, plan)
    generator_limit(plan, results)
    print(report(results, sends, pulls, names, plan))
    if options.json:
        document = {
            "plan": vars(plan),
            "samples": [
                {"load": cell, "server": server, "rounds": [vars(sample) for sample in samples]}
                for (cell, server), samples in results.samples.items()
            ],
            "figures": results.figures,
        }
        options.json.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
