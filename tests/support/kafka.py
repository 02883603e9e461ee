"""A Kafka broker to measure beside and to read from: fetched once, gone when its `with` block ends.

One node that is its own controller. Nothing fetched lies in the tree: jars go to the user's cache directory.
"""

import base64
import subprocess
import tempfile
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.support.apache import LOOPBACK, JavaProcess, free_ports
from tests.support.apache_releases import REPOSITORY, PeerUnavailable, cache_directory, say, tool

KAFKA_VERSION: Final = "3.9.1"

_SMALL: Final = ("-Xms64m", "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
"""Quick to start: for tests. A measurement passes its own."""

_LOGGING: Final = """log4j.rootLogger=INFO, out
log4j.appender.out=org.apache.log4j.ConsoleAppender
log4j.appender.out.layout=org.apache.log4j.PatternLayout
log4j.appender.out.layout.ConversionPattern=%d %p %c - %m%n
"""


def fetch_kafka() -> Path:
    """The directory with the broker's jars, fetched if not there yet; raises PeerUnavailable."""
    directory = cache_directory().parent / "kafka" / KAFKA_VERSION
    if directory.is_dir():
        return directory
    maven = tool("mvn")
    directory.parent.mkdir(parents=True, exist_ok=True)
    say(f"fetching Kafka {KAFKA_VERSION} with Maven ...")
    with tempfile.TemporaryDirectory(prefix="arriving-", dir=directory.parent) as scratch:
        arriving = Path(scratch) / "jars"
        done = subprocess.run(
            [
                maven,
                "--batch-mode",
                "--no-transfer-progress",
                "--quiet",
                f"--file={REPOSITORY / 'interop' / 'kafka' / 'pom.xml'}",
                f"-Dkafka.version={KAFKA_VERSION}",
                "-DincludeScope=runtime",
                f"-DoutputDirectory={arriving}",
                "dependency:copy-dependencies",
            ],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0 or not arriving.is_dir():
            reasons = [line for line in done.stdout.splitlines() if line.startswith("[ERROR]")]
            raise PeerUnavailable(
                f"could not fetch Kafka {KAFKA_VERSION} with Maven: "
                + (reasons[0] if reasons else f"mvn exited with {done.returncode}")
            )
        if not directory.is_dir():  # someone else may have been faster
            arriving.rename(directory)
    return directory


class KafkaBroker(JavaProcess):
    """A broker whose log lies in `directory`; the same directory again is a restart.

    Topics are created when they are first used, with `partitions` partitions. `settings` are Kafka's own.
    """

    def __init__(
        self,
        directory: Path,
        *,
        partitions: int = 4,
        settings: Mapping[str, str] | None = None,
        jvm: Sequence[str] = _SMALL,
    ) -> None:
        self.port = free_ports(2)
        self.address = f"{LOOPBACK}:{self.port}"
        self._directory = directory
        jars = fetch_kafka()
        super().__init__(f"{jars}/*", "kafka.Kafka", [], "Kafka Server started", jvm=jvm)
        (self.home / "log4j.properties").write_text(_LOGGING)
        self._conf = self.home / "server.properties"
        controller = f"{LOOPBACK}:{self.port + 1}"
        values = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@{controller}",
            "controller.listener.names": "CONTROLLER",
            "listeners": f"PLAINTEXT://{self.address},CONTROLLER://{controller}",
            "advertised.listeners": f"PLAINTEXT://{self.address}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "log.dirs": str(directory),
            "num.partitions": str(partitions),
            "offsets.topic.replication.factor": "1",
            "offsets.topic.num.partitions": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "transaction.state.log.num.partitions": "1",
            "group.initial.rebalance.delay.ms": "0",
            **(settings or {}),
        }
        self._conf.write_text("".join(f"{name}={value}\n" for name, value in values.items()))
        # Before the class path, where a JVM takes its own options.
        self._command[1:1] = [f"-Dlog4j.configuration=file:{self.home / 'log4j.properties'}"]
        self._command.append(str(self._conf))

    def start(self) -> None:
        if not (self._directory / "meta.properties").exists():
            self._format()
        super().start()

    def _format(self) -> None:
        cluster_id = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        command = self._command[: self._command.index("kafka.Kafka")]
        done = subprocess.run(
            [*command, "kafka.tools.StorageTool", "format", f"-t={cluster_id}", f"-c={self._conf}"],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            raise PeerUnavailable(f"Kafka could not format {self._directory}: {done.stdout}{done.stderr}")

    def __enter__(self) -> "KafkaBroker":
        self.start()
        return self


@contextmanager
def kafka_broker(directory: Path) -> Iterator[str]:
    """The address, as `host:port`, of a broker that runs while the block does; raises PeerUnavailable."""
    with KafkaBroker(directory) as broker:
        yield broker.address


if __name__ == "__main__":
    try:
        fetch_kafka()
    except PeerUnavailable as failure:
        raise SystemExit(f"kafka: {failure}") from failure
