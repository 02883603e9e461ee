"""Our client under load, and Apache's client under the same load on the same broker where Maven can fetch it.

    python -m benchmarks.client [--quick] [--clients pyromq,apache-5.3.3] [--json FILE]

The broker is a process of its own, and so is every load. Clients take turns, cell by cell, round by round;
the figure is the median. CPU time is the client's alone, all threads. Last, brokers are killed under load,
and members of a group come and go.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import hashlib
import itertools
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import uvloop
from tests.support.apache_releases import APACHE_4, APACHE_5, PeerUnavailable, Release, cache_directory, fetch
from tests.support.own_broker import OwnBroker
from tests.support.own_nameserver import OwnNameServer

from pyromq import Message, MessageQueue, PyroError, ReceivedMessage, aio
from pyromq.protocol import names
from pyromq.protocol.requests.topics import CreateOrUpdateTopic
from pyromq.remoting.dialer import Dialer

SIZES: Final = (100, 1024)
IN_FLIGHT: Final = {"send": 64, "batch": 1024}
QUEUES: Final = 8
# By default a JVM would take a quarter of the memory; no client needed more than this.
JVM: Final = ("-Xmx1g", "-XX:+UseG1GC", "-Djava.net.preferIPv4Stack=true", "-Drocketmq.client.logLevel=WARN")
BROKER_SETTINGS: Final = {
    "mappedFileSizeCommitLog": str(256 << 20),
    # A send that waited 200 ms is refused by default: the load shall be served, not refused.
    "waitTimeMillsInSendQueue": "5000",
    # Consumers get what they ask for: 32 messages unless they take lists.
    "maxTransferCountOnMessageInMemory": "1024",
    "maxTransferBytesOnMessageInMemory": str(1 << 20),
    # The loads before make the log longer than the part of it that counts as in memory: then it would be 8.
    "maxTransferCountOnMessageInDisk": "1024",
    "maxTransferBytesOnMessageInDisk": str(1 << 20),
}
REPOSITORY: Final = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class Plan:
    rounds: int
    warm_up_s: float
    """A JVM compiles its hot paths only after some seconds of them."""
    seconds: float
    consumed: int
    consumed_warm_up: int
    kills: int
    topics: dict[int, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Sample:
    rate: float
    cpu_us: float
    failed: int
    p50_us: float | None = None
    """Of loads that wait for each answer."""


@dataclass(frozen=True)
class Cell:
    """One load; `words` are the arguments behind the name server."""

    name: str
    mode: str
    words: tuple[str, ...]
    only_ours: bool = False


Run = Callable[[str, Sequence[str]], Sample]


# ------------------------------------------------------------------------------------------- clients


def pyromq_client() -> Run:
    return lambda mode, words: run_load(
        [sys.executable, "-m", "benchmarks.client_load", mode, *words], REPOSITORY
    )


def apache_client(release: Release) -> Run:
    class_path = with_load(release, "ClientLoad.java")

    def run(mode: str, words: Sequence[str]) -> Sample:
        home = tempfile.mkdtemp(prefix="pyromq-bench-")
        try:
            command = ["java", *JVM, f"-Duser.home={home}", "-cp", class_path, "ClientLoad", mode, *words]
            return run_load(command, Path(home))
        finally:
            shutil.rmtree(home, ignore_errors=True)

    return run


def with_load(release: Release, file: str) -> str:
    """The class path of Apache's client and of a load that is written for it."""
    jars = fetch(release.clients, "clients")
    source = Path(__file__).with_name(file)
    digest = hashlib.sha256(source.read_bytes()).hexdigest()[:12]
    classes = cache_directory() / f"{source.stem}-{release.clients}-{digest}"
    if not classes.is_dir():
        command = ["javac", "-nowarn", "-cp", f"{jars}/*", "-d", str(classes), str(source)]
        try:
            subprocess.run(command, check=True, capture_output=True, text=True)
        except (OSError, subprocess.CalledProcessError) as problem:
            shutil.rmtree(classes, ignore_errors=True)
            reason = getattr(problem, "stderr", None) or problem
            raise PeerUnavailable(f"could not compile {source.name}: {reason}") from problem
    return f"{jars}/*{os.pathsep}{classes}"


def run_load(command: Sequence[str], directory: Path) -> Sample:
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False, timeout=600)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command[-8:])} failed:\n{done.stdout}{done.stderr}")
    figures = json.loads(done.stdout.splitlines()[-1])
    messages = figures["messages"]
    return Sample(
        messages / figures["seconds"],
        figures["cpu_s"] / messages * 1e6,
        figures["failed"],
        figures.get("p50_us"),
    )


CLIENTS: Final[dict[str, Callable[[], Run]]] = {
    "pyromq": pyromq_client,
    "apache-5.3.3": lambda: apache_client(APACHE_5),
    "apache-4.9.8": lambda: apache_client(APACHE_4),
}


# ------------------------------------------------------------------------------------------- loads


@dataclass
class Results:
    clients: list[str]
    samples: dict[tuple[str, str], list[Sample]] = field(default_factory=dict)
    kills: dict[str, float] = field(default_factory=dict)
    members: dict[str, float] = field(default_factory=dict)

    def add(self, cell: str, client: str, sample: Sample) -> None:
        self.samples.setdefault((cell, client), []).append(sample)
        failed = f", {sample.failed} failed" if sample.failed else ""
        median = f", p50 {sample.p50_us:.1f} µs" if sample.p50_us is not None else ""
        say(f"  {cell}: {client}: {sample.rate:,.0f}/s, {sample.cpu_us:.2f} µs CPU{median}{failed}")

    def median(self, cell: str, client: str, figure: str) -> float | None:
        figures = [getattr(sample, figure) for sample in self.samples.get((cell, client), [])]
        known = [each for each in figures if each is not None]
        return statistics.median(known) if known else None

    def as_json(self) -> dict[str, dict[str, dict[str, float | None]]]:
        return {
            cell: {
                client: {
                    name: self.median(cell, client, name) for name in ("rate", "cpu_us", "p50_us", "failed")
                }
                for client in self.clients
            }
            for cell in dict.fromkeys(cell for cell, _ in self.samples)
        }


def cells(plan: Plan) -> Iterator[Cell]:
    for size, topic in plan.topics.items():
        for mode, what in (("send", "one by one"), ("batch", "batched by itself")):
            words = (topic, str(size), str(IN_FLIGHT[mode]), str(plan.warm_up_s), str(plan.seconds))
            yield Cell(f"send {size} B, {what}, {IN_FLIGHT[mode]} in flight", mode, words)
        reading = (f"{topic}-filled", "", str(plan.consumed_warm_up), str(plan.consumed))
        yield Cell(f"consume {size} B, async handler", "consume", reading)
        yield Cell(f"consume {size} B, plain handler on threads", "consume-plain", reading, only_ours=True)
        yield Cell(f"consume {size} B, async for", "consume-stream", reading, only_ours=True)
        yield Cell(f"consume {size} B, lists of messages", "consume-lists", reading, only_ours=True)
        blocking = (topic, str(size), "1", str(min(plan.warm_up_s, 2)), str(plan.seconds))
        yield Cell(f"send {size} B, blocking, one thread", "block", blocking, only_ours=True)
        yield Cell(f"send {size} B, the same request on a bare socket", "bare", blocking, only_ours=True)


def measure(plan: Plan, results: Results, runs: dict[str, Run], name_server: str) -> None:
    groups = itertools.count()
    for size, topic in plan.topics.items():
        fill = pyromq_client()("fill", [name_server, f"{topic}-filled", str(size), str(plan.consumed)])
        say(f"  filled with {plan.consumed:,} messages of {size} B: {fill.rate:,.0f}/s")
    for _ in range(plan.rounds):
        for cell in cells(plan):
            for client, run in runs.items():
                if client != "pyromq" and (
                    cell.only_ours or (client == "apache-4.9.8" and cell.mode == "batch")
                ):
                    continue
                # Every consumer is a new group that reads everything.
                words = [word or f"group-{os.getpid()}-{next(groups)}" for word in cell.words]
                results.add(cell.name, client, run(cell.mode, [name_server, *words]))


async def create_topics(broker: str, topics: Sequence[str]) -> None:
    dialer = Dialer()
    for topic in topics:
        request = CreateOrUpdateTopic(
            topic=topic,
            default_topic=names.AUTO_CREATE_TOPIC,
            read_queue_nums=QUEUES,
            write_queue_nums=QUEUES,
            perm=names.READ_WRITE,
            topic_filter_type="SINGLE_TAG",
        )
        await dialer.call(broker, request, 10)
    await dialer.close()


# ------------------------------------------------------------------------------------------- dying brokers


@dataclass(frozen=True)
class Kill:
    last_detour_ms: float
    """From the signal to the last send that tried the dead broker: all later ones go to the live one only."""
    slowest_ms: float
    sent: int
    detours: int
    failed: int


async def kill_one_of_two(name_server: str, number: int) -> Kill:
    """64 sends are in flight all the time; one of two brokers dies by SIGKILL among them."""
    topic = f"killed-{number}"
    with contextlib.ExitStack() as stack:
        pair = [stack.enter_context(OwnBroker(name_server, f"kill-{number}-{side}")) for side in "ab"]
        for broker in pair:
            await create_topics(broker.address, [topic])
        async with aio.Producer("kills", name_server) as producer:
            message = Message(topic, bytes(100))
            sent, failed, slowest_s = 0, 0, 0.0
            seen_retries, last_detour = 0, 0.0
            is_over = False

            async def keep_sending() -> None:
                nonlocal sent, failed, slowest_s, seen_retries, last_detour
                while not is_over:
                    began = time.perf_counter()
                    try:
                        await producer.send(message)
                        sent += 1
                    except PyroError:
                        failed += 1
                    now = time.perf_counter()
                    slowest_s = max(slowest_s, now - began)
                    retries = producer.statistics().sender.retries
                    if retries != seen_retries:
                        seen_retries, last_detour = retries, now

            for _ in range(200):
                if len({queue.broker_name for queue in await producer.queues(topic)}) == len(pair):
                    break
                await asyncio.sleep(0.05)
            senders = [asyncio.create_task(keep_sending()) for _ in range(IN_FLIGHT["send"])]
            await asyncio.sleep(1)
            slowest_s, retries_before = 0.0, producer.statistics().sender.retries
            killed_at = last_detour = time.perf_counter()
            pair[0].kill()
            await asyncio.sleep(3)
            is_over = True
            await asyncio.gather(*senders)
            detours = producer.statistics().sender.retries - retries_before
    return Kill((last_detour - killed_at) * 1000, slowest_s * 1000, sent, detours, failed)


def measure_kills(plan: Plan, results: Results) -> None:
    with OwnNameServer() as name_server:
        kills = [uvloop.run(kill_one_of_two(name_server.address, number)) for number in range(plan.kills)]
    for kill in kills:
        say(f"  {kill}")
    detours = sorted(kill.last_detour_ms for kill in kills)
    results.kills = {
        "brokers killed": len(kills),
        "from SIGKILL until every send goes to the live broker: median ms": statistics.median(detours),
        "the same: longest, ms": detours[-1],
        "slowest send, ms": max(kill.slowest_ms for kill in kills),
        "tries that met the dead broker": sum(kill.detours for kill in kills),
        "sends in all": sum(kill.sent for kill in kills),
        "sends that failed": sum(kill.failed for kill in kills),
    }


# ------------------------------------------------------------------------------------------- members


class Member:
    """A consumer that knows which queues it has."""

    def __init__(self, name_server: str, topic: str) -> None:
        self.queues: set[MessageQueue] = set()
        self.changed = asyncio.Event()
        self.consumer = aio.PushConsumer("members", name_server)
        self.consumer.subscribe(topic, "*", self._take)
        self.consumer.on_rebalance(self._rebalanced)
        self._topic = topic

    async def _take(self, message: ReceivedMessage) -> None:
        raise AssertionError(f"nobody sends to {self._topic}")

    def _rebalanced(self, assigned: set[MessageQueue], revoked: set[MessageQueue]) -> None:
        self.queues -= revoked
        self.queues |= {queue for queue in assigned if queue.topic == self._topic}
        self.changed.set()

    async def wait_for(self, count: int) -> None:
        while len(self.queues) != count:
            self.changed.clear()
            await self.changed.wait()


async def join_and_leave(name_server: str, topic: str, times: int) -> tuple[list[float], list[float]]:
    """How long it takes until every member has its share, in milliseconds: after joining, after leaving."""
    joined: list[float] = []
    left: list[float] = []
    first = Member(name_server, topic)
    async with first.consumer:
        await first.wait_for(QUEUES)
        for _ in range(times):
            second = Member(name_server, topic)
            began = time.perf_counter()
            async with second.consumer:
                await asyncio.gather(first.wait_for(QUEUES // 2), second.wait_for(QUEUES // 2))
                joined.append((time.perf_counter() - began) * 1000)
                began = time.perf_counter()
            await first.wait_for(QUEUES)
            left.append((time.perf_counter() - began) * 1000)
    return joined, left


def measure_members(plan: Plan, results: Results) -> None:
    with OwnNameServer() as name_server, OwnBroker(name_server.address) as broker:
        asyncio.run(create_topics(broker.address, ["members"]))
        joined, left = uvloop.run(join_and_leave(name_server.address, "members", plan.kills))
    results.members = {
        "a member joins: until both have half of the queues, median ms": statistics.median(joined),
        "the same: longest, ms": max(joined),
        "a member leaves: until the other has all queues, median ms": statistics.median(left),
        "the same, longest, ms": max(left),
    }


# ------------------------------------------------------------------------------------------- all of it


def as_table(results: Results) -> str:
    """Markdown; the ratio columns compare our client with each of the others."""
    others = [client for client in results.clients if client != "pyromq"]
    heads = ["load", "figure", *results.clients, *(f"÷ {client}" for client in others)]
    lines = ["| " + " | ".join(heads) + " |", "|---|---|" + "---:|" * (len(heads) - 2)]
    for cell in dict.fromkeys(cell for cell, _ in results.samples):
        for figure, label in (("rate", "messages/s"), ("cpu_us", "CPU µs a message"), ("p50_us", "p50 µs")):
            values = {client: results.median(cell, client, figure) for client in results.clients}
            if not any(values.values()):
                continue
            ours = values.get("pyromq")
            shown = [_shown(value) for value in values.values()]
            ratios = [
                f"{ours / other:.2f}" if ours and (other := values[client]) else "–" for client in others
            ]
            lines.append(f"| {cell} | {label} | " + " | ".join([*shown, *ratios]) + " |")
    return "\n".join(lines)


def _shown(value: float | None) -> str:
    return "–" if value is None else f"{value:,.0f}" if value >= 1000 else f"{value:,.3g}"


def say(line: str) -> None:
    sys.stderr.write(line + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="short loads, few kills: does it work at all?")
    parser.add_argument("--clients", default="pyromq,apache-5.3.3", help=f"of {', '.join(CLIENTS)}")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=10, help="measured time of each send load")
    parser.add_argument("--warm-up", type=float, default=8, help="seconds of each send load before that")
    parser.add_argument("--messages", type=int, default=500_000, help="of each consume load")
    parser.add_argument("--kills", type=int, default=10, help="of brokers, and turns of members; 0: none")
    parser.add_argument("--json", type=Path, help="write the figures to this file as well")
    options = parser.parse_args()
    consumed = 40_000 if options.quick else options.messages
    plan = Plan(
        rounds=1 if options.quick else options.rounds,
        warm_up_s=2 if options.quick else options.warm_up,
        seconds=2 if options.quick else options.seconds,
        consumed=consumed,
        consumed_warm_up=consumed // 4,
        kills=2 if options.quick else options.kills,
        topics={size: f"load-{size}" for size in SIZES},
    )
    runs: dict[str, Run] = {}
    for client in options.clients.split(","):
        try:
            runs[client] = CLIENTS[client]()
        except PeerUnavailable as reason:
            say(f"{client} left out: {reason}")
    results = Results(list(runs))
    with OwnNameServer() as name_server, OwnBroker(name_server.address, settings=BROKER_SETTINGS) as broker:
        topics = [name for topic in plan.topics.values() for name in (topic, f"{topic}-filled")]
        asyncio.run(create_topics(broker.address, topics))
        measure(plan, results, runs, name_server.address)
    if plan.kills:
        measure_kills(plan, results)
        measure_members(plan, results)
    print(f"One broker of ours in another process; Python {sys.version.split()[0]}; {os.cpu_count()} cores\n")
    print(as_table(results))
    if results.kills:
        print("\nOne of two brokers killed with 64 sends in flight:\n\n| figure | |\n|---|---:|")
    for name, value in results.kills.items():
        print(f"| {name} | {_shown(value) if value else '0'} |")
    if results.members:
        print("\nMembers of a group:\n\n| figure | |\n|---|---:|")
    for name, value in results.members.items():
        print(f"| {name} | {_shown(value)} |")
    if options.json:
        figures = {"loads": results.as_json(), "kills": results.kills, "members": results.members}
        options.json.write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main()
