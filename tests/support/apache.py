"""Apache RocketMQ as a peer: servers and clients on loopback, each gone when its `with` block ends."""

from __future__ import annotations

import base64
import contextlib
import itertools
import json
import os
import random
import shutil
import socket
import subprocess
import tempfile
import threading
import urllib.parse
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final

from tests.support.apache_releases import (
    LAST_WITH_FILTER_SERVERS,
    PeerUnavailable,
    Release,
    driver_class_path,
    fetch,
    tool,
)

from pyromq.errors import PyroError
from pyromq.protocol.requests.routes import GetAllTopics
from pyromq.remoting.blocking_link import Link, LinkOptions

LOOPBACK: Final = "127.0.0.1"
# Generous: whoever waits in vain is wrong, whoever shares a busy machine is only slow.
# Servers forget a client that did not take its leave only after two minutes.
START_TIMEOUT_S: Final = 180.0
ANSWER_TIMEOUT_S: Final = 240.0
EVENT_TIMEOUT_S: Final = 180.0
ATTEMPTS: Final = 5
EVENT_TIMEOUT_MS: Final = int(EVENT_TIMEOUT_S * 1000)
STOP_TIMEOUT_S: Final = 180.0
_SHORTEST_PAUSE_S: Final = 0.02
_LONGEST_PAUSE_S: Final = 0.4


# What Java 17 must be told so that both releases can free their mapped files.
_JVM: Final = (
    "-Djava.net.preferIPv4Stack=true",
    "--add-exports=java.base/jdk.internal.ref=ALL-UNNAMED",
    "--add-opens=java.base/java.nio=ALL-UNNAMED",
    "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
    "--add-opens=java.base/jdk.internal.ref=ALL-UNNAMED",
    "--add-opens=java.base/java.lang=ALL-UNNAMED",
)
# Quick to start and small: for tests. A measurement passes its own.
_SMALL: Final = (
    "-Xms64m",
    "-Xmx512m",
    "-XX:MaxDirectMemorySize=512m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
)

# By default members of groups look round only every 20 s, and ask for locks as seldom.
_IMPATIENT: Final = {
    "rocketmq.client.rebalance.waitInterval": "1000",
    "rocketmq.client.rebalance.minInterval": "500",
    "rocketmq.client.rebalance.lockInterval": "1000",
}


# ---------------------------------------------------------------------------------------------- processes


class JavaProcess:
    """One JVM with a home directory of its own; leaving the `with` block kills it."""

    def __init__(
        self,
        class_path: str,
        main: str,
        arguments: Sequence[str],
        boot_line: str,
        properties: Mapping[str, str] | None = None,
        jvm: Sequence[str] = _SMALL,
    ) -> None:
        self.home = Path(tempfile.mkdtemp(prefix="pyromq-peer-"))
        _write_logging_files(self.home / "conf")
        self._boot_line = boot_line
        self._log = self.home / "out.log"
        known = {
            "user.home": str(self.home),
            "rocketmq.home.dir": str(self.home),
            "rocketmq.client.logRoot": str(self.home / "logs"),
            "java.io.tmpdir": str(self.home),
            **(properties or {}),
        }
        self._command = [
            tool("java"),
            *_JVM,
            *jvm,
            *(f"-D{name}={value}" for name, value in known.items()),
            "-cp",
            class_path,
            main,
            *arguments,
        ]
        self._process: subprocess.Popen[bytes] | None = None
        self._booted = threading.Event()
        self._is_silent = False
        """Whether it will never say anything again."""
        self._reader: threading.Thread | None = None

    def __repr__(self) -> str:
        state = "not started" if self._process is None else self._process.poll()
        return f"<{type(self).__name__} pid={self.pid} exit={state}>"

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process else None

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def output(self) -> str:
        """Everything the JVM has written so far."""
        return self._log.read_text(errors="replace") if self._log.exists() else ""

    def start(self) -> None:
        """Returns when it is ready; also after it was killed, where it was and with the files it had."""
        self._booted.clear()
        self._is_silent = False
        self._process = subprocess.Popen(
            self._command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={
                name: value
                for name, value in os.environ.items()
                if not name.startswith(("ROCKETMQ", "NAMESRV"))
            },
            cwd=self.home,
        )
        assert self._process.stdout is not None
        self._reader = threading.Thread(
            target=self._drain, args=(self._process.stdout,), name="peer-output", daemon=True
        )
        self._reader.start()
        # Who has hung up is about to end, though it may still run.
        if not self._booted.wait(START_TIMEOUT_S) or self._is_silent:
            output = self.output()
            self.kill()
            raise PeerUnavailable(
                f"{self._command[-1]} did not start:\n{output[-4000:]}\n{self._server_logs()}"
            )

    def _drain(self, stream: IO[bytes]) -> None:
        with self._log.open("ab", buffering=0) as log:
            for line in stream:
                log.write(line)
                self.heard(line.decode(errors="replace"))
        self._is_silent = True
        self._booted.set()

    def heard(self, line: str) -> None:
        if self._boot_line in line:
            self._booted.set()

    def _server_logs(self) -> str:
        texts = [
            path.read_text(errors="replace")[-2000:] for path in self.home.rglob("*.log") if path != self._log
        ]
        return "\n".join(text for text in texts if text)

    def terminate(self) -> None:
        """Ask for a clean stop and wait until the JVM is gone."""
        if self._process is not None:
            self._process.terminate()
            self._process.wait(STOP_TIMEOUT_S)
            self._close()

    def kill(self) -> None:
        """SIGKILL, as a crash would."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(STOP_TIMEOUT_S)
            self._close()

    def _close(self) -> None:
        assert self._process is not None
        if self._reader is not None:
            self._reader.join(STOP_TIMEOUT_S)
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with contextlib.suppress(BrokenPipeError):
                    stream.close()

    def __enter__(self) -> JavaProcess:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        shutil.rmtree(self.home, ignore_errors=True)


def _write_logging_files(directory: Path) -> None:
    """4.9 refuses to start without these; 5.x carries its own and follows user.home."""
    directory.mkdir(parents=True)
    for program in ("namesrv", "broker", "tools", "filtersrv"):
        (directory / f"logback_{program}.xml").write_text(
            f"""<configuration>
  <appender name="file" class="ch.qos.logback.core.FileAppender">
    <file>${{user.home}}/logs/{program}.log</file>
    <encoder><pattern>%d %p %t - %m%n</pattern></encoder>
  </appender>
  <root level="INFO"><appender-ref ref="file"/></root>
</configuration>
"""
        )


def free_ports(count: int = 1) -> int:
    """The first of `count` neighbouring ports that are free now, below those the system hands out itself:
    between our look and the peer's bind nobody else is given them."""
    for _ in range(100):
        first = random.randrange(10_000, 30_000)
        with contextlib.ExitStack() as held:
            try:
                for port in range(first, first + count):
                    held.enter_context(_bound(socket.SOCK_STREAM, port))
                claims = [
                    held.enter_context(_bound(socket.SOCK_DGRAM, port))
                    for port in range(first, first + count)
                ]
            except OSError:
                continue
            # Whoever looks for ports at the same time sees by the datagram ports, which no peer uses, that
            # these are taken; they stay so as long as this process lives.
            for claim in claims:
                claim.detach()
            return first
    raise PeerUnavailable(f"no {count} neighbouring ports are free")


def _bound(kind: socket.SocketKind, port: int) -> socket.socket:
    bound = socket.socket(type=kind)
    try:
        bound.bind(("0.0.0.0", port))
    except OSError:
        bound.close()
        raise
    return bound


# ---------------------------------------------------------------------------------------------- servers


class ApacheNameServer(JavaProcess):
    """Apache's own NameServer, for the same question asked of both."""

    def __init__(
        self,
        release: Release,
        port: int = 0,
        settings: Mapping[str, str] | None = None,
        header_form: str = "JSON",
        jvm: Sequence[str] = _SMALL,
        tls: bool = False,
    ) -> None:
        """`tls`: it makes a certificate when it starts, which takes it half of its time."""
        self.port = port or free_ports()
        self.address = f"{LOOPBACK}:{self.port}"
        super().__init__(
            f"{fetch(release.servers, 'servers')}/*",
            "org.apache.rocketmq.namesrv.NamesrvStartup",
            [],
            "The Name Server boot success",
            {"rocketmq.serialize.type": header_form, "tls.server.mode": "permissive" if tls else "disabled"},
            jvm,
        )
        conf = self.home / "namesrv.conf"
        _write_properties(
            conf,
            {
                "listenPort": str(self.port),
                "bindAddress": LOOPBACK,
                "rocketmqHome": str(self.home),
                "kvConfigPath": str(self.home / "kvConfig.json"),
                **(settings or {}),
            },
        )
        self._command += ["-c", str(conf)]

    def __enter__(self) -> ApacheNameServer:
        self.start()
        return self


class ApacheBroker(JavaProcess):
    """Apache's broker with small files, registered at `name_servers` (addresses separated by `;`)."""

    def __init__(
        self,
        release: Release,
        name_servers: str,
        store: Path,
        name: str = "broker-a",
        cluster: str = "DefaultCluster",
        broker_id: int = 0,
        port: int = 0,
        settings: Mapping[str, str] | None = None,
        header_form: str = "JSON",
        jvm: Sequence[str] = _SMALL,
        tls: bool = False,
    ) -> None:
        """`tls`: it makes a certificate when it starts, which takes it half of its time."""
        # The fast port is two below, the replication port one above.
        self.port = port or free_ports(4) + 2
        self.address = f"{LOOPBACK}:{self.port}"
        self.name = name
        self.store = store
        super().__init__(
            f"{fetch(release.servers, 'servers')}/*",
            "org.apache.rocketmq.broker.BrokerStartup",
            [],
            "boot success",
            {"rocketmq.serialize.type": header_form, "tls.server.mode": "permissive" if tls else "disabled"},
            jvm,
        )
        conf = self.home / "broker.conf"
        _write_properties(
            conf,
            {
                "brokerClusterName": cluster,
                "brokerName": name,
                "brokerId": str(broker_id),
                "brokerRole": "ASYNC_MASTER" if broker_id == 0 else "SLAVE",
                "brokerIP1": LOOPBACK,
                "brokerIP2": LOOPBACK,
                "namesrvAddr": name_servers,
                "listenPort": str(self.port),
                "bindAddress": LOOPBACK,
                "storePathRootDir": str(store),
                "storePathCommitLog": str(store / "commitlog"),
                "autoCreateTopicEnable": "true",
                "mappedFileSizeCommitLog": str(1 << 20),
                "mappedFileSizeConsumeQueue": str(20 * 1000),
                "maxHashSlotNum": "100",
                "maxIndexNum": "400",
                "mappedFileSizeTimerLog": str(1 << 20),
                "registerNameServerPeriod": "10000",
                "diskMaxUsedSpaceRatio": "99",
                "enableControllerMode": "false",
                # A broker that is kept waiting by others on its machine does not refuse messages.
                "waitTimeMillsInSendQueue": "30000",
                "osPageCacheBusyTimeOutMills": "30000",
                **(settings or {}),
            },
        )
        self._command += ["-c", str(conf)]

    def __enter__(self) -> ApacheBroker:
        self.start()
        return self


class ApacheFilterServer(JavaProcess):
    """Apache's filter server, of the last release that had one, next to a broker."""

    def __init__(self, name_servers: str, broker: str) -> None:
        super().__init__(
            f"{fetch(LAST_WITH_FILTER_SERVERS, 'filtersrv')}/*",
            "org.apache.rocketmq.filtersrv.FiltersrvStartup",
            [],
            "The Filter Server boot success",
        )
        conf = self.home / "filtersrv.conf"
        _write_properties(
            conf,
            {
                "rocketmqHome": str(self.home),
                "namesrvAddr": name_servers,
                "connectWhichBroker": broker,
                "filterServerIP": LOOPBACK,
            },
        )
        self._command += ["-c", str(conf)]

    def __enter__(self) -> ApacheFilterServer:
        self.start()
        return self


def _write_properties(path: Path, values: Mapping[str, str]) -> None:
    path.write_text("".join(f"{name}={value}\n" for name, value in values.items()))


# ---------------------------------------------------------------------------------------------- clients


_GAVE_UP: Final = "RemotingTimeoutException"
_NO_ROUTE: Final = "Can not find Message Queue"


class ApacheClient(JavaProcess):
    """One JVM that sends, reads, consumes and runs admin commands, one request at a time."""

    def __init__(self, release: Release, header_form: str = "JSON") -> None:
        self.release = release
        super().__init__(
            driver_class_path(release),
            "Peer",
            [],
            "ready",
            {"rocketmq.serialize.type": header_form, "rocketmq.client.logLevel": "WARN", **_IMPATIENT},
        )
        self._answer = ""
        self._answered = threading.Condition()

    def __enter__(self) -> ApacheClient:
        self.start()
        return self

    def heard(self, line: str) -> None:
        super().heard(line)
        if line.startswith(("ok ", "error ")):
            with self._answered:
                self._answer = line
                self._answered.notify()

    def run(self, *words: str) -> str:
        """Run one command of the driver; its output, or RuntimeError with Java's stack trace."""
        assert self._process is not None
        assert self._process.stdin is not None
        with self._answered:
            self._answer = ""
            self._process.stdin.write(" ".join(map(urllib.parse.quote_plus, words)).encode() + b"\n")
            self._process.stdin.flush()
            if not self._answered.wait_for(lambda: bool(self._answer), ANSWER_TIMEOUT_S):
                raise RuntimeError(f"Apache's client gave no answer to {words[:4]}\n{self.output()[-2000:]}")
            verdict, _, encoded = self._answer.partition(" ")
        text = base64.b64decode(encoded).decode()
        if verdict != "ok":
            raise RuntimeError(f"Apache's client failed at {words[:4]}:\n{text}")
        return text

    def ask(self, *words: str) -> str:
        """Run a command that changes nothing when it is repeated; Apache's client gives up after a few
        seconds, which on a busy machine means nothing: it is asked again.
        """
        for _ in range(ATTEMPTS - 1):
            try:
                said = self.run(*words)
            except RuntimeError as failure:
                said = str(failure)
                if _GAVE_UP not in said:
                    raise
            if _GAVE_UP not in said:
                return said
        return self.run(*words)

    def mqadmin(self, *arguments: str) -> str:
        """The output of one `mqadmin` command."""
        return self.ask("mqadmin", *arguments)

    def create_topic(self, name_server: str, broker: str, topic: str, queues: int = 4) -> None:
        """Create a topic and wait until its route is known; 5.x registers it after it has answered."""
        count = str(queues)
        self.mqadmin("updateTopic", "-n", name_server, "-b", broker, "-t", topic, "-r", count, "-w", count)
        wait_until(lambda: topic in topics_at(name_server), f"the route of {topic}")

    def wait_committed(self, name_server: str, group: str, topic: str, queues: int) -> None:
        """Wait until a group has committed all of a topic. Its members are told to: by themselves they do so
        every five seconds, and one that leaves may leave out what it has just consumed.
        """

        def is_committed() -> bool:
            self.run("commit")
            said = self.mqadmin("consumerProgress", "-g", group, "-n", name_server)
            topics = [line.split()[0] for line in said.splitlines() if line.strip()]
            return topics.count(topic) == queues and "Diff Total: 0" in said

        wait_until(is_committed, f"offsets of {group} in {topic}")

    def key_values(self, name_server: str, namespace: str, key: str) -> tuple[str, dict[str, str]]:
        """One value of the key-value configuration and its whole namespace."""
        value, table = _rows(self.ask("kv", name_server, namespace, key))
        return value["value"], table

    def queues(self, name_server: str, topic: str) -> list[tuple[str, int]]:
        """The readable queues the client found for a topic."""
        return [(row["brokerName"], row["queueId"]) for row in _rows(self.ask("queues", name_server, topic))]

    def send(
        self,
        name_server: str,
        messages: Iterable[Mapping[str, Any]],
        group: str = "peer_producer",
        **options: object,
    ) -> list[dict[str, Any]]:
        """Send messages: topic, body and, if wanted, tags, keys, flag, delay, wait, way (async, oneway),
        batch, queue, properties. Options of the producer: trace, vip, compressOver.
        """
        return _rows(self.run("send", name_server, group, *_options(options), *_message_words(messages)))

    @contextlib.contextmanager
    def transactor(self, name_server: str, group: str) -> Iterator[Transactor]:
        """A producer of transactions while the block runs."""
        transactor = Transactor(self, f"transactor-{next(_numbers)}")
        self.run("transactor", transactor.name, name_server, group)
        try:
            yield transactor
        finally:
            self.run("retire", transactor.name)

    def recall(self, name_server: str, topic: str, handle: str) -> str:
        """Take back a timed message; its id."""
        [row] = _rows(self.run("recall", name_server, topic, handle))
        return str(row["msgId"])

    def request(
        self,
        name_server: str,
        message: Mapping[str, Any],
        group: str = "peer_asking",
        timeout_ms: int = EVENT_TIMEOUT_MS,
    ) -> dict[str, Any]:
        """Send one message and wait for what a consumer replies to it."""
        [reply] = _rows(self.run("request", name_server, group, str(timeout_ms), *_message_words([message])))
        return reply

    def read(self, name_server: str, topic: str, at_least: int = 0) -> list[dict[str, Any]]:
        """Every message of a topic, by pulling each queue from its first offset to its last; as soon as there
        are so many, as Apache's brokers show only a moment later what they have stored.
        """
        rows: list[dict[str, Any]] = []

        def are_shown() -> bool:
            try:
                rows[:] = _rows(self.ask("read", name_server, topic))
            except RuntimeError as failure:
                if not at_least or _NO_ROUTE not in str(failure):
                    raise
                return False
            return len(rows) >= at_least

        wait_until(are_shown, f"{at_least} messages of {topic}")
        return rows

    def consume(
        self,
        name_server: str,
        topic: str,
        count: int,
        group: str = "peer_consumer",
        expression: str = "*",
        timeout_ms: int = EVENT_TIMEOUT_MS,
    ) -> list[dict[str, Any]]:
        """`count` messages as a member of a consumer group."""
        return _rows(self.run("consume", name_server, group, topic, expression, str(count), str(timeout_ms)))

    def poll(
        self,
        name_server: str,
        topic: str,
        count: int,
        group: str = "peer_polling",
        timeout_ms: int = EVENT_TIMEOUT_MS,
    ) -> list[dict[str, Any]]:
        """`count` messages at least, by a member of a group that asks for them itself."""
        return _rows(self.run("poll", name_server, group, topic, str(count), str(timeout_ms)))

    def query(self, name_server: str, topic: str, key: str, most: int = 32) -> list[dict[str, Any]]:
        """The messages of a topic that carry a key."""
        return _rows(self.ask("query", name_server, topic, key, str(most)))

    def view(self, name_server: str, topic: str, message_id: str) -> dict[str, Any]:
        """One message by the id its producer gave it, or by its place in the log."""
        [row] = _rows(self.ask("view", name_server, topic, message_id))
        return row

    @contextlib.contextmanager
    def member(self, name_server: str, group: str, topic: str, **options: object) -> Iterator[Member]:
        """A consumer of a group while the block runs. Options: expression, sql, broadcast, ordered,
        from_last, fails (how often each message), attempts (before it is dead), reply (text put before a
        request's body), trace, pop (the broker decides about queues), filterName and filterSource.
        """
        member = Member(self, f"member-{next(_numbers)}")
        if options.pop("from_last", False):
            options["from"] = "last"
        named = {"nameServer": name_server, "group": group, "topic": topic, "instance": member.name}
        self.run("join", member.name, *_options({**named, **options}))
        try:
            yield member
        finally:
            self.run("leave", member.name)


class Member:
    """A consumer that runs in Apache's client until its `with` block ends."""

    def __init__(self, client: ApacheClient, name: str) -> None:
        self.name = name
        self._client = client

    def __repr__(self) -> str:
        return f"<Member {self.name}>"

    def received(self, count: int = 0, timeout_ms: int = EVENT_TIMEOUT_MS) -> list[dict[str, Any]]:
        """All messages so far, as soon as it is `count` of them at least."""
        return _rows(self._client.run("received", self.name, str(count), str(timeout_ms)))

    def queues(self, topic: str) -> set[tuple[str, int]]:
        """The queues of a topic that it has been given."""
        rows = _rows(self._client.run("assigned", self.name))
        return {(row["brokerName"], row["queueId"]) for row in rows if row["topic"] == topic}


class Transactor:
    """A producer of transactions that runs in Apache's client until its `with` block ends."""

    def __init__(self, client: ApacheClient, name: str) -> None:
        self.name = name
        self._client = client

    def __repr__(self) -> str:
        return f"<Transactor {self.name}>"

    def send(
        self, topic: str, body: bytes, local: str, check: str = "never", keys: str = "", **properties: str
    ) -> dict[str, Any]:
        """`local`, `check`: the states that the local transaction and a check return, in Java's words."""
        message = {"topic": topic, "body": body, "properties": {"local": local, "check": check, **properties}}
        if keys:
            message["keys"] = keys
        [row] = _rows(self._client.run("transact", self.name, *_message_words([message])))
        return row

    def asked(self) -> list[dict[str, Any]]:
        """The messages that brokers have asked about."""
        return _rows(self._client.run("asked", self.name))


_numbers = itertools.count(1)


def _options(options: Mapping[str, object]) -> list[str]:
    return [
        f"{name}={str(value).lower() if isinstance(value, bool) else value}"
        for name, value in options.items()
    ]


def _message_words(messages: Iterable[Mapping[str, Any]]) -> list[str]:
    words: list[str] = []
    for message in messages:
        words.append("message")
        for name, value in message.items():
            if name == "body":
                words.append("body=" + base64.b64encode(value).decode())
            elif name == "properties":
                words += [f"property.{key}={text}" for key, text in value.items()]
            else:
                words.append(f"{name}={value}")
    return words


ClientOf = Callable[[Release, str], ApacheClient]
"""The client of a release in a header form; tests share one JVM for each."""


@dataclass(frozen=True)
class ApacheServers:
    """A name server and a broker of a release, and its client, which starts when it is needed."""

    release: Release
    names: str
    broker: ApacheBroker
    client_of: ClientOf

    @property
    def client(self) -> ApacheClient:
        return self.client_of(self.release, "JSON")


def keyed_messages(topic: str, queues: int, count: int) -> list[dict[str, Any]]:
    """Messages with a key of their own and one of three tags, to one queue after the other."""
    return [
        {
            "topic": topic,
            "body": b"body %d" % number,
            "queue": number % queues,
            "keys": f"key{number}",
            "tags": f"T{number % 3}",
        }
        for number in range(count)
    ]


def _rows(text: str) -> list[dict[str, Any]]:
    rows = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
    for row in rows:
        if "body" in row:
            row["body"] = base64.b64decode(row["body"])
    return rows


def topics_at(name_servers: str) -> set[str]:
    """The topics that all of these name servers know; we ask them ourselves, as Java's client costs more."""
    known = []
    for address in name_servers.split(";"):
        try:
            link = Link(address, LinkOptions())
            try:
                known.append(set(link.call(GetAllTopics()).body.topic_list))
            finally:
                link.close()
        except PyroError:
            return set()
    return set.intersection(*known)


def wait_for_broker(name_servers: str, broker: str, *, present: bool = True) -> None:
    """Wait until a broker is registered, or gone: each has a topic of its own name."""
    wait_until(
        lambda: (broker in topics_at(name_servers)) is present,
        f"{broker} {'registered' if present else 'gone'} at {name_servers}",
    )


def saved_table(store: Path, name: str) -> str:
    """A file of a broker's tables; empty while there is none, as for a moment whenever Java replaces it."""
    try:
        return (store / "config" / name).read_text()
    except FileNotFoundError:
        return ""


def wait_until(condition: Callable[[], bool], what: str, timeout_s: float = EVENT_TIMEOUT_S) -> None:
    """Ask again and again, and less often the longer it takes: each question costs a peer a client."""
    deadline = threading.Event()
    timer = threading.Timer(timeout_s, deadline.set)
    timer.start()
    try:
        pause_s = _SHORTEST_PAUSE_S
        while not condition():
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
            if deadline.wait(pause_s):
                raise AssertionError(f"{what} did not happen within {timeout_s} s")
    finally:
        timer.cancel()
