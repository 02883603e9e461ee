"""The gRPC front under load, over real sockets; the same load on Apache's proxy where Maven can fetch it.

    python -m benchmarks.proxy [--quick] [--mode cluster] [--loads waiting,telemetry]
        [--servers pyromq,apache-5.3.3] [--rounds N] [--json FILE]

Both run with a broker in the same process (local mode), or each in front of a broker of its own make (cluster
mode). CPU time and memory are those of proxy and broker together, all threads. They take turns, round by
round (benchmarks/turns.py). The load is one Python process that writes HTTP/2 by hand
(benchmarks/grpc_wire.py), about 10 µs for a send and 20 for a message received and acknowledged: a third of
what our front needs. Memory is the whole process, after the load.

- sends: of 256 bytes, one at a time on one connection, and 8 at a time on each of 8
- receive + ack: four consumers receive up to 32 messages at a time and acknowledge each one alone
- waiting receivers: as many clients, each with its own connection, stream and long poll; then one message for
  each of them, as fast as the server takes them. Times are those from the send to the delivery
- telemetry streams: as many clients, each with its own connection, send their settings and get them back
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import json
import resource
import selectors
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from benchmarks import broker as brokers
from benchmarks import wire
from benchmarks.broker import APACHE_JVM, OWN, SETTINGS, Results, Sample, behind, comparison, figures_table
from benchmarks.grpc_wire import RPCS, GrpcWire, percentile, split
from benchmarks.turns import Running, hold, orders
from tests.support.apache import free_ports
from tests.support.apache_proxy import ApacheProxy
from tests.support.apache_releases import APACHE_5, PeerUnavailable, fetch
from tests.support.own_nameserver import OwnNameServer
from tests.support.server_programs import PROXY

from pyromq.proxy.messages import message

APACHE: Final = f"apache-{APACHE_5.servers}"
QUEUES: Final = 8
BODY: Final = b"x" * 256
AT_ONCE: Final = 32
PATIENCE_S: Final = 60.0
DEADLINE_S: Final = 30
"""Of a send or acknowledgement: a JVM that has just started may need more than the usual 3 s."""
OK: Final = 20000
FIGURES: Final = ("rate", "cpu_us", "p99")
TelemetryCommand: Final = message("TelemetryCommand")
ReceiveAnswer: Final = RPCS["ReceiveMessage"].answer_type
AckRequest: Final = RPCS["AckMessage"].request_type


@dataclass(frozen=True)
class Front(Running):
    """`port` is that of gRPC. In cluster mode the broker is a process of its own: both count."""

    broker_port: int
    names: str
    broker: Running | None = None

    def rss_mb(self) -> float:
        return super().rss_mb() + (self.broker.rss_mb() if self.broker is not None else 0)

    def cpu_s(self) -> float:
        return super().cpu_s() + (self.broker.cpu_s() if self.broker is not None else 0)

    @contextlib.contextmanager
    def turn(self) -> Iterator[None]:
        with contextlib.nullcontext() if self.broker is None else self.broker.turn(), super().turn():
            yield


@dataclass(frozen=True)
class Plan:
    rounds: int
    sends: int
    received: int
    clients: int
    compiling_s: float
    """Seconds of each kind of load before the first figure: a JVM compiles its hot paths only then."""
    idle_s: float


# ------------------------------------------------------------------------------------------- servers


@contextlib.contextmanager
def pyromq(names: str, home: Path) -> Iterator[Front]:
    broker_port = free_ports(4) + 2
    broker = {
        **SETTINGS,
        "flushDiskType": "ASYNC_FLUSH",
        "brokerIP1": "127.0.0.1",
        "bindAddress": "127.0.0.1",
        "listenPort": str(broker_port),
        "storePathRootDir": str(home / "store"),
        "logDir": "",
    }
    conf = home / "broker.conf"
    conf.write_text("".join(f"{key}={value}\n" for key, value in broker.items()))
    options = ("-n", names, "-pm", "local", "-bc", str(conf), "--port", "0", "--log-dir", "")
    with PROXY.running(home, *options, "-o", "bindAddress=127.0.0.1") as proxy:
        yield Front(OWN, int(proxy.boot["port"]), proxy.process.pid, broker_port, names)


@contextlib.contextmanager
def apache(names: str, home: Path) -> Iterator[Front]:
    broker = {**SETTINGS, "flushDiskType": "ASYNC_FLUSH"}
    with ApacheProxy(names, store=home / "store", broker=broker, jvm=APACHE_JVM) as proxy:
        assert proxy.pid is not None
        yield Front(APACHE, proxy.port, proxy.pid, proxy.broker_port, names)


@contextlib.contextmanager
def pyromq_cluster(names: str, home: Path) -> Iterator[Front]:
    options = ("-n", names, "-pm", "cluster", "--port", "0", "--log-dir", "", "-o", "bindAddress=127.0.0.1")
    with (
        brokers.pyromq(names, home / "store", "ASYNC_FLUSH") as broker,
        PROXY.running(home, *options) as proxy,
    ):
        yield Front(OWN, int(proxy.boot["port"]), proxy.process.pid, broker.port, names, broker)


@contextlib.contextmanager
def apache_cluster(names: str, home: Path) -> Iterator[Front]:
    with (
        brokers.apache(APACHE_5, names, home / "store", "ASYNC_FLUSH") as broker,
        ApacheProxy(names, jvm=APACHE_JVM) as proxy,
    ):
        assert proxy.pid is not None
        yield Front(APACHE, proxy.port, proxy.pid, broker.port, names, broker)


STARTS: Final = {
    "local": {OWN: pyromq, APACHE: apache},
    "cluster": {OWN: pyromq_cluster, APACHE: apache_cluster},
}


@contextlib.contextmanager
def running(mode: str, names: Sequence[str]) -> Iterator[list[Front]]:
    """All of them, stopped, each with name server and store of its own."""
    with contextlib.ExitStack() as stack:
        servers: list[Front] = []
        for name in names:
            name_server = stack.enter_context(OwnNameServer())
            home = Path(tempfile.mkdtemp(prefix="pyromq-bench-"))
            stack.callback(shutil.rmtree, home, ignore_errors=True)
            server = stack.enter_context(STARTS[mode][name](name_server.address, home))
            for each in (server, server.broker):
                if each is not None:
                    hold(each, stack)
            servers.append(server)
        yield servers


def available(names: Sequence[str]) -> list[str]:
    found = []
    for name in names:
        try:
            if name != OWN:
                fetch(APACHE_5.servers, "proxy")
            found.append(name)
        except PeerUnavailable as reason:
            sys.stderr.write(f"{name} left out: {reason}\n")
    return found


def create_topic(server: Front, topic: str) -> str:
    asking = wire.Wire(server.broker_port)
    asking.call(wire.create_topic(topic, QUEUES))
    asking.close()
    # Apache's broker answers before its name server knows the topic.
    asking = wire.Wire(int(server.names.rpartition(":")[2]))
    while asking.call(wire.route(topic))[0]["code"] != 0:
        time.sleep(0.01)
    asking.close()
    return topic


# ------------------------------------------------------------------------------------------- clients


def producer_settings(topic: str) -> bytes:
    command = TelemetryCommand()
    command.settings.client_type = 1
    command.settings.publishing.topics.add().name = topic
    return bytes(command.SerializeToString())


def consumer_settings(group: str, topic: str) -> bytes:
    command = TelemetryCommand()
    command.settings.client_type = 3
    command.settings.request_timeout.seconds = 3
    subscription = command.settings.subscription
    subscription.group.name = group
    entry = subscription.subscriptions.add()
    entry.topic.name = topic
    entry.expression.type, entry.expression.expression = 1, "*"
    return bytes(command.SerializeToString())


class Client:
    """A connection whose telemetry stream has been answered."""

    _number = 0

    def __init__(self, server: Front, settings: bytes) -> None:
        Client._number += 1
        self.wire = GrpcWire(server.port, f"bench@1@{Client._number}@{time.monotonic_ns():x}")
        self.stream = self.wire.begin("Telemetry", settings, 0, ends=False)
        self.wire.flush()

    @property
    def is_settled(self) -> bool:
        return bool(self.wire.take(self.stream))


def settled(
    server: Front, settings: bytes, count: int, at_once: int = 32
) -> tuple[list[Client], list[float]]:
    """So many clients, and how long each waited for its settings."""
    clients: list[Client] = []
    waits: list[float] = []
    with selectors.DefaultSelector() as selector:
        began: dict[Client, float] = {}

        def open_one() -> None:
            now = time.perf_counter()
            client = Client(server, settings)
            began[client] = now
            clients.append(client)
            selector.register(client.wire, selectors.EVENT_READ, client)

        while len(waits) < count:
            while len(began) < at_once and len(clients) < count:
                open_one()
            for key, _ in ready(selector, server):
                client = key.data
                client.wire.receive()
                if client in began and client.is_settled:
                    waits.append(time.perf_counter() - began.pop(client))
                client.wire.flush()
    return clients, waits


def ready(selector: selectors.BaseSelector, server: Front) -> list[tuple[selectors.SelectorKey, int]]:
    found = selector.select(PATIENCE_S)
    if not found:
        raise RuntimeError(f"{server.name} has not answered for {PATIENCE_S:.0f} s")
    return found


def send_request(topic: str) -> bytes:
    request = RPCS["SendMessage"].request_type()
    sent = request.messages.add()
    sent.topic.name, sent.body = topic, BODY
    system = sent.system_properties
    system.message_id = f"01{time.monotonic_ns():032X}"
    system.message_type, system.body_encoding, system.tag = 1, 1, "tag"
    system.keys.append("key")
    system.born_host = "bench"
    system.born_timestamp.GetCurrentTime()
    sent.user_properties["name"] = "value"
    return bytes(request.SerializeToString())


def check_answer(rpc: str, data: bytes) -> None:
    answer = RPCS[rpc].answer_type.FromString(split(data)[0])
    if answer.status.code != OK:
        raise RuntimeError(f"{rpc} was refused: {answer.status}")


def receive_request(group: str, topic: str, batch: int, wait_s: int) -> bytes:
    request = RPCS["ReceiveMessage"].request_type(batch_size=batch)
    request.group.name, request.message_queue.topic.name = group, topic
    request.filter_expression.type, request.filter_expression.expression = 1, "*"
    request.invisible_duration.seconds = 60
    request.long_polling_timeout.seconds = wait_s
    return bytes(request.SerializeToString())


# ------------------------------------------------------------------------------------------- loads


class Measured:
    """What a server used while it did something."""

    def __init__(self, server: Front) -> None:
        self._server = server
        self._cpu = server.cpu_s()
        self._began = time.perf_counter()

    def sample(self, count: int, waits: Sequence[float]) -> Sample:
        seconds = time.perf_counter() - self._began
        used_us = (self._server.cpu_s() - self._cpu) * 1e6
        p50, p99, p999 = (percentile(waits, share) * 1e6 for share in (0.5, 0.99, 0.999))
        return Sample(count / seconds, used_us / count, p50, p99, p999, errors=0)


def sends(server: Front, topic: str, count: int, connections: int, window: int) -> Sample:
    """Closed loop: the next send begins when an answer has arrived."""
    clients, _ = settled(server, producer_settings(topic), connections)
    request = send_request(topic)
    measured, waits, left = Measured(server), list[float](), count
    with selectors.DefaultSelector() as selector:
        began: dict[tuple[GrpcWire, int], float] = {}
        for client in clients:
            selector.register(client.wire, selectors.EVENT_READ, client.wire)
            for _ in range(min(window, left)):
                left -= 1
                began[client.wire, client.wire.begin("SendMessage", request, DEADLINE_S)] = (
                    time.perf_counter()
                )
            client.wire.flush()
        while len(waits) < count:
            for key, _ in ready(selector, server):
                connection: GrpcWire = key.data
                for stream, data in connection.receive():
                    if not waits:
                        check_answer("SendMessage", data)
                    now = time.perf_counter()
                    waits.append(now - began.pop((connection, stream)))
                    if left:
                        left -= 1
                        began[connection, connection.begin("SendMessage", request, DEADLINE_S)] = now
                connection.flush()
    found = measured.sample(count, waits)
    leave(clients)
    return found


def receive_and_ack(server: Front, topic: str, count: int, consumers: int = 4) -> Sample:
    """Messages per second until the last one is acknowledged; times are those of acknowledgements."""
    group = f"{topic}Group"
    clients, _ = settled(server, consumer_settings(group, topic), consumers)
    receive = receive_request(group, topic, AT_ONCE, 5)
    # The group exists at the broker from its first receive on: what comes later is its own.
    for client in clients:
        client.wire.begin("ReceiveMessage", receive_request(group, topic, 1, 5), 15)
        client.wire.flush()
    time.sleep(1.0)
    fill(server, topic, count + consumers)
    for client in clients:
        take_one(client, group, topic)
    measured, waits, acknowledged = Measured(server), list[float](), 0
    with selectors.DefaultSelector() as selector:
        began: dict[tuple[GrpcWire, int], float] = {}
        for client in clients:
            selector.register(client.wire, selectors.EVENT_READ, client)
            client.wire.begin("ReceiveMessage", receive, 15)
            client.wire.flush()
        unanswered = dict.fromkeys(clients, 0)
        while acknowledged < count:
            for key, _ in ready(selector, server):
                client = key.data
                connection = client.wire
                for stream, data in connection.receive():
                    sent_at = began.pop((connection, stream), None)
                    if sent_at is None:
                        acks = ack_requests(data, group, topic)
                        now = time.perf_counter()
                        for each in acks:
                            began[connection, connection.begin("AckMessage", each, DEADLINE_S)] = now
                        unanswered[client] = len(acks)
                    else:
                        if not waits:
                            check_answer("AckMessage", data)
                        waits.append(time.perf_counter() - sent_at)
                        acknowledged += 1
                        unanswered[client] -= 1
                    if not unanswered[client] and acknowledged < count:
                        connection.begin("ReceiveMessage", receive, 15)
                connection.flush()
    found = measured.sample(count, waits)
    leave(clients)
    return found


def take_one(client: Client, group: str, topic: str) -> None:
    """The answer to the first receive, acknowledged."""
    over: list[tuple[int, bytes]] = []
    while not over:
        over = client.wire.receive()
    [request] = ack_requests(over[0][1], group, topic)
    client.wire.begin("AckMessage", request, DEADLINE_S)
    client.wire.flush()
    while not client.wire.receive():
        pass


def ack_requests(data: bytes, group: str, topic: str) -> list[bytes]:
    """One for each message of a receive."""
    made = []
    for each in split(data):
        answer = ReceiveAnswer.FromString(each)
        if answer.WhichOneof("content") == "message":
            request = AckRequest()
            request.group.name, request.topic.name = group, topic
            system = answer.message.system_properties
            request.entries.add(message_id=system.message_id, receipt_handle=system.receipt_handle)
            made.append(bytes(request.SerializeToString()))
    return made


def fill(server: Front, topic: str, count: int) -> None:
    sends(server, topic, count, 4, 16)


def waiting_receivers(server: Front, topic: str, plan: Plan, results: Results) -> Sample:
    count = plan.clients
    group = f"{topic}Group"
    clients, _ = settled(server, consumer_settings(group, topic), count)
    [producer], _ = settled(server, producer_settings(topic), 1)
    receive = receive_request(group, topic, 1, 20)
    for client in clients:
        client.wire.begin("ReceiveMessage", receive, 30)
        client.wire.flush()
    time.sleep(1.0)
    note_idle(server, f"{count:,} waiting receivers", plan, results)
    request = send_request(topic)
    waits: list[float] = []
    with selectors.DefaultSelector() as selector:
        selector.register(producer.wire, selectors.EVENT_READ, None)
        for client in clients:
            selector.register(client.wire, selectors.EVENT_READ, client)
        measured, sent, got = Measured(server), 0, 0
        began = 0.0
        while got < count:
            # A message after the other: each wakes one of those who wait.
            if sent == got and sent < count:
                began = time.perf_counter()
                producer.wire.begin("SendMessage", request, DEADLINE_S)
                producer.wire.flush()
                sent += 1
            for key, _ in ready(selector, server):
                if key.data is None:
                    producer.wire.receive()
                    producer.wire.flush()
                    continue
                for _, data in key.data.wire.receive():
                    got += any(ReceiveAnswer.FromString(each).HasField("message") for each in split(data))
                    waits.append(time.perf_counter() - began)
                key.data.wire.flush()
    found = measured.sample(count, waits)
    leave([*clients, producer])
    return found


def telemetry_streams(server: Front, topic: str, plan: Plan, results: Results) -> Sample:
    measured = Measured(server)
    clients, waits = settled(server, producer_settings(topic), plan.clients)
    found = measured.sample(plan.clients, waits)
    note_idle(server, f"{plan.clients:,} telemetry streams", plan, results)
    leave(clients)
    return found


def note_idle(server: Front, what: str, plan: Plan, results: Results) -> None:
    results.note(f"{what}: memory, MB RSS", server.name, server.rss_mb())
    before = server.cpu_s()
    time.sleep(plan.idle_s)
    used_ms = (server.cpu_s() - before) * 1000
    results.note(f"{what}: CPU while idle, ms a second", server.name, used_ms / plan.idle_s)


def leave(clients: Sequence[Client]) -> None:
    """Say goodbye, so that the next load finds no members of this one."""
    for client in clients:
        client.wire.begin("NotifyClientTermination", b"")
        client.wire.flush()
    for client in clients:
        while not any(stream != client.stream for stream, _ in client.wire.receive()):
            pass
        client.wire.close()


# ------------------------------------------------------------------------------------------- all of it

Load = Callable[[Front, str, Plan, Results], Sample]
LOADS: Final[dict[str, Load]] = {
    "sends, 1 × 1": lambda server, topic, plan, _: sends(server, topic, plan.sends // 4, 1, 1),
    "sends, 8 × 8": lambda server, topic, plan, _: sends(server, topic, plan.sends, 8, 8),
    "receive + ack": lambda server, topic, plan, _: receive_and_ack(server, topic, plan.received),
    "waiting receivers": waiting_receivers,
    "telemetry streams": telemetry_streams,
}


def measure(servers: Sequence[Front], loads: Mapping[str, Load], plan: Plan, results: Results) -> None:
    for server in servers:
        with server.turn():
            topic = create_topic(server, "Warm")
            until = time.monotonic() + plan.compiling_s
            while time.monotonic() < until:
                sends(server, topic, plan.sends // 2, 8, 8)
            until = time.monotonic() + plan.compiling_s
            number = 0
            while time.monotonic() < until:
                number += 1
                receive_and_ack(server, create_topic(server, f"Warm{number}"), plan.received // 2)
    for number, order in enumerate(orders(servers, plan.rounds)):
        for cell, load in loads.items():
            for server in order:
                with server.turn():
                    topic = create_topic(server, f"T{number}-{list(LOADS).index(cell)}")
                    results.add(cell, server.name, load(server, topic, plan, results))
        for server in servers:
            results.note("after the loads: memory, MB RSS", server.name, server.rss_mb())


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="one short round: does it work at all?")
    parser.add_argument("--mode", choices=list(STARTS), default="local")
    parser.add_argument("--loads", default="", help="only loads with one of these words in their names")
    parser.add_argument("--servers", default=f"{OWN},{APACHE}", help=f"of {OWN}, {APACHE}")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--clients", type=int, default=1000, help="waiting receivers, and streams")
    parser.add_argument("--json", type=Path, help="write the figures to this file as well")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    _, files = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))
    names = available(options.servers.split(","))
    plan = Plan(options.rounds, 40_000, 20_000, options.clients, compiling_s=15.0, idle_s=3.0)
    if options.quick:
        plan = Plan(1, 2_000, 1_000, min(100, options.clients), compiling_s=1.0, idle_s=0.5)
    words = options.loads.split(",")
    loads = {cell: load for cell, load in LOADS.items() if any(word in cell for word in words)}
    # A collection of the load's own garbage takes up to 30 ms, which would count as the servers' time.
    gc.disable()
    results = Results()
    with running(options.mode, names) as servers:
        measure(servers, loads, plan, results)
    others = [name for name in names if name != OWN]
    for other in others:
        print(comparison(results, list(loads), OWN, other, FIGURES), end="\n\n")
    print(figures_table(results, names, others))
    for other in others:
        said = "\n".join(behind(results, OWN, other, FIGURES)) or "Nowhere in this run."
        print(f"\nWhere ours is behind {other}:\n\n{said}")
    if options.json:
        document: dict[str, Any] = {
            "mode": options.mode,
            "plan": asdict(plan),
            "samples": [
                {"load": cell, "server": server, "rounds": [vars(each) for each in rows]}
                for (cell, server), rows in results.samples.items()
            ],
            "figures": results.figures,
        }
        options.json.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
