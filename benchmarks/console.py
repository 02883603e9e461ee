"""The console before a large cluster, with many viewers.

    python -m benchmarks.console [--quick] [--apache] [--browser] [--json FILE]

A hundred brokers with ten thousand topics and two thousand groups answer over real sockets, in a process of
their own (benchmarks/simulated_cluster.py). The console is another process, which also notes how long its
event loop was held, and viewers are a third one: each opens a list every few seconds over its own connection
and holds a live stream. The requests to the cluster are counted where they arrive, without viewers and with
them. With `--browser` Chromium opens the first page with an empty cache, before the viewers come and beside
them, and for comparison a page that is one line of text. Beside it stands what Apache's dashboard would ask
by its source (rocketmq-dashboard 2.1), not run.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Final

from benchmarks.simulated_cluster import BROKERS_PER_TOPIC, TOPICS_PER_GROUP

from pyromq.apps.serving import serve
from pyromq.console.security.headers import ALWAYS
from pyromq.console.server import Console
from pyromq.console.settings import ConsoleSettings

LISTS: Final = (
    "/c/default/",
    "/c/default/topics",
    "/c/default/topics?q=077",
    "/c/default/topics?sort=-in&page=3",
    "/c/default/groups",
    "/c/default/groups?sort=-lag",
    "/c/default/brokers",
    "/c/default/dlq",
)
LIVE: Final = "/c/default/live"
HELD_MS: Final = 50.0
_TICK_S: Final = 0.002
_OFTEN: Final = 30


@dataclass(frozen=True)
class Plan:
    brokers: int = 100
    topics: int = 10_000
    groups: int = 2_000
    viewers: int = 200
    seconds: float = 30.0
    between_s: float = 5.0
    """Each viewer opens a list so often."""
    loads: int = 30
    """So often a browser opens a page."""


QUICK: Final = Plan(brokers=20, topics=1_000, groups=200, viewers=40, seconds=8.0, loads=4)


# ---------------------------------------------------------------------- the console's process


class Measured:
    """The console as `pyromq console` runs it; at each line of standard input it tells what it used."""

    def __init__(self, namesrv: str, home: Path) -> None:
        self.console = Console(
            ConsoleSettings(
                namesrv_addr=namesrv, listen_port=0, home=home, anonymous_role="VIEWER", log_level="ERROR"
            )
        )
        self._held: list[tuple[float, float]] = []
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        await self.console.start()
        self._tasks = [asyncio.create_task(_note_held(self._held)), asyncio.create_task(self._tell())]

    async def run_until_stopped(self) -> None:
        await self.console.run_until_stopped()

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await self.console.stop()

    async def _tell(self) -> None:
        cpu_s, began = time.process_time(), time.perf_counter()
        while await asyncio.to_thread(sys.stdin.readline):
            now_s, now = time.process_time(), time.perf_counter()
            report = {
                "held_max_ms": max((held_ms for held_ms, _ in self._held), default=0.0),
                "held_max_cpu_ms": max((cpu_ms for _, cpu_ms in self._held), default=0.0),
                "held_over": sum(cpu_ms > HELD_MS for _, cpu_ms in self._held),
                "cpu_s": now_s - cpu_s,
                "cpu_share": (now_s - cpu_s) / (now - began),
                "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
            }
            self._held.clear()
            cpu_s, began = now_s, now
            _say(json.dumps({name: round(value, 4) for name, value in report.items()}))
        os.kill(os.getpid(), signal.SIGTERM)


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


async def _note_held(held: list[tuple[float, float]]) -> None:
    """How much later than asked for the loop came back, and how much processor time its thread used then:
    where other programs compete for the machine, only the latter says how long the loop was held."""
    while True:
        began, cpu_began = time.perf_counter(), time.thread_time()
        await asyncio.sleep(_TICK_S)
        ended, cpu_ended = time.perf_counter(), time.thread_time()
        held.append(((ended - began - _TICK_S) * 1000, (cpu_ended - cpu_began) * 1000))


# ---------------------------------------------------------------------- viewers


class Browser:
    """One connection that stays open, as a browser's does."""

    def __init__(self, host: str, port: int) -> None:
        self._host, self._port = host, port
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    async def get(self, path: str) -> tuple[int, int, float]:
        """Status, size and milliseconds of a page; on a new connection if the server has closed this one."""
        try:
            return await self._get(path)
        except (asyncio.IncompleteReadError, ConnectionError):
            self.close()
            self._writer = None
            return await self._get(path)

    async def _get(self, path: str) -> tuple[int, int, float]:
        if self._writer is None or self._writer.is_closing():
            self._reader, self._writer = await asyncio.open_connection(self._host, self._port)
        assert self._reader is not None
        began = time.perf_counter()
        self._writer.write(_request(path, self._host, self._port))
        head = (await self._reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
        length = int(head.split("content-length:")[1].split("\r\n")[0])
        await self._reader.readexactly(length)
        return int(head.split()[1]), length, (time.perf_counter() - began) * 1000

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()


def _request(path: str, host: str, port: int) -> bytes:
    return f"GET {path} HTTP/1.1\r\nHost: {host}:{port}\r\nAccept: text/html\r\n\r\n".encode()


async def _view(
    number: int, plan: Plan, host: str, port: int, until: float, times: dict[str, list[float]]
) -> int:
    """One viewer; returns how many bytes its live stream brought."""
    await asyncio.sleep(plan.between_s * number / plan.viewers)
    browser = Browser(host, port)
    reader, writer = await asyncio.open_connection(host, port)
    writer.write(_request(LIVE, host, port))
    streaming = asyncio.create_task(_count(reader))
    turn = number
    while time.perf_counter() < until:
        path = LISTS[turn % len(LISTS)]
        status, _, took_ms = await browser.get(path)
        assert status == 200, (path, status)
        times.setdefault(path, []).append(took_ms)
        turn += 1
        await asyncio.sleep(plan.between_s)
    browser.close()
    writer.close()
    streaming.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await streaming
    return 0


async def _count(reader: asyncio.StreamReader) -> None:
    while await reader.read(65_536):
        pass


async def view(plan: Plan, host: str, port: int) -> dict[str, list[float]]:
    times: dict[str, list[float]] = {}
    until = time.perf_counter() + plan.seconds
    await asyncio.gather(*(_view(number, plan, host, port, until, times) for number in range(plan.viewers)))
    return times


@contextlib.contextmanager
def viewers(plan: Plan, host: str, port: int) -> Iterator[subprocess.Popen[str]]:
    """All of them, in a process of their own; it ends by writing its times."""
    command = [sys.executable, "-m", "benchmarks.console", "--view", f"{host}:{port}"]
    command += [f"--viewers={plan.viewers}", f"--seconds={plan.seconds}"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.terminate()


def viewed(plan: Plan, host: str, port: int) -> dict[str, list[float]]:
    with viewers(plan, host, port) as process:
        times: dict[str, list[float]] = json.loads(process.communicate()[0])
        return times


# ---------------------------------------------------------------------- the run


class Child:
    """A process that answers each line with a line of JSON."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        assert process.stdout is not None
        self.first = process.stdout.readline().strip()
        if not self.first:
            raise SystemExit(f"{process.args!r} did not start")

    def ask(self) -> dict[str, float]:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        answer: dict[str, float] = json.loads(self.process.stdout.readline())
        return answer


@contextlib.contextmanager
def child(*words: str) -> Iterator[Child]:
    command = [sys.executable, "-m", *words]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield Child(process)
        finally:
            assert process.stdin is not None
            process.stdin.close()
            process.wait(30)


def dashboard_requests_per_minute(plan: Plan) -> dict[str, int]:
    """What Apache's dashboard asks by its source: its collector each minute, and its list of groups."""
    readers = min(1.0, plan.groups * TOPICS_PER_GROUP / plan.topics)
    each_topic = 1 + BROKERS_PER_TOPIC * (1 + 1 + readers)  # route; readers, puts and gets on every broker
    each_group = 2 * (1 + BROKERS_PER_TOPIC)  # progress and connections: a route, then every broker
    return {
        "its collector, each minute": round(plan.topics * each_topic),
        "the list of groups, each time it is filled": plan.groups * each_group,
    }


_PAINTED: Final = """() => new Promise(done => {
  const told = () => {
    const page = performance.getEntriesByType('navigation')[0];
    const first = performance.getEntriesByName('first-contentful-paint')[0].startTime;
    done([Math.max(first, largest), page.domContentLoadedEventEnd, page.loadEventEnd]);
  };
  let largest = 0;
  new PerformanceObserver(list => {
    for (const each of list.getEntries()) largest = Math.max(largest, each.startTime);
    requestAnimationFrame(() => setTimeout(told));
  }).observe({ type: 'largest-contentful-paint', buffered: true });
})"""
"""When the largest thing on a page was painted, when its scripts had run, when all was loaded."""


def first_pages(url: str, loads: int) -> dict[str, dict[str, float]]:
    """How long Chromium takes for a page of somebody who was never here: nothing is in its cache."""
    from playwright.sync_api import sync_playwright
    from tools.chromium import chromium

    found: dict[str, list[float]] = {"painted, ms": [], "scripts have run, ms": [], "all is loaded, ms": []}
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=["--no-sandbox"])
        for number in range(loads + 1):
            context = browser.new_context(viewport={"width": 1280, "height": 800})
            page = context.new_page()
            page.goto(url, wait_until="load")
            times = page.evaluate(_PAINTED)
            context.close()
            if number:  # the browser itself starts with the first one
                for of_kind, took_ms in zip(found.values(), times, strict=True):
                    of_kind.append(took_ms)
        browser.close()
    return {
        name: {"p50": _percentile(times, 0.5), "p95": _percentile(times, 0.95)}
        for name, times in found.items()
    }


def _percentile(times: list[float], share: float) -> float:
    return round(sorted(times)[int(len(times) * share)], 1)


class _OneLine(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        content = b"<!doctype html><title>t</title><link rel=icon href=data:,><p>One line of text."
        self.send_response(200)
        for name, value in (
            ALWAYS | {"Content-Type": "text/html", "Content-Length": str(len(content))}
        ).items():
            if name != "Content-Security-Policy":
                self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextlib.contextmanager
def one_line() -> Iterator[str]:
    """The address of a page that is as fast as a page can be in this browser on this machine."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _OneLine)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def in_browser(plan: Plan, url: str, host: str, port: int) -> dict[str, dict[str, dict[str, float]]]:
    found: dict[str, dict[str, dict[str, float]]] = {}
    with one_line() as bare:
        found["a line of text"] = first_pages(bare, plan.loads)
        found["the overview"] = first_pages(f"{url}c/default/", plan.loads)
        found["the topics"] = first_pages(f"{url}c/default/topics", plan.loads)
        with viewers(replace(plan, seconds=600.0), host, port):
            time.sleep(plan.between_s)  # until all of them are there
            found[f"a line of text, with {plan.viewers} viewers"] = first_pages(bare, plan.loads)
            found[f"the overview, with {plan.viewers} viewers"] = first_pages(f"{url}c/default/", plan.loads)
    return found


def run(plan: Plan, is_apache: bool, with_browser: bool = False) -> dict[str, object]:
    sizes = [f"--{name}={getattr(plan, name)}" for name in ("brokers", "topics", "groups")]
    kind = ["--apache"] if is_apache else []
    with contextlib.ExitStack() as children:
        cluster = children.enter_context(child("benchmarks.simulated_cluster", *sizes, *kind))
        console = children.enter_context(child("benchmarks.console", "--serve", cluster.first))
        host, port = console.first.split("//")[1].strip("/").split("/")[0].rsplit(":", 1)
        asyncio.run(_wait_until_complete(plan, host, int(port)))
        console.ask()
        first, began = Counter(cluster.ask()), time.perf_counter()
        time.sleep(plan.seconds)
        unviewed, quiet, pause = Counter(cluster.ask()), console.ask(), time.perf_counter()
        alone = {path: _alone(console, quiet["cpu_share"], host, int(port), path) for path in LISTS}
        pages = in_browser(plan, console.first, host, int(port)) if with_browser else {}
        console.ask()
        unwatched, middle = Counter(cluster.ask()), time.perf_counter()
        times = viewed(plan, host, int(port))
        watched, busy, ended = Counter(cluster.ask()), console.ask(), time.perf_counter()
    waits = sorted(each for of_list in times.values() for each in of_list)
    return {
        "kind": "Apache" if is_apache else "PyroMQ",
        "processor time of a list, ms": alone,
        "lists opened": len(waits),
        "p50, ms": _percentile(waits, 0.5),
        "p95, ms": _percentile(waits, 0.95),
        "max, ms": round(waits[-1], 1),
        "p95 by list, ms": {path: _percentile(each, 0.95) for path, each in sorted(times.items())},
        "first page in Chromium": pages,
        "requests a minute without viewers": _a_minute(unviewed - first, pause - began),
        "requests a minute with viewers": _a_minute(watched - unwatched, ended - middle),
        "requests by name, with viewers": dict(watched - unwatched),
        "console without viewers": quiet,
        "console with viewers": busy,
        "Apache's dashboard would ask": dashboard_requests_per_minute(plan),
    }


def _a_minute(requests: Counter[str], seconds: float) -> int:
    return round(sum(requests.values()) * 60 / seconds)


async def _wait_until_complete(plan: Plan, host: str, port: int) -> None:
    """Until the last topic is in the list."""
    browser = Browser(host, port)
    path = f"/c/default/topics?q=topic-{plan.topics - 1:05}"
    deadline = time.perf_counter() + 120
    empty = (await browser.get("/c/default/topics?q=no-such-topic"))[1]
    while (await browser.get(path))[1] <= empty + 100:
        if time.perf_counter() > deadline:
            raise SystemExit("the console did not show the last topic within 120 s")
        await asyncio.sleep(0.2)
    browser.close()


def _alone(console: Child, usual_share: float, host: str, port: int, path: str) -> float:
    """What one list costs the console's processor, in milliseconds; what it uses anyway is subtracted."""

    async def open_often() -> None:
        browser = Browser(host, port)
        for _ in range(_OFTEN):
            await browser.get(path)
        browser.close()

    console.ask()
    began = time.perf_counter()
    asyncio.run(open_often())
    used_s = console.ask()["cpu_s"] - usual_share * (time.perf_counter() - began)
    return round(used_s * 1000 / _OFTEN, 1)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--apache", action="store_true", help="the brokers tell only what Apache's tell")
    parser.add_argument("--browser", action="store_true", help="also open the first page in Chromium")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    parser.add_argument("--view", help=argparse.SUPPRESS)
    parser.add_argument("--viewers", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--seconds", type=float, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.view is not None:
        host, port = options.view.rsplit(":", 1)
        plan = Plan(viewers=options.viewers, seconds=options.seconds)
        _say(json.dumps(asyncio.run(view(plan, host, int(port)))))
        return
    if options.serve is not None:
        with tempfile.TemporaryDirectory() as home:
            measured = Measured(options.serve, Path(home))
            serve(measured, lambda: _say(measured.console.url), collect_at=Console.COLLECT_AT)
        return
    found = run(QUICK if options.quick else Plan(), options.apache, options.browser)
    text = json.dumps(found, indent=2)
    sys.stdout.write(text + "\n")
    if options.json is not None:
        options.json.write_text(text + "\n")


if __name__ == "__main__":
    main()
