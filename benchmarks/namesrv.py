"""The NameServer under load, over real sockets; the same against Apache's own where Maven can fetch it.

    python -m benchmarks.namesrv [--quick] [--servers pyromq,apache-5.3.3,apache-4.9.8] [--json FILE]

Brokers are connections that register; look-ups and heartbeats come from the native load generator; watched
brokers are processes that die by SIGKILL. Each server is measured alone, after the one before is gone.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from benchmarks import wire
from benchmarks.native import Responder, run_loadgen
from tests.support.apache import ApacheNameServer, free_ports
from tests.support.apache_releases import APACHE_4, APACHE_5, PeerUnavailable
from tests.support.own_nameserver import OwnNameServer

REPEATING_BROKERS: Final = 10
# What Apache's start script gives a NameServer is 4 GB; this much is enough for these tables.
APACHE_JVM: Final = ("-Xms1g", "-Xmx1g", "-XX:+UseG1GC")


@dataclass(frozen=True)
class Plan:
    topics: int
    brokers: int
    brokers_per_topic: int
    queues_per_topic: int
    growth: Sequence[int]
    seconds: int
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
    """One server's figures, in the order they are printed."""

    server: str
    figures: dict[str, float] = field(default_factory=dict)

    def note(self, name: str, value: float) -> None:
        self.figures[name] = value
        sys.stderr.write(f"  {self.server}: {name} = {value:,.3f}\n")


@dataclass(frozen=True)
class Running:
    port: int
    pid: int

    def rss_mb(self) -> float:
        status = Path(f"/proc/{self.pid}/status").read_text()
        return int(status.split("VmRSS:")[1].split()[0]) / 1024

    def cpu_s(self) -> float:
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextlib.contextmanager
def pyromq() -> Iterator[Running]:
    with OwnNameServer() as server:
        yield Running(server.port, server.pid)


@contextlib.contextmanager
def apache(version: str) -> Iterator[Running]:
    release = {"5.3.3": APACHE_5, "4.9.8": APACHE_4}[version]
    with ApacheNameServer(release, jvm=APACHE_JVM) as server:
        assert server.pid is not None
        yield Running(server.port, server.pid)


Start = Callable[[], contextlib.AbstractContextManager[Running]]
SERVERS: Final[dict[str, Start]] = {
    "pyromq": pyromq,
    "apache-5.3.3": lambda: apache("5.3.3"),
    "apache-4.9.8": lambda: apache("4.9.8"),
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
            result.note(f"{what}: server CPU µs", float(measured["cpu_us"]))


def load(server: Running, plan: Plan, *options: str) -> dict[str, str]:
    measured = run_loadgen(
        "-P",
        str(server.port),
        "-p",
        str(server.pid),
        "-t",
        str(plan.seconds),
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
        server = Running(responder.port, responder.pid)
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
        if kind == "BROKER_HEARTBEAT" and result.server == "apache-4.9.8":
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
        if result.server == "pyromq":
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
    for name, times in (("watcher told", told), ("route gone", gone)):
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


def measure(name: str, plan: Plan) -> Result:
    result = Result(name)
    with SERVERS[name]() as server, registered(server, plan, plan.topics, result):
        look_ups(server, plan, result)
        result.note("memory after the look-ups, MB RSS", server.rss_mb())
        kill_latency(server, plan, result)
    for topics in plan.growth:
        with SERVERS[name]() as server, registered(server, plan, topics):
            repeated_requests(server, plan, topics, result)
    return result


def as_table(results: Sequence[Result]) -> str:
    """Markdown; the ratio columns compare the first server with each of the others."""
    others = results[1:]
    lines = [
        "| figure | "
        + " | ".join(r.server for r in results)
        + "".join(f" | ÷ {r.server}" for r in others)
        + " |",
        "|---|" + "---:|" * (len(results) + len(others)),
    ]
    for name in dict.fromkeys(name for r in results for name in r.figures):
        values = [r.figures.get(name) for r in results]
        cells = [
            "–" if value is None else f"{value:,.4g}" if value < 1000 else f"{value:,.0f}" for value in values
        ]
        ratios = [
            "–" if values[0] is None or not other else f"{values[0] / other:.2f}" for other in values[1:]
        ]
        lines.append(f"| {name} | " + " | ".join([*cells, *ratios]) + " |")
    return "\n".join(lines)


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
    parser.add_argument("--seconds", type=int, default=5, help="measured time of each load")
    parser.add_argument("--warm-up", type=int, default=3, help="seconds of each load before that")
    parser.add_argument("--json", type=Path, help="write the figures to this file as well")
    options = parser.parse_args()
    plan = Plan(
        topics=2_000 if options.quick else options.topics,
        brokers=options.brokers,
        brokers_per_topic=options.brokers_per_topic,
        queues_per_topic=options.queues_per_topic,
        growth=(1_000, 2_000) if options.quick else (1_000, 10_000, 100_000),
        seconds=1 if options.quick else options.seconds,
        warm_up=1 if options.quick else options.warm_up,
        kills=20 if options.quick else options.kills,
    )
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    results = []
    for name in options.servers.split(","):
        try:
            results.append(measure(name, plan))
        except PeerUnavailable as reason:
            sys.stderr.write(f"{name} left out: {reason}\n")
    limit = generator_limit(plan)
    print(
        f"{plan.topics:,} topics × {plan.queues_per_topic} queues, each topic on {plan.brokers_per_topic} of "
        f"{plan.brokers} brokers; Python {sys.version.split()[0]}; {os.cpu_count()} cores, loopback\n"
    )
    if results:
        print(as_table(results))
    print("\nThe load generator's own limit, against a server that does next to nothing:\n")
    print(as_table([limit]))
    if options.json:
        document = {"plan": vars(plan), "results": {r.server: r.figures for r in (*results, limit)}}
        options.json.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
