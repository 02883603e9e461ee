"""How long anybody else waits while one peer asks for a lot, and while the servers do their ordinary work.

    python -m benchmarks.stalls [--quick] [--only WORDS] [--json FILE]

A broker and a name server run as processes of their own. A bystander, a third process, asks one of them for
something small every millisecond. Meanwhile attacks and ordinary work are done one after the other; for each
the table tells the bystander's median and longest wait, and what the attacker was answered.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import select
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from benchmarks import wire
from tests.support.own_broker import OwnBroker
from tests.support.own_nameserver import OwnNameServer

import pyromq.protocol.requests  # noqa: F401  fills the catalogue
from pyromq.protocol.batch import BatchEntry, encode_batch
from pyromq.protocol.catalogue import CATALOGUE

TOPIC: Final = "Stalls"
GROUP: Final = "stalls"
MIB: Final = 1 << 20
PING_EVERY_S: Final = 0.001
ANSWER_TIMEOUT_S: Final = 120.0
MAX_QUEUES: Final = 65_536
_CODES: Final = {declaration.name: code for code, declaration in CATALOGUE.items()}


@dataclass
class Sizes:
    """How much each attack brings."""

    keys: int = 10_000
    terms: int = 4_000
    allowed_terms: int = 1_000
    messages: int = 20_000
    heartbeats: int = 60
    held_pulls: int = 1_000
    batch: int = 100_000
    queues: int = MAX_QUEUES
    tables: int = 10_000
    references: int = 240_000
    digits: int = 15 * MIB
    fields: int = 900_000
    brokers: int = 100
    topics_per_broker: int = 10_000
    log_mib: int = 128


QUICK: Final = Sizes(
    keys=2_000,
    terms=1_500,
    allowed_terms=500,
    messages=2_000,
    heartbeats=5,
    held_pulls=100,
    batch=5_000,
    queues=4_096,
    tables=1_000,
    references=10_000,
    digits=MIB,
    fields=50_000,
    brokers=5,
    topics_per_broker=1_000,
    log_mib=40,
)


@dataclass
class Waits:
    """What the bystander saw."""

    asked: int
    p50_ms: float
    p99_ms: float
    max_ms: float
    max_cpu_ms: float
    """The most processor time that the server used during one wait: what remains of the longest wait where
    other programs compete for the machine."""


@dataclass
class Row:
    server: str
    name: str
    waits: Waits
    seconds: float
    answered: str


@dataclass
class Site:
    """Where the servers are, and how much to do to them."""

    broker: OwnBroker
    name_server: OwnNameServer
    sizes: Sizes
    rows: list[Row] = field(default_factory=list)

    def port(self, server: str) -> int:
        return self.broker.port if server == "broker" else self.name_server.port

    def pid(self, server: str) -> int:
        return self.broker.pid if server == "broker" else self.name_server.pid


Work = Callable[[Site], str]


@dataclass(frozen=True)
class Case:
    server: str
    name: str
    work: Work
    prepare: Callable[[Site], None] | None = None


# ---------------------------------------------------------------------- the bystander


def bystand(kind: str, port: int, pid: int) -> None:
    """Ask for something small every millisecond until standard input ends; then say how long it took."""
    request = (
        _frame("GetMaxOffset", topic="nobody", queueId=0)
        if kind == "broker"
        else _frame("GetRoute", topic="nobody")
    )
    connection = wire.Wire(port)
    connection.call(request)
    waits: list[float] = []
    max_cpu_s = 0.0
    cpu_clock = ~pid << 3 | 2  # as clock_getcpuclockid(3) makes it
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    while not select.select([sys.stdin], [], [], 0)[0]:
        cpu_began, began = time.clock_gettime(cpu_clock), time.perf_counter()
        connection.call(request)
        waits.append((time.perf_counter() - began) * 1000)
        max_cpu_s = max(max_cpu_s, time.clock_gettime(cpu_clock) - cpu_began)
        time.sleep(PING_EVERY_S)
    waits.sort()
    found = Waits(
        len(waits), statistics.median(waits), waits[int(len(waits) * 0.99)], waits[-1], max_cpu_s * 1000
    )
    sys.stdout.write(json.dumps(asdict(found)) + "\n")


@contextlib.contextmanager
def bystander(kind: str, port: int, pid: int) -> Iterator[list[Waits]]:
    """What it saw is in the list when the block has ended."""
    found: list[Waits] = []
    command = [sys.executable, "-m", "benchmarks.stalls", "--bystand", kind, str(port), str(pid)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield found
        process.stdin.close()
        found.append(Waits(**json.loads(process.stdout.readline())))


# ---------------------------------------------------------------------- asking


def _frame(name: str, body: Any = b"", **ext: object) -> bytes:
    return wire.frame(_CODES[name], {key: str(value) for key, value in ext.items()}, body)


def _json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def _answer(port: int, *requests: bytes) -> str:
    """What the last of some requests is answered; a few words."""
    connection = wire.Wire(port)
    connection.set_timeout(ANSWER_TIMEOUT_S)
    try:
        answer = ""
        for request in requests:
            header, body = connection.call(request)
            answer = _shown(header, body)
        return answer
    except (EOFError, ConnectionError):
        return "hung up"
    except TimeoutError:
        return f"no answer in {ANSWER_TIMEOUT_S:.0f} s"
    finally:
        connection.close()


def _shown(header: Mapping[str, Any], body: bytes) -> str:
    remark = str(header.get("remark") or "")[:80]
    size = f", {len(body):,} bytes" if body else ""
    return f"{header['code']}{size}{': ' + remark if remark else ''}"


def _asking(server: str, *requests: Callable[[Sizes], bytes]) -> Work:
    return lambda site: _answer(site.port(server), *(request(site.sizes) for request in requests))


# ---------------------------------------------------------------------- filling


def _create_topic(site: Site, topic: str, queues: int) -> None:
    request = _frame(
        "CreateOrUpdateTopic",
        topic=topic,
        defaultTopic="TBW102",
        readQueueNums=queues,
        writeQueueNums=queues,
        perm=6,
        topicFilterType="SINGLE_TAG",
        topicSysFlag=0,
        order="false",
    )
    _answer(site.broker.port, request)


def _send(topic: str, queue_id: int, body: bytes, properties: str = "", batch: bool = False) -> bytes:
    return wire.frame(
        wire.SEND_MESSAGE_V2,
        {
            "a": "stalls",
            "b": topic,
            "c": "TBW102",
            "d": "4",
            "e": str(queue_id),
            "f": "0",
            "g": "1700000000000",
            "h": "0",
            "i": properties,
            "j": "0",
            "k": "false",
            "m": "true" if batch else "false",
        },
        body,
    )


def _fill(site: Site, topic: str, messages: int) -> None:
    """So many small messages in queue 0."""
    _create_topic(site, topic, 1)
    for first in range(0, messages, 500):
        entries = [BatchEntry(b"x", b"a\x01%d\x02" % number) for number in range(first, first + 500)]
        _answer(site.broker.port, _send(topic, 0, encode_batch(entries), batch=True))


def _many_topics(sizes: Sizes, prefix: str, count: int) -> bytes:
    topics = [
        {"topicName": f"{prefix}{n}", "readQueueNums": 4, "writeQueueNums": 4, "perm": 6}
        for n in range(count)
    ]
    return _frame("CreateOrUpdateTopics", _json({"topicConfigList": topics}))


def _fill_tables(site: Site) -> str:
    """Many topics, groups and offsets."""
    count = site.sizes.tables
    answers = [
        _answer(site.broker.port, _many_topics(site.sizes, "Table", count)),
        _answer(
            site.broker.port,
            _frame(
                "CreateOrUpdateGroups",
                _json({"groupConfigList": [{"groupName": f"group{n}"} for n in range(count)]}),
            ),
        ),
    ]
    assert all(answer.startswith("0") for answer in answers), answers
    connection = wire.Wire(site.broker.port)
    for number in range(count):
        connection.send(_commit(number))
    for _ in range(count):
        connection.receive()
    connection.close()
    return f"{count:,} topics, groups and offsets"


def _commit(number: int) -> bytes:
    return _frame(
        "UpdateConsumerOffset",
        consumerGroup=f"group{number}",
        topic=f"Table{number}",
        queueId=number % 4,
        commitOffset=0,
    )


# ---------------------------------------------------------------------- attacks on the broker


def _pull(topic: str, offset: int, expression: str = "*", kind: str = "TAG", **changes: object) -> bytes:
    fields: dict[str, object] = {
        "consumerGroup": GROUP,
        "topic": topic,
        "queueId": 0,
        "queueOffset": offset,
        "maxMsgNums": 20_000,
        "sysFlag": 4,
        "commitOffset": 0,
        "suspendTimeoutMillis": 15_000,
        "subscription": expression,
        "subVersion": 1,
        "expressionType": kind,
    }
    return _frame("PullMessage", **fields | changes)


def _either(terms: int) -> str:
    """A filter that no message passes."""
    return " OR ".join(f"a = {10_000_000 + number}" for number in range(terms))


def _pull_through(site: Site) -> str:
    """Pull as a consumer does: on and on from where the answer says, until the end of the queue."""
    connection = wire.Wire(site.broker.port)
    offset = pulls = 0
    expression = _either(site.sizes.allowed_terms)
    ends_at = time.monotonic() + 10
    while offset < site.sizes.messages and time.monotonic() < ends_at:
        header, _ = connection.call(_pull(TOPIC, offset, expression, "SQL92"))
        if header["code"] != 20:
            return f"{_shown(header, b'')} after {pulls} pulls"
        offset = int(header["extFields"]["nextBeginOffset"])
        pulls += 1
    connection.close()
    return f"{pulls} pulls past {offset:,} messages"


def _held_pulls(site: Site) -> str:
    _create_topic(site, "Held", 1)
    _answer(site.broker.port, _send("Held", 0, b"x", "a\x011\x02"))
    expression = _either(site.sizes.allowed_terms)
    connections = [wire.Wire(site.broker.port) for _ in range(10)]
    for number in range(site.sizes.held_pulls):
        connections[number % 10].send(_pull("Held", 1, expression, "SQL92", sysFlag=6))
    time.sleep(0.5)
    for _ in range(5):
        _answer(site.broker.port, _send("Held", 0, b"x", "a\x011\x02"))
    for connection in connections:
        connection.close()
    return f"{site.sizes.held_pulls} held, none woken for good"


def _heartbeat(number: int, subscriptions: int, expression: str) -> bytes:
    body = {
        "clientID": f"client{number}",
        "consumerDataSet": [
            {
                "groupName": f"{GROUP}{number}",
                "consumeType": "CONSUME_PASSIVELY",
                "messageModel": "CLUSTERING",
                "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
                "subscriptionDataSet": [
                    {
                        "topic": f"{TOPIC}{each}",
                        "subString": expression,
                        "expressionType": "SQL92",
                        "subVersion": 1,
                    }
                    for each in range(subscriptions)
                ],
            }
        ],
    }
    return _frame("SendHeartbeat", _json(body))


def _many_groups(sizes: Sizes) -> bytes:
    """As many groups as one heartbeat may have, all of them new."""
    data = [
        {
            "groupName": f"many{number}",
            "consumeType": "CONSUME_PASSIVELY",
            "messageModel": "CLUSTERING",
            "subscriptionDataSet": [{"topic": TOPIC, "subString": "*"}],
        }
        for number in range(512)
    ]
    return _frame("SendHeartbeat", _json({"clientID": "many", "consumerDataSet": data}))


def _heartbeats(site: Site) -> str:
    before = _rss_mib(site.broker.pid)
    large = [_heartbeat(number, 20, _either(4_000)) for number in range(site.sizes.heartbeats)]
    refused = _answer(site.broker.port, *large)
    allowed = [_heartbeat(number, 4, _either(600)) for number in range(site.sizes.heartbeats)]
    _answer(site.broker.port, *allowed)
    return f"{refused}; memory +{_rss_mib(site.broker.pid) - before:.0f} MiB"


def _rss_mib(pid: int) -> float:
    with open(f"/proc/{pid}/status") as status:
        return int(status.read().split("VmRSS:")[1].split()[0]) / 1024


def _batch(sizes: Sizes) -> bytes:
    entries = [BatchEntry(b"x", b"a\x011\x02")] * sizes.batch
    return _send(TOPIC, 0, encode_batch(entries)[: 4 * MIB - 1024], batch=True)


def _whole_batch(sizes: Sizes) -> bytes:
    entries = [BatchEntry(b"x", b"")] * (min(sizes.batch, 120_000))
    return _send(TOPIC, 0, encode_batch(entries), batch=True)


def _locks(code: str) -> Callable[[Sizes], bytes]:
    def request(sizes: Sizes) -> bytes:
        queues = [{"topic": TOPIC, "brokerName": "broker-a", "queueId": n} for n in range(2 * sizes.queues)]
        return _frame(code, _json({"consumerGroup": GROUP, "clientId": "c", "mqSet": queues}))

    return request


def _wide(site: Site) -> None:
    """A topic of as many queues as there may be, a group that has read them, and one message."""
    _create_topic(site, "Wide", site.sizes.queues)
    _answer(site.broker.port, _pull("Wide", 0, consumerGroup="wide"))


def _reset(sizes: Sizes) -> bytes:
    return _frame("ResetOffset", topic="Wide", group="wide", timestamp=0, isForce="true", queueId=-1)


def _save_offsets(site: Site) -> str:
    """Offsets of all groups are committed again, and written down every five seconds."""
    connection = wire.Wire(site.broker.port)
    ends_at = time.monotonic() + 6
    while time.monotonic() < ends_at:
        connection.call(_commit(0))
        time.sleep(0.05)
    connection.close()
    return f"{site.sizes.tables:,} groups"


def _roll(site: Site) -> str:
    """Sends that fill several files of the log."""
    connection = wire.Wire(site.broker.port)
    _create_topic(site, "Rolling", 4)
    body = bytes(256 * 1024)
    count = site.sizes.log_mib * 4
    for number in range(count):
        header, _ = connection.call(_send("Rolling", number % 4, body))
        assert header["code"] == 0, header
        time.sleep(0.002)
    connection.close()
    return f"{site.sizes.log_mib} MiB in files of 16 MiB"


def _one_topic(site: Site) -> str:
    _create_topic(site, f"One{time.monotonic_ns()}", 4)
    return f"with {site.sizes.tables:,} others"


def _one_group(site: Site) -> str:
    group = f"one{time.monotonic_ns()}"
    return _answer(site.broker.port, _heartbeat_of(group))


def _heartbeat_of(group: str) -> bytes:
    data = [{"groupName": group, "subscriptionDataSet": [{"topic": TOPIC, "subString": "*"}]}]
    return _frame("SendHeartbeat", _json({"clientID": group, "consumerDataSet": data}))


# ---------------------------------------------------------------------- attacks on bodies


def _references(sizes: Sizes) -> bytes:
    entries = ",".join(['{"$ref":"$.mqSet[0]"}'] * sizes.references)
    first = '{"topic":"t","brokerName":"b","queueId":0}'
    body = f'{{"consumerGroup":"g","clientId":"c","mqSet":[{first},{entries}]}}'
    return _frame("LockQueues", body.encode())


def _digits(sizes: Sizes) -> bytes:
    return _frame("LockQueues", b'{"consumerGroup":' + b"1" * sizes.digits + b"}")


def _header_fields(code: str) -> Callable[[Sizes], bytes]:
    def request(sizes: Sizes) -> bytes:
        return _frame(code, **{f"f{number}": "" for number in range(sizes.fields)})

    return request


# ---------------------------------------------------------------------- the name server


def _registered(number: int, topics: int, first: int, counter: int) -> bytes:
    names = [f"topic{each}" for each in range(first, first + topics)]
    return wire.registration(wire.broker_fields(number), names, 8, counter)


def _come_and_go(site: Site) -> str:
    """A broker with very many topics comes and hangs up."""
    connection = wire.Wire(site.name_server.port)
    total = site.sizes.brokers * site.sizes.topics_per_broker
    for at in range(0, total, 20_000):
        connection.call(_registered(900, 20_000, at, at + 1))
    connection.close()
    time.sleep(1)
    return f"{total:,} topics"


def _register_all(counter: int) -> Work:
    def work(site: Site) -> str:
        connections = []
        for number in range(site.sizes.brokers):
            connection = wire.Wire(site.name_server.port)
            connection.call(_registered(number, site.sizes.topics_per_broker, 0, counter))
            connections.append(connection)
        for connection in connections:
            if counter > 1:
                connection.close()
        return f"{site.sizes.brokers} brokers × {site.sizes.topics_per_broker:,} topics"

    return work


# ---------------------------------------------------------------------- all of it


def _config(code: str) -> Callable[[Sizes], bytes]:
    return lambda sizes: _frame(code, b"".join(b"unknown%d=1\n" % number for number in range(sizes.keys)))


def _plain(code: str, **ext: object) -> Callable[[Sizes], bytes]:
    return lambda sizes: _frame(code, **ext)


def _rest(site: Site) -> str:
    time.sleep(1 if site.sizes is QUICK else 3)
    return ""


CASES: Final = [
    Case("broker", "nothing", _rest),
    Case("broker", "settings: unknown keys", _asking("broker", _config("UpdateBrokerConfig"))),
    Case(
        "broker",
        "a filter of thousands of terms",
        _asking("broker", lambda sizes: _pull(TOPIC, 0, _either(sizes.terms), "SQL92")),
        lambda site: _fill(site, TOPIC, site.sizes.messages),
    ),
    Case("broker", "the largest filter over all messages", _pull_through),
    Case("broker", "held pulls with large filters, woken", _held_pulls),
    Case("broker", "heartbeats with large filters", _heartbeats),
    Case("broker", "a heartbeat of very many groups", _asking("broker", _many_groups)),
    Case(
        "broker",
        "a filter of 100,000 tags",
        _asking("broker", lambda sizes: _pull(TOPIC, 0, "||".join(f"t{n}" for n in range(sizes.batch)))),
    ),
    Case("broker", "a batch of very many messages", _asking("broker", _whole_batch)),
    Case("broker", "a batch cut off", _asking("broker", _batch)),
    Case("broker", "locks of many queues", _asking("broker", _locks("LockQueues"))),
    Case("broker", "unlocks of many queues", _asking("broker", _locks("UnlockQueues"))),
    Case(
        "broker",
        "a message with very many properties",
        _asking("broker", lambda sizes: _send(TOPIC, 0, b"x", "a\x01b\x02" * sizes.batch)),
    ),
    Case("broker", "reset of very many queues", _asking("broker", _reset), _wide),
    Case(
        "broker",
        "progress in very many queues",
        _asking("broker", _plain("GetConsumeStats", consumerGroup="wide", topic="Wide")),
    ),
    Case(
        "broker", "statistics of very many queues", _asking("broker", _plain("GetTopicStats", topic="Wide"))
    ),
    Case(
        "broker",
        "time spans of very many queues",
        _asking("broker", _plain("GetConsumeTimeSpans", topic="Wide", group="wide")),
    ),
    Case(
        "broker",
        "a search for very many messages",
        _asking(
            "broker",
            _plain(
                "QueryMessage", topic=TOPIC, key="k", maxNum=2**31 - 1, beginTimestamp=0, endTimestamp=2**62
            ),
        ),
    ),
    Case("broker", "a body of references", _asking("broker", _references)),
    Case("broker", "a body of digits", _asking("broker", _digits)),
    Case("broker", "a header of very many fields", _asking("broker", _header_fields("GetMaxOffset"))),
    Case("broker", "very many topics made at once", _fill_tables),
    Case("broker", "one more topic", _one_topic),
    Case("broker", "one more group by heartbeat", _one_group),
    Case("broker", "all topics listed", _asking("broker", _plain("GetAllTopicConfigs"))),
    Case("broker", "all groups listed", _asking("broker", _plain("GetAllGroupConfigs"))),
    Case("broker", "all offsets listed", _asking("broker", _plain("GetAllConsumerOffsets"))),
    Case(
        "broker",
        "progress of all groups",
        _asking("broker", _plain("GetBrokerConsumeStats", isOrder="false")),
    ),
    Case("broker", "runtime figures", _asking("broker", _plain("GetBrokerRuntimeInfo"))),
    Case("broker", "offsets written down", _save_offsets),
    Case("broker", "files of the log rolled", _roll),
    Case("broker", "expired files cleaned", _asking("broker", _plain("DeleteExpiredCommitLog"))),
    Case("broker", "queues of unknown topics cleaned", _asking("broker", _plain("CleanUnusedTopics"))),
    Case(
        "broker",
        "a topic of very many queues deleted",
        _asking("broker", _plain("DeleteTopicFromBroker", topic="Wide")),
    ),
    Case("name server", "nothing", _rest),
    Case("name server", "settings: unknown keys", _asking("name server", _config("UpdateNameServerConfig"))),
    Case("name server", "a header of very many fields", _asking("name server", _header_fields("GetRoute"))),
    Case("name server", "a million topics come and go", _come_and_go),
    Case("name server", "brokers register", _register_all(1)),
    Case("name server", "brokers register again, changed", _register_all(2)),
    Case("name server", "all topics listed", _asking("name server", _plain("GetAllTopics"))),
]


def run(case: Case, site: Site) -> Row:
    if case.prepare is not None:
        case.prepare(site)
    with bystander(case.server, site.port(case.server), site.pid(case.server)) as found:
        began = time.perf_counter()
        answered = case.work(site)
        seconds = time.perf_counter() - began
        time.sleep(0.1)
    return Row(case.server, case.name, found[0], seconds, answered)


def as_table(rows: list[Row]) -> str:
    lines = [
        "| server | work | bystander p50 ms | p99 ms | longest ms | longest, CPU ms | took s | answered |",
        "|---|---|---:|---:|---:|---:|---:|---|",
    ]
    for row in rows:
        waits = row.waits
        lines.append(
            f"| {row.server} | {row.name} | {waits.p50_ms:.2f} | {waits.p99_ms:.1f} | {waits.max_ms:.1f} |"
            f" {waits.max_cpu_ms:.1f} | {row.seconds:.2f} | {row.answered.replace('|', '∣')} |"
        )
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="small sizes: only shows that it works")
    parser.add_argument(
        "--only", default="", help="cases whose names have one of these words, separated by commas"
    )
    parser.add_argument("--json", help="where to keep the figures")
    parser.add_argument("--bystand", nargs=3, metavar=("SERVER", "PORT", "PID"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.bystand:
        bystand(options.bystand[0], int(options.bystand[1]), int(options.bystand[2]))
        return
    words = [word for word in options.only.split(",") if word]
    sizes = QUICK if options.quick else Sizes()
    with OwnNameServer() as name_server, OwnBroker(name_server.address) as broker:
        site = Site(broker, name_server, sizes)
        for case in CASES:
            if words and not any(word in case.name for word in words):
                continue
            row = run(case, site)
            site.rows.append(row)
            longest = f"longest {row.waits.max_ms:.1f} ms, CPU {row.waits.max_cpu_ms:.1f} ms"
            sys.stderr.write(f"  {row.server}: {row.name}: {longest}: {row.answered}\n")
    sys.stdout.write(as_table(site.rows))
    if options.json:
        with open(options.json, "w") as file:
            json.dump([asdict(row) for row in site.rows], file, indent=1)


if __name__ == "__main__":
    os.environ.setdefault("PYTHONUNBUFFERED", "1")
    main()
