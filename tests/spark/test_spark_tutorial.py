"""The tutorial works as it is written: its commands in their order, with the output that it shows."""

import http.cookiejar
import os
import pty
import re
import signal
import subprocess
import sys
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest
from tests.support.places import ROOT

PAGE = ROOT / "docs" / "tutorials" / "first-pipeline.md"
FILE = re.compile(r"Save this as \*(\S+)\*:\n\n```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
BLOCK = re.compile(r"^```console\n(.*?)^```", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r"^\$ ((?:.*\\\n)*.*)\n((?:(?!\$ ).*\n)*)", re.MULTILINE)
BEFORE = ["make setup", ". .venv/bin/activate", ". .venv/bin/activate"]
"""These made the environment in which the test runs."""
CLUSTER = "pyromq standalone --console"
UNTIL_CTRL_C = (CLUSTER, "python bill.py")
FREE_PORTS = " --namesrv-port 0 --broker-port 0 --grpc-port -1"
DOCUMENTED_NAMESRV = "127.0.0.1:9876"


def commands() -> list[tuple[str, str]]:
    """Each command, and what it prints."""
    return [found for block in BLOCK.findall(PAGE.read_text()) for found in COMMAND.findall(block)]


def matches(shown: str, printed: str) -> bool:
    """The page shows the beginning; an ellipsis is any text."""
    addresses = re.sub(r":\d+\b", ":…", shown)
    return re.match(re.escape(addresses).replace("…", ".*?"), printed, re.DOTALL) is not None


class Terminal:
    def __init__(self, home: Path) -> None:
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        self.home = home
        self.environment = {**os.environ, "HOME": str(home), "PATH": path}
        del self.environment["PYROMQ_PIPELINE_RUNS"]  # the console looks at home
        self.exports: list[str] = []

    def run(self, command: str) -> str:
        if command.startswith("export "):
            self.exports.append(command)
        script = "\n".join(["set -o pipefail", *self.exports, command])
        done = subprocess.run(
            ["bash", "-ec", script], cwd=self.home, env=self.environment, capture_output=True, text=True
        )
        assert done.returncode == 0, (command, done.stdout, done.stderr)
        return done.stdout

    @contextmanager
    def running(self, command: str, lines: int) -> Iterator[str]:
        """What it prints first, line by line, as it does on a terminal. Ctrl-C ends it."""
        screen, terminal = pty.openpty()
        with (
            open(screen, closefd=True) as shown,
            subprocess.Popen(
                ["bash", "-ec", "\n".join([*self.exports, f"exec {command}"])],
                cwd=self.home,
                env={name: each for name, each in self.environment.items() if name != "PYTHONUNBUFFERED"},
                stdout=terminal,
            ) as process,
        ):
            os.close(terminal)
            try:
                yield "".join(shown.readline() for _ in range(lines))
                process.send_signal(signal.SIGINT)
                with suppress(OSError):  # nobody writes any more
                    shown.read()
                assert process.wait(60) == 0
            finally:
                process.kill()


class Console:
    def __init__(self, url: str, password: str) -> None:
        self._url = url
        cookies = urllib.request.HTTPCookieProcessor(http.cookiejar.CookieJar())
        self._opener = urllib.request.build_opener(cookies)
        form = urllib.parse.urlencode({"name": "admin", "password": password, "next": "/me"})
        self._read(urllib.request.Request(f"{url}login", form.encode(), {"Sec-Fetch-Site": "same-origin"}))

    def page(self, below: str) -> str:
        return self._read(urllib.request.Request(f"{self._url}c/default/{below}"))

    def _read(self, request: urllib.request.Request) -> str:
        with self._opener.open(request, timeout=60) as answer:
            text: str = answer.read().decode()
        return text


@pytest.mark.timeout(1800)
def test_the_tutorial_leads_from_nothing_to_a_first_pipeline(tmp_path: Path) -> None:
    terminal = Terminal(tmp_path)
    namesrv, console = "", None
    to_type = commands()
    assert [command for command, _ in to_type if command in BEFORE] == BEFORE
    with ExitStack() as cluster:
        for command, shown in to_type:
            if command in BEFORE:
                continue
            if command == CLUSTER:
                lines = shown.count("\n")
                printed = cluster.enter_context(terminal.running(f"{command} 0{FREE_PORTS}", lines))
                found = re.search(r"name server (\S+),.*is at (\S+)\n.* with (\S+)", printed, re.DOTALL)
                assert found is not None, printed
                namesrv, console = found[1], Console(found[2], found[3])
                for name, program in FILE.findall(PAGE.read_text()):
                    (tmp_path / name).write_text(program.replace(DOCUMENTED_NAMESRV, namesrv))
            elif command in UNTIL_CTRL_C:
                with terminal.running(command, shown.count("\n")) as printed:
                    pass
            else:
                printed = terminal.run(command.replace(DOCUMENTED_NAMESRV, namesrv))
            assert matches(shown, printed), (command, shown, printed)
        totals = printed.replace(",", "")
        assert re.search(r"north\W+666\W+33732\b", totals), printed
        assert re.search(r"south\W+1334\W+67268\b", totals), printed
        assert console is not None
        assert "ShopOrders" in console.page("topics")
        assert "o-42" in console.page("topics/ShopOrders/messages?key=o-42")
        assert "shop-billing" in console.page("groups")
        assert "ShopOrders" in console.page("pipelines")
