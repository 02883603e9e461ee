"""The NameServer under load, over real sockets; the same against Apache's own where Maven can fetch it.

    python -m benchmarks.namesrv [--quick] [--minutes N] [--servers pyromq,apache-5.3.3,apache-4.9.7]
                                 [--json FILE]

Brokers are connections that register; look-ups and heartbeats come from the native load generator; watched
brokers are processes that die by SIGKILL. Name servers take turns, round by round (benchmarks/turns.py); a
measured load ends when the name server has used a fixed CPU time.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from benchmarks import wire
from benchmarks.native import Responder, run_loadgen
from benchmarks.turns import Running, hold, orders, ratios, short, spread
from tests.support.apache import ApacheNameServer, free_ports
from tests.support.apache_releases import APACHE_4, APACHE_5, PeerUnavailable, Release
from tests.support.own_nameserver import OwnNameServer

REPEATING_BROKERS: Final = 10
LONGEST: Final = 2
"""A load that leaves the name server idle ends after this many times its CPU time."""
# What Apache's start script gives a NameServer is 4 GB; this much is enough for these tables.
APACHE_JVM: Final = ("-Xms1g", "-Xmx1g", "-XX:+UseG1GC")


@dataclass(frozen=True)
class Plan:
    topics: int
    brokers: int
    brokers_per_topic: int
    queues_per_topic: int
    growth: Sequence[int]
    rounds: int
    cpu_s: int
    """What a name server may use in each measured load."""
    warm_up: int
    """A JVM compiles its hot paths only after some seconds of them."""
    kills: int

    @property
    def queues_per_broker(self) -> int:
        return max(1, self.queues_per_topic // self.brokers_per_topic)

    def topics_of(self, broker: int, topics: int) -> list[str]:
        """Topic t lives on brokers t, t+1, ... modulo their number."""
        return [
            wire.topic_name(t) for t in range(topics) if (broker - t) % self.brokers < self.brokers_per_topic
        ]

    def registrations_of(self, broker: int, topics: int) -> list[bytes]:
        fields = wire.broker_fields(broker)
        return wire.registrations(fields, self.topics_of(broker, topics), self.queues_per_broker)


@dataclass
class Result:
    """One server's figures, in the order they are printed: one value for each round."""

    server: str
    figures: dict[str, list[float]] = field(default_factory=dict)

    def note(self, name: str, value: float) -> None:
        self.figures.setdefault(name, []).append(value)
        sys.stderr.write(f"  {self.server}: {name} = {value:,.3f}\n")


@contextlib.contextmanager
def pyromq() -> Iterator[Running]:
    with OwnNameServer() as server:
        yield Running(OWN, server.port, server.pid)


@contextlib.contextmanager
def apache(release: Release) -> Iterator[Running]:
    with ApacheNameServer(release, jvm=APACHE_JVM) as server:
        assert server.pid is not None
        yield Running(f"apache-{release.servers}", server.port, server.pid)


Start = Callable[[], contextlib.AbstractContextManager[Running]]
OWN: Final = "pyromq"
SERVERS: Final[dict[str, Start]] = {
    OWN: pyromq,
    "apache-5.3.3": lambda: apache(APACHE_5),
    "apache-4.9.7": lambda: apache(APACHE_4),
}


# ------------------------------------------------------------------------------------------- registering


@contextlib.contextmanager
def registered(server: Running, plan: Plan, topics: int, result: Result | None = None) -> Iterator[None]:
    """All brokers connected and their topics registered; leaving the block hangs up."""
    brokers: list[wire.Wire] = []
    rss_before, cpu_before, spent_s = server.rss_mb(), server.cpu_s(), 0.0
    try:
        for number in range(plan.brokers):
            broker = wire.Wire(server.port)
            brokers.append(broker)
            for request in plan.registrations_of(number, topics):
                started = time.perf_counter()
                header, _ = broker.call(request)
                spent_s += time.perf_counter() - started
                if header["code"] != 0:
                    raise RuntimeError(f"registration refused: {header}")
        if result is not None:
            result.note("register all, s", spent_s)
            result.note("register all, server CPU s", server.cpu_s() - cpu_before)
            result.note("memory before, MB RSS", rss_before)
            result.note("memory after, MB RSS", server.rss_mb())
        yield
    finally:
        for broker in brokers:
            broker.close()
        _wait_until_gone(server, wire.topic_name(0))


def _wait_until_gone(server: Running, topic: str) -> None:
    """Whoever is stopped before it has seen brokers leave would see it in its next turn."""
    asking = wire.Wire(server.port)
    while asking.call(wire.route(topic))[0]["code"] == 0:
        time.sleep(0.01)
    asking.close()


# ------------------------------------------------------------------------------------------- looking up


def look_ups(server: Running, plan: Plan, result: Result) -> None:
    # Not measured: by the first figure a JVM must have compiled what it is about to show.
    load(server, plan, "-m", "route", "-c", "64", "-w", "8", "-N", str(plan.topics), "-T", "topic-")
    for connections, window in ((64, 1), (64, 8), (1000, 1)):
        for form in ("json", "bin"):
            measured = load(
                server, plan, "-m", "route", "-c", str(connections), "-w", str(window), "-s", form,
                "-N", str(plan.topics), "-T", "topic-",
            )  # fmt: skip
            what = f"route, {connections} connections × {window}, {form}"
            result.note(f"{what}: per s", float(measured["rate"]))
            result.note(f"{what}: p50 µs", float(measured["p50"]))
            result.note(f"{what}: p99 µs", float(measured["p99"]))
            result.note(f"{what}: p99.9 µs", float(measured["p999"]))
            result.note(f"{what}: server CPU µs", float(measured["cpu_us"]))


def load(server: Running, plan: Plan, *options: str) -> dict[str, str]:
    measured = run_loadgen(
        "-P",
        str(server.port),
        "-p",
        str(server.pid),
        "-C",
        str(1000 * plan.cpu_s),
        "-t",
        str(LONGEST * plan.cpu_s),
        "-u",
        str(plan.warm_up),
        *options,
    )
    if measured["errors"] != "0":
        raise RuntimeError(f"{measured['errors']} requests were refused: {options}")
    return measured


def generator_limit(plan: Plan) -> Result:
    """The same look-ups against a server that does next to nothing."""
    result = Result("loadgen against its own responder")
    with Responder(free_ports(), 300) as responder:
        server = Running(result.server, responder.port, responder.pid)
        for connections, window in ((64, 1), (64, 8), (1000, 1)):
            measured = load(
                server, plan, "-m", "route", "-c", str(connections), "-w", str(window), "-N", str(plan.topics)
            )
            result.note(f"route, {connections} connections × {window}, json: per s", float(measured["rate"]))
    return result


# ------------------------------------------------------------------------------------------- repeating


def repeated_requests(server: Running, plan: Plan, topics: int, result: Result) -> None:
    """What a broker says every few seconds, with nothing new in it.

    Registering comes last: it moves each broker to loadgen's connection, and the brokers go with it.
    """
    kinds: dict[str, list[bytes]] = {
        "QUERY_DATA_VERSION": [],
        "BROKER_HEARTBEAT": [],
        "REGISTER_BROKER unchanged": [],
    }
    for number in range(REPEATING_BROKERS):
        parts = plan.registrations_of(number, topics)
        fields = wire.broker_fields(number)
        kinds["QUERY_DATA_VERSION"].append(wire.query_data_version(fields, len(parts)))
        kinds["BROKER_HEARTBEAT"].append(wire.heartbeat(fields))
        kinds["REGISTER_BROKER unchanged"].append(parts[-1])
    for kind, frames in kinds.items():
        if kind == "BROKER_HEARTBEAT" and result.server == "apache-4.9.7":
            continue
        with tempfile.NamedTemporaryFile(suffix=".frames") as file:
            file.write(b"".join(frames))
            file.flush()
            measured = load(server, plan, "-m", "replay", "-f", file.name, "-k", "-c", str(len(frames)))
        result.note(f"{kind}, {topics:,} topics: server CPU µs", float(measured["cpu_us"]))


# ------------------------------------------------------------------------------------------- dying brokers


def kill_latency(server: Running, plan: Plan, result: Result) -> None:
    """From SIGKILL of a broker to a watching client being told, and to the route being gone."""
    told: list[float] = []
    gone: list[float] = []
    asking = wire.Wire(server.port)
    for number in range(plan.kills):
        topic = f"watched-{number}"
        broker = {
            **wire.broker_fields(900 + number),
            "brokerName": f"watched-broker-{number}",
            "brokerAddr": f"127.0.0.1:{30_000 + number}",
        }
        process = broker_process(server.port, wire.registration(broker, [topic, f"{topic}-b"], 4, 1))
        watching = wire.Wire(server.port)
        header, _ = watching.call(wire.route(topic, watch=True))
        if header["code"] != 0:
            raise RuntimeError(f"the watched topic has no route: {header}")
        started = time.perf_counter()
        process.kill()
        if result.server == OWN:
            header, body = watching.receive()
            told.append(time.perf_counter() - started)
            if header["code"] != wire.TOPICS_CHANGED or topic not in json.loads(body):
                raise RuntimeError(f"told something else: {header} {body!r}")
        while asking.call(wire.route(topic))[0]["code"] == 0:
            pass
        gone.append(time.perf_counter() - started)
        process.wait()
        watching.close()
    asking.close()
    for name, times in (("watcher notified", told), ("route gone", gone)):
        if times:
            times.sort()
            result.note(f"killed broker, {name}: p50 ms", times[len(times) // 2] * 1000)
            result.note(f"killed broker, {name}: p99 ms", times[len(times) * 99 // 100] * 1000)


def broker_process(port: int, register: bytes) -> subprocess.Popen[bytes]:
    """A process that holds one registered connection until it is killed."""
    program = (
        "import socket, sys; s = socket.create_connection(('127.0.0.1', int(sys.argv[1])));"
        "s.sendall(sys.stdin.buffer.read()); s.recv(65536); print('up', flush=True); s.recv(1)"
    )
    process = subprocess.Popen(
        [sys.executable, "-ISc", program, str(port)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(register)
    process.stdin.close()
    if process.stdout.readline() != b"up\n":
        raise RuntimeError("a broker process could not register")
    process.stdout.close()
    return process


# ------------------------------------------------------------------------------------------- all of it


@contextlib.contextmanager
def running(names: Sequence[str]) -> Iterator[list[Running]]:
    """All name servers that can be had, stopped; says which are left out and why."""
    with contextlib.ExitStack() as stack:
        servers: list[Running] = []
        for name in names:
            try:
                server = stack.enter_context(SERVERS[name]())
            except PeerUnavailable as reason:
                sys.stderr.write(f"{name} left out: {reason}\n")
                continue
            hold(server, stack)
            servers.append(server)
        yield servers


def measure(names: Sequence[str], plan: Plan) -> list[Result]:
    """Every name server in every round, with the brokers registered anew."""
    with running(names) as servers:
        results = {server.name: Result(server.name) for server in servers}
        for order in orders(servers, plan.rounds):
            for server in order:
                result = results[server.name]
                with server.turn(), registered(server, plan, plan.topics, result):
                    look_ups(server, plan, result)
                    result.note("memory after the look-ups, MB RSS", server.rss_mb())
        for server in servers:
            with server.turn(), registered(server, plan, plan.topics):
                kill_latency(server, plan, results[server.name])
    for topics in plan.growth:
        # A name server keeps topics that once were there: each size begins with empty ones.
        with running(names) as servers:
            for order in orders(servers, plan.rounds):
                for server in order:
                    with server.turn(), registered(server, plan, topics):
                        repeated_requests(server, plan, topics, results[server.name])
    return list(results.values())


def as_table(results: Sequence[Result]) -> str:
    """Markdown; the ratio columns compare the first server with each of the others, round by round."""
    first, *others = results
    lines = [
        "| figure | "
        + " | ".join(r.server for r in results)
        + "".join(f" | ÷ {r.server}" for r in others)
        + " |",
        "|---|" + "---:|" * (len(results) + len(others)),
    ]
    for name in dict.fromkeys(name for r in results for name in r.figures):
        found = [r.figures.get(name, []) for r in results]
        cells = ["–" if not values else short(statistics.median(values)) for values in found]
        compared = [spread(ratios(first.figures.get(name, []), values)) for values in found[1:]]
        lines.append(f"| {name} | " + " | ".join([*cells, *compared]) + " |")
    return "\n".join(lines)


def behind(ours: Result, theirs: Result) -> list[str]:
    """Where the other is better: a lower rate, or more of anything else."""
    said = []
    for name, values in ours.figures.items():
        found = ratios(values, theirs.figures.get(name, []))
        ratio = statistics.median(found) if found else 1.0
        if ratio < 1 if name.endswith("per s") else ratio > 1:
            said.append(f"- {name}: × {ratio:.2f}")
    return said


def plan_of(options: argparse.Namespace) -> Plan:
    plan = Plan(
        topics=options.topics, brokers=options.brokers, brokers_per_topic=options.brokers_per_topic,
        queues_per_topic=options.queues_per_topic, growth=(1_000, 10_000, 100_000), rounds=options.rounds,
        cpu_s=options.seconds, warm_up=options.warm_up, kills=options.kills,
    )  # fmt: skip
    if options.quick:
        return replace(plan, topics=2_000, growth=(1_000, 2_000), cpu_s=1, warm_up=1, kills=20, rounds=2)
    if options.minutes is not None:
        # Ten loads of about four seconds and one more, two name servers, registering before each turn.
        rounds = max(1, int(options.minutes * 60 // 120))
        return replace(plan, topics=10_000, growth=(10_000,), cpu_s=2, warm_up=1, kills=50, rounds=rounds)
    return plan


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="a small table, few kills: does it work at all?")
    parser.add_argument("--servers", default="pyromq,apache-5.3.3", help=f"of {', '.join(SERVERS)}")
    parser.add_argument("--topics", type=int, default=100_000)
    parser.add_argument("--brokers", type=int, default=100)
    parser.add_argument("--brokers-per-topic", type=int, default=2)
    parser.add_argument("--queues-per-topic", type=int, default=8)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=int, default=3, help="CPU time a name server may use in each load")
    parser.add_argument("--warm-up", type=int, default=3, help="seconds of each load before that")
    parser.add_argument("--minutes", type=float, help="choose loads and rounds to take about so long")
    parser.add_argument("--json", type=Path, help="write the figures to this file as well")
    options = parser.parse_args()
    plan = plan_of(options)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    results = measure(options.servers.split(","), plan)
    limit = generator_limit(plan)
    print(
        f"{plan.rounds} interleaved rounds. A measured load ends when the name server has used "
        f"{plan.cpu_s} s of CPU, or after {LONGEST * plan.cpu_s} s; {plan.warm_up} s of the same load go "
        f"before it. The ratio ÷ is ours ÷ Apache's, the median of the rounds, with the lowest and highest. "
        f"Apache's name servers: {' '.join(APACHE_JVM)}, full JIT, one load before the first figure.\n"
    )
    print(
        f"{plan.topics:,} topics × {plan.queues_per_topic} queues, each topic on {plan.brokers_per_topic} of "
        f"{plan.brokers} brokers; Python {sys.version.split()[0]}; {os.cpu_count()} cores, loopback\n"
    )
    if results:
        print(as_table(results))
    for theirs in results[1:]:
        print(f"\n## Where ours is behind {theirs.server}\n")
        print("\n".join(behind(results[0], theirs)) or "Nowhere in this run.")
    print("\nThe load generator's own limit, against a server that does next to nothing:\n")
    print(as_table([limit]))
    if options.json:
        document = {"plan": vars(plan), "results": {r.server: r.figures for r in (*results, limit)}}
        options.json.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
