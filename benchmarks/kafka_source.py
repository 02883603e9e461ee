"""Spark's own Kafka source, to measure beside: its jars, fetched with Maven into the user's cache directory.

Of each jar the release that fits PySpark is tried first, then older ones: not all can be had everywhere.
"""

import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyspark
from tests.support.apache_releases import PeerUnavailable, cache_directory, say, tool
from tests.support.kafka import fetch_kafka

_SCALA: Final = "2.13"
_OLDER: Final = ("4.2.0", "4.1.0", "4.0.0")
_COMMONS_POOL: Final = "2.12.1"


@dataclass(frozen=True)
class KafkaSource:
    jars: tuple[Path, ...]

    @property
    def names(self) -> str:
        return ", ".join(jar.stem for jar in self.jars)


def fetch_kafka_source() -> KafkaSource:
    """Raises PeerUnavailable if Maven cannot have it."""
    directory = cache_directory().parent / "spark-kafka" / pyspark.__version__
    directory.mkdir(parents=True, exist_ok=True)
    releases = (pyspark.__version__, *_OLDER)
    spark_jars = [
        _first("org.apache.spark", f"{name}_{_SCALA}", releases, directory)
        for name in ("spark-sql-kafka-0-10", "spark-token-provider-kafka-0-10")
    ]
    pool = _first("org.apache.commons", "commons-pool2", (_COMMONS_POOL,), directory)
    clients = next(fetch_kafka().glob("kafka-clients-*.jar"))
    return KafkaSource((*spark_jars, clients, pool))


def _first(group: str, artifact: str, versions: tuple[str, ...], directory: Path) -> Path:
    if kept := sorted(directory.glob(f"{artifact}-[0-9]*.jar")):
        return kept[-1]
    maven = tool("mvn")
    for version in versions:
        say(f"fetching {artifact} {version} with Maven ...")
        done = subprocess.run(
            [
                maven,
                "--batch-mode",
                "--no-transfer-progress",
                "--quiet",
                "dependency:copy",
                f"-Dartifact={group}:{artifact}:{version}",
                f"-DoutputDirectory={directory}",
            ],
            capture_output=True,
            text=True,
            check=False,
            cwd=directory,
        )
        jar = directory / f"{artifact}-{version}.jar"
        if done.returncode == 0 and jar.is_file():
            return jar
    raise PeerUnavailable(f"Maven has no {artifact} of {', '.join(versions)}")
