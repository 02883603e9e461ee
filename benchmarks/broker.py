"""The broker under load, over real sockets; the same load on Apache's own where Maven can fetch it.

    python -m benchmarks.broker [--quick] [--servers pyromq,apache-5.3.3,apache-4.9.7] [--json FILE]

All brokers are up at once and take turns, cell by cell: whoever is not measured is stopped (SIGSTOP) and
costs nothing. A cell is measured in every round; the figure is the median, the spread the lowest and highest.
"""

from __future__ import annotations

import argparse
import contextlib
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


@dataclass(frozen=True)
class Plan:
    connections: Sequence[int]
    windows: Sequence[int]
    forms: Sequence[str]
    batches: Sequence[int]
    flushes: Sequence[str]
    rounds: int
    seconds: int
    warm_up: int
    """Before each measured load."""
    compiling_s: int
    """Load of each kind before the first figure: a JVM compiles its hot paths only after some of them."""
    filled_s: int
    held_connections: int
    held_per_connection: int
    idle_s: int

    @property
    def held(self) -> int:
        return self.held_connections * self.held_per_connection


# ------------------------------------------------------------------------------------------- brokers


@dataclass(frozen=True)
class Running:
    """A broker that is stopped unless it is its turn."""

    name: str
    port: int
    pid: int

    def rss_mb(self) -> float:
        status = Path(f"/proc/{self.pid}/status").read_text()
        return int(status.split("VmRSS:")[1].split()[0]) / 1024

    def cpu_s(self) -> float:
        return time.clock_gettime(_cpu_clock(self.pid))

    @contextlib.contextmanager
    def turn(self) -> Iterator[None]:
        os.kill(self.pid, signal.SIGCONT)
        try:
            yield
        finally:
            os.kill(self.pid, signal.SIGSTOP)


def _cpu_clock(pid: int) -> int:
    """The clock of a process's CPU time, as clock_getcpuclockid(3) makes it."""
    return ~pid << 3 | 2


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
            # A stopped process cannot be asked to end: it goes on first.
            stack.callback(os.kill, server.pid, signal.SIGCONT)
            os.kill(server.pid, signal.SIGSTOP)
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
    figures: dict[str, dict[str, float]] = field(default_factory=dict)

    def add(self, cell: str, server: str, sample: Sample) -> None:
        self.samples.setdefault((cell, server), []).append(sample)
        _say(
            f"  {cell}: {server}: {sample.rate:,.0f}/s, {sample.cpu_us:.2f} µs CPU, "
            f"p99 {sample.p99:,.0f} µs{f', {sample.errors} refused' if sample.errors else ''}"
        )

    def note(self, figure: str, server: str, value: float) -> None:
        self.figures.setdefault(figure, {})[server] = value
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
        for size, connections, window, form in itertools.product(
            SIZES, plan.connections, plan.windows, plan.forms
        )
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
            SIZES, plan.batches, plan.connections, plan.forms
        )
    ]  # fmt: skip


def load(server: Running, cell: Cell, seconds: int, warm_up: int) -> Sample:
    said = run_loadgen(
        "-P", str(server.port), "-p", str(server.pid), "-t", str(seconds), "-u", str(warm_up), *cell.options
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
    """Every cell on every server in every round; who begins changes from round to round."""
    for round_number in range(plan.rounds):
        order = [*servers[round_number % len(servers) :], *servers[: round_number % len(servers)]]
        for cell in cells:
            for server in order:
                with server.turn():
                    results.add(cell.name, server.name, load(server, cell, plan.seconds, plan.warm_up))


def compile_hot_paths(servers: Sequence[Running], plan: Plan) -> None:
    for server in servers:
        _say(f"  warming up {server.name}: {plan.compiling_s} s of each kind of load")
        with server.turn():
            for form, size in itertools.product(plan.forms, SIZES):
                options = ("-m", "send", "-T", "sent", "-b", str(size), "-c", "8", "-w", "8", "-s", form)
                load(server, Cell("", options), plan.compiling_s, 0)


def fill(servers: Sequence[Running], plan: Plan) -> dict[int, int]:
    """Put messages of each size into a topic of their own; the length of its shortest queue anywhere."""
    shortest: dict[int, int] = {}
    for server in servers:
        with server.turn():
            for size in SIZES:
                topic = PULLED_TOPIC.format(size=size)
                options = ("-m", "send", "-T", topic, "-b", str(size), "-c", "8", "-w", "16")
                load(server, Cell("", options), plan.filled_s, 0)
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


def comparison(results: Results, cells: Sequence[str], own: str, other: str) -> str:
    """Markdown: both servers' medians, and how many times Apache's figure ours is, with its spread."""
    lines = [
        f"| load | messages/s | {other} | × | CPU µs/message | {other} | × "
        f"| p50 µs | {other} | p99 µs | {other} | p99.9 µs | {other} |",
        "|---|" + "---:|" * 12,
    ]
    for cell in cells:
        ours, theirs = results.samples.get((cell, own), []), results.samples.get((cell, other), [])
        if not ours or not theirs:
            continue
        columns = [cell]
        for name in ("rate", "cpu_us"):
            mine, its = [getattr(s, name) for s in ours], [getattr(s, name) for s in theirs]
            ratios = [a / b for a, b in zip(mine, its, strict=False) if b]
            columns += [_short(statistics.median(mine)), _short(statistics.median(its)), _spread(ratios)]
        for name in ("p50", "p99", "p999"):
            columns += [
                _short(statistics.median(getattr(s, name) for s in ours)),
                _short(statistics.median(getattr(s, name) for s in theirs)),
            ]
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
                _short(statistics.median(getattr(s, name) for s in samples))
                for name in ("rate", "cpu_us", "p50", "p99", "p999")
            ]
            lines.append("| " + " | ".join([cell, *columns]) + " |")
    return "\n".join(lines)


def figures_table(results: Results, servers: Sequence[str]) -> str:
    lines = ["| figure | " + " | ".join(servers) + " |", "|---|" + "---:|" * len(servers)]
    for figure, values in results.figures.items():
        cells = [_short(values[server]) if server in values else "–" for server in servers]
        lines.append(f"| {figure} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def behind(results: Results, own: str, other: str) -> list[str]:
    """Where the other is better: a lower rate, more than half its CPU, a worse p99."""
    said = []
    for cell, server in results.samples:
        if server != own or (cell, other) not in results.samples:
            continue
        ours, theirs = results.samples[cell, own], results.samples[cell, other]

        rate, cpu, p99 = (_ratio(ours, theirs, name) for name in ("rate", "cpu_us", "p99"))
        reasons = []
        if rate < 1:
            reasons.append(f"rate × {rate:.2f}")
        if cpu > 0.5:
            reasons.append(f"CPU × {cpu:.2f}")
        if p99 > 1:
            reasons.append(f"p99 × {p99:.2f}")
        if reasons:
            said.append(f"- {cell}: {', '.join(reasons)}")
    return said


def _ratio(ours: Sequence[Sample], theirs: Sequence[Sample], name: str) -> float:
    mine = statistics.median(float(getattr(sample, name)) for sample in ours)
    its = statistics.median(float(getattr(sample, name)) for sample in theirs)
    return mine / its if its else 1.0


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _spread(ratios: Sequence[float]) -> str:
    if not ratios:
        return "–"
    middle = f"**{statistics.median(ratios):.2f}**"
    return middle if len(ratios) == 1 else f"{middle} ({min(ratios):.2f}–{max(ratios):.2f})"


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
                    load(server, cell, plan.compiling_s, 0)
        measure(servers, cells, plan, results)
        if "async" in plan.flushes:
            cells = send_cells(plan, "async")
            sends += [cell.name for cell in cells]
            measure(servers, cells, plan, results)
        for server in servers:
            results.note("after all loads: memory, MB RSS", server.name, server.rss_mb())
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
            sample = load(server, Cell("", options), plan.seconds, 1)
            results.note(f"generator's own limit, {connections} × {window}: per s", server.name, sample.rate)


def report(
    results: Results, sends: Sequence[str], pulls: Sequence[str], names: Sequence[str], plan: Plan
) -> str:
    parts = [
        f"{plan.rounds} interleaved rounds of {plan.seconds} s after {plan.warm_up} s of warm-up each; "
        f"Python {sys.version.split()[0]}; {os.cpu_count()} cores shared by the generator and one broker at "
        "a time, loopback. × is ours ÷ Apache's, the median of the rounds, with the lowest and highest.",
        f"Apache's brokers: {' '.join(APACHE_JVM)}, full JIT, {plan.compiling_s} s of each kind of load "
        "before the first figure. All brokers: "
        + ", ".join(f"{key}={value}" for key, value in SETTINGS.items())
        + ".",
    ]
    others = [name for name in names if name != "pyromq"]
    for title, cells in (
        ("Sends (flush, size, connections × in flight, header form)", sends),
        ("Pulls", pulls),
    ):
        parts.append(f"## {title}")
        parts += [comparison(results, cells, "pyromq", other) for other in others]
        if not others:
            parts.append(alone(results, cells, names[0]))
    for other in others:
        if where := behind(results, "pyromq", other):
            parts.append(
                f"## Where {other} is better, or our CPU is more than half of its own\n\n" + "\n".join(where)
            )
    parts.append("## Idle, and holding polls")
    parts.append(figures_table(results, [*names, "loadgen's own responder"]))
    return "\n\n".join(parts)


def plan_of(options: argparse.Namespace) -> Plan:
    if options.quick:
        return Plan(
            connections=(1, 8), windows=(1, 8), forms=("json",), batches=(32,), flushes=("async", "sync"),
            rounds=1, seconds=1, warm_up=1, compiling_s=2, filled_s=1, held_connections=50,
            held_per_connection=20, idle_s=1,
        )  # fmt: skip
    return Plan(
        connections=(1, 8, 64), windows=(1, 8, 64), forms=FORMS, batches=(32, 1000),
        flushes=tuple(options.flush.split(",")), rounds=options.rounds, seconds=options.seconds,
        warm_up=options.warm_up, compiling_s=10, filled_s=8, held_connections=500, held_per_connection=20,
        idle_s=15,
    )  # fmt: skip


def available(names: Sequence[str]) -> list[str]:
    """Those that can be had; says which are left out and why."""
    found = []
    for name in names:
        try:
            if name != "pyromq":
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
    parser.add_argument("--seconds", type=int, default=3, help="measured time of each load")
    parser.add_argument("--warm-up", type=int, default=1, help="seconds of each load before that")
    parser.add_argument("--json", type=Path, help="write the figures to this file as well")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    plan = plan_of(options)
    names = available(options.servers.split(","))
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
