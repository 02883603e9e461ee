"""Apache RocketMQ as Maven Central has it: fetched once, kept outside the tree, or a plain reason why not.

    python -m tests.support.apache_releases            (fetches what the interop tests need)
    python -m tests.support.apache_releases --probe    (says whether that would work; fetches next to nothing)

Exit status 3 says that Apache's releases cannot be had here; everything else that is not 0 is our own fault.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

REPOSITORY: Final = Path(__file__).resolve().parents[2]
UNAVAILABLE: Final = 3
NEEDED_JAVA: Final = 17
PROBE_TIMEOUT_S: Final = 60.0
FETCH_TIMEOUT_S: Final = 600.0
FILES_A_LINE: Final = 50

# Nothing but a parent: Maven reads that, and not one plugin, from its registry.
_PROBE: Final = """<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
  <parent><groupId>org.apache</groupId><artifactId>apache</artifactId><version>18</version><relativePath/></parent>
  <artifactId>probe</artifactId><packaging>pom</packaging></project>
"""


class PeerUnavailable(Exception):
    """Apache RocketMQ could not be fetched or started; the message says what was missing."""


@dataclass(frozen=True)
class Release:
    """One line of Apache releases: what its servers and its clients are fetched as."""

    servers: str
    clients: str

    def __str__(self) -> str:
        return self.clients


# Maven Central has the client of 4.9.8 but not its name server and broker; those of 4.9.7 differ from them
# only in which settings may be changed at run time.
APACHE_4: Final = Release(servers="4.9.7", clients="4.9.8")
APACHE_5: Final = Release(servers="5.3.3", clients="5.3.3")
APACHE_NEWEST: Final = Release(servers="5.5.0", clients="5.5.0")
LAST_WITH_FILTER_SERVERS: Final = "4.2.0"
RELEASES: Final = (APACHE_4, APACHE_5)
"""Those that everything is tried with."""
ALL_RELEASES: Final = (*RELEASES, APACHE_NEWEST)


def cache_directory() -> Path:
    """Where everything fetched or compiled is kept, outside the tree."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "pyromq" / "apache"


def fetch(version: str, part: str) -> Path:
    """The directory with the jars of `part` ("servers" or "clients"), fetched if not there yet."""
    directory = _jars(version, part)
    if directory.is_dir():
        return directory
    directory.parent.mkdir(parents=True, exist_ok=True)
    # A name of its own: two who fetch at once do not disturb each other.
    arriving = Path(tempfile.mkdtemp(prefix=f"{directory.name}.arriving-", dir=directory.parent))
    say(f"fetching Apache RocketMQ {version} ({part}) with Maven ...")
    try:
        maven(
            f"--file={REPOSITORY / 'interop' / 'pom.xml'}",
            f"--activate-profiles={part}",
            f"-Drocketmq.version={version}",
            "-DincludeScope=runtime",
            f"-DoutputDirectory={arriving}",
            "dependency:copy-dependencies",
            timeout_s=FETCH_TIMEOUT_S,
        )
        _arrive(arriving, directory)
    except PeerUnavailable as failure:
        raise PeerUnavailable(
            f"could not fetch Apache RocketMQ {version} ({part}) with Maven: {failure}"
        ) from failure
    finally:
        shutil.rmtree(arriving, ignore_errors=True)
    size_bytes = sum(jar.stat().st_size for jar in directory.iterdir())
    say(f"fetched {len(list(directory.iterdir()))} jars, {size_bytes / 1e6:.0f} MB, into {directory}")
    return directory


def fetch_all(releases: Iterable[Release] = ALL_RELEASES) -> None:
    """Fetch and compile everything the tests need, so that they measure no download."""
    tool("java")
    for release in releases:
        fetch(release.servers, "servers")
        driver_class_path(release)
    fetch(APACHE_5.servers, "proxy")
    fetch(LAST_WITH_FILTER_SERVERS, "filtersrv")


def probe(releases: Iterable[Release] = ALL_RELEASES) -> str:
    """Why `fetch_all` would work, told at once; PeerUnavailable says why not."""
    check_java()
    tool("javac")
    if all(
        _jars(release.servers, "servers").is_dir() and _jars(release.clients, "clients").is_dir()
        for release in releases
    ):
        return f"fetched before, into {cache_directory()}"
    with tempfile.TemporaryDirectory(prefix="pyromq-probe-") as scratch:
        project = Path(scratch) / "pom.xml"
        project.write_text(_PROBE)
        # A repository of its own, or Maven would only ask the disk.
        maven(
            f"--file={project}", f"-Dmaven.repo.local={scratch}/repository", "validate",
            timeout_s=PROBE_TIMEOUT_S,
        )  # fmt: skip
    return "Maven reaches its registry"


def driver_class_path(release: Release) -> str:
    """The class path of Apache's client, its tools and our driver, compiled if it was not yet."""
    jars = fetch(release.clients, "clients")
    source = REPOSITORY / "interop" / "java" / "Peer.java"
    digest = hashlib.sha256(source.read_bytes()).hexdigest()[:12]
    classes = cache_directory() / f"driver-{release.clients}-{digest}"
    if not classes.is_dir():
        with tempfile.TemporaryDirectory(prefix="arriving-", dir=cache_directory()) as scratch:
            compiled = Path(scratch) / "classes"
            compiled.mkdir()
            done = subprocess.run(
                [tool("javac"), "-nowarn", "-cp", f"{jars}/*", "-d", str(compiled), str(source)],
                capture_output=True,
                text=True,
                check=False,
            )
            if done.returncode != 0:
                raise RuntimeError(f"could not compile {source.name}: {done.stderr.strip()}")
            _arrive(compiled, classes)
    return f"{jars}/*{os.pathsep}{classes}"


def tool(name: str) -> str:
    """The path of a program of the JDK, or of Maven."""
    path = shutil.which(name)
    if path is None:
        raise PeerUnavailable(
            f"{name} is not installed: Apache RocketMQ needs a Java {NEEDED_JAVA} JDK and Maven"
        )
    return path


def say(line: str) -> None:
    sys.stderr.write(line + "\n")
    sys.stderr.flush()


def _arrive(whole: Path, directory: Path) -> None:
    """At once or not at all: what a directory in the cache is called says that everything is in it."""
    try:
        whole.rename(directory)
    except OSError:
        if not directory.is_dir():  # else someone was faster
            raise


def _jars(version: str, part: str) -> Path:
    return cache_directory() / f"{version}-{part}"


def check_java() -> None:
    said = subprocess.run(
        [tool("java"), "-version"], capture_output=True, text=True, check=False, timeout=PROBE_TIMEOUT_S
    ).stderr
    found = re.search(r'version "(\d+)', said)
    if found is None or int(found[1]) < NEEDED_JAVA:
        first = said.partition("\n")[0]
        raise PeerUnavailable(f"Apache RocketMQ needs Java {NEEDED_JAVA} here, java says: {first}")


def maven(*arguments: str, timeout_s: float) -> None:
    """Run Maven, telling now and then how many files it has read; PeerUnavailable says what went wrong."""
    command = [tool("mvn"), "--batch-mode", *arguments]
    environment = {**os.environ, "MAVEN_OPTS": os.environ.get("MAVEN_OPTS", "") + " -Djansi.mode=strip"}
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment
    )
    expired = threading.Event()

    def give_up() -> None:
        expired.set()
        process.kill()

    timer = threading.Timer(timeout_s, give_up)
    timer.start()
    complaints: list[str] = []
    files = 0
    try:
        with process:
            assert process.stdout is not None
            for line in process.stdout:
                if line.startswith("[ERROR]"):
                    complaints.append(line.replace("[ERROR]", "").strip())
                if "Downloaded from" in line:
                    files += 1
                    if files % FILES_A_LINE == 0:
                        say(f"  {files} files so far")
    finally:
        timer.cancel()
    if expired.is_set():
        raise PeerUnavailable(f"Maven was not done after {timeout_s:.0f} s")
    if process.returncode != 0:
        telling = [complaint for complaint in complaints if "Could not" in complaint] or complaints
        raise PeerUnavailable(telling[0] if telling else f"mvn exited with {process.returncode}")


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--probe", action="store_true", help="only say whether it would work")
    options = parser.parse_args(words)
    try:
        why = probe()
        if options.probe:
            say(f"Apache RocketMQ can be had: {why}")
        else:
            fetch_all()
    except PeerUnavailable as failure:
        say(f"Apache RocketMQ cannot be had: {failure}")
        return UNAVAILABLE
    return 0


if __name__ == "__main__":
    sys.exit(main())
