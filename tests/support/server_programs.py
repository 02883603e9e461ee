"""Servers as an operator meets them: real processes, their output, their exit codes."""

import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path


def environment(home: Path, **more: str) -> dict[str, str]:
    return {"HOME": str(home), "PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8", **more}


@dataclass
class Running:
    process: subprocess.Popen[str]
    boot: re.Match[str]
    """What the line said that told it was up."""
    errors: Path

    def stop(self, received: signal.Signals = signal.SIGTERM) -> int:
        """Its exit status."""
        self.process.send_signal(received)
        return self.process.wait(timeout=60)

    def stderr(self) -> str:
        return self.errors.read_text()

    def more_output(self) -> str:
        """Everything on stdout after the first line; only after its end."""
        assert self.process.stdout is not None
        return self.process.stdout.read()


@dataclass(frozen=True)
class Program:
    """The program whose `main` is in a module; it tells by a line on stdout that it is up."""

    module: str
    boot_line: str
    arguments: tuple[str, ...] = ()
    python: str = sys.executable

    def command(self, *arguments: str) -> list[str]:
        return [
            self.python,
            "-c",
            f"from {self.module} import main; main()",
            *self.arguments,
            *arguments,
        ]

    def run(self, home: Path, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
        """Run it to its end."""
        return subprocess.run(
            self.command(*arguments),
            env=environment(home, **env),
            cwd=home,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    @contextmanager
    def running(self, home: Path, *arguments: str, **env: str) -> Iterator[Running]:
        """A server that has told that it is up; it is killed at the end if it still lives."""
        errors = home / "stderr"
        with errors.open("w+") as stderr:
            process = subprocess.Popen(
                self.command(*arguments),
                env=environment(home, **env),
                cwd=home,
                stdout=subprocess.PIPE,
                stderr=stderr,
                text=True,
            )
            with process:
                assert process.stdout is not None
                try:
                    found = re.fullmatch(self.boot_line, process.stdout.readline().strip())
                    assert found, errors.read_text()
                    yield Running(process, found, errors)
                finally:
                    process.kill()


BROKER = Program(
    "pyromq.apps.broker",
    r"The broker\[(?P<name>[^,]+), (?P<address>[^\]]+)\] boot success\. serializeType=(?P<form>\w+)"
    r"( and name server is (?P<namesrv>.+))?",
)
NAME_SERVER = Program(
    "pyromq.apps.namesrv",
    r"The Name Server boot success\. serializeType=(?P<form>\w+), "
    r"address (?P<address>(?P<host>[\d.]+):(?P<port>\d+))",
)

CONTROLLER = Program(
    "pyromq.apps.controller",
    r"The Controller Server boot success\. serializeType=(?P<form>\w+), "
    r"address (?P<address>(?P<host>[\d.]+):(?P<port>\d+))",
)

FILTER_SERVER = Program("pyromq.apps.filtersrv", r"The Filter Server boot success, (?P<address>[\d.]+:\d+)")

PROXY = Program(
    "pyromq.apps.proxy",
    r"rocketmq-proxy startup successfully, address (?P<address>(?P<host>[\d.]+):(?P<port>\d+))",
)

CONSOLE = Program("pyromq.apps.pyromq", r"The console is at (?P<url>http://\S+)", ("console",))


def get(address: str, path: str) -> tuple[int, str]:
    """A page of an HTTP server: status and text."""
    connection = HTTPConnection(address, timeout=60)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        return response.status, response.read().decode()
    finally:
        connection.close()
