"""Celery on our broker, on Redis and on RabbitMQ: the CPU time of a task, and what waiting costs.

    python -m benchmarks.frameworks [--tasks 3000] [--rounds 5] [--brokers rocketmq,redis,rabbitmq]

The brokers take turns, round by round; the figure is the median. CPU time is that of a client that sends
tasks which do nothing, of a worker with two children, and of the broker, with everything below them. It holds
on a busy machine; rates do not. Redis and RabbitMQ are Debian's, unpacked here.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from statistics import median
from typing import Final

from benchmarks.process_cpu import cpu_seconds_of_tree
from tools.framework_suites import debian, plugins, redis_environ, redis_server

from pyromq.testing.held_ports import held_port

BROKERS: Final = ("rocketmq", "redis", "rabbitmq")
IDLE_QUEUES: Final = 20
_TIMEOUT_S: Final = 300.0
_LOOK_S: Final = 0.02
_RABBITMQ: Final = (
    "erlang-asn1",
    "erlang-base",
    "erlang-crypto",
    "erlang-eldap",
    "erlang-inets",
    "erlang-mnesia",
    "erlang-os-mon",
    "erlang-parsetools",
    "erlang-public-key",
    "erlang-runtime-tools",
    "erlang-ssl",
    "erlang-syntax-tools",
    "erlang-tools",
    "erlang-xmerl",
    "libsctp1",
    "rabbitmq-server",
)

_APPLICATION: Final = """
import os
from celery import Celery

app = Celery("measured", broker=os.environ["BROKER"])
app.conf.update(task_ignore_result=True, task_acks_late=True)
done = os.open(os.environ["DONE"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)


@app.task
def nothing():
    os.write(done, b".")
"""

_SENDER: Final = """
import sys, time
from measured import nothing

count, options = int(sys.argv[1]), eval(sys.argv[2])
for _ in range(50):
    nothing.apply_async(**options)
began = time.process_time()
for _ in range(count):
    nothing.apply_async(**options)
print(time.process_time() - began)
"""

_CONSUME: Final = "from measured import app; app.control.add_consumer('celery')"


class Broker:
    def __init__(self, url: str, process: subprocess.Popen[bytes]) -> None:
        self.url = url
        self.process = process

    @property
    def cpu_s(self) -> float:
        return cpu_seconds_of_tree(self.process.pid)


@contextmanager
def rocketmq(place: Path) -> Iterator[Broker]:
    with held_port() as port:
        command = [sys.executable, "-m", "pyromq", "standalone", "--grpc-port", "-1", "--broker-port", "0"]
        command += ["--namesrv-port", str(port), "--store", str(place / "store")]
        with running(command, port) as process:
            yield Broker(f"rocketmq://127.0.0.1:{port}/bench", process)


@contextmanager
def redis(place: Path, *options: str) -> Iterator[Broker]:
    with held_port() as port:
        command = [redis_server(), "--port", str(port), "--save", "", "--dir", str(place), *options]
        with running(command, port, redis_environ()) as process:
            yield Broker(f"redis://127.0.0.1:{port}/0", process)


@contextmanager
def rabbitmq(place: Path) -> Iterator[Broker]:
    root = debian("rabbit", _RABBITMQ)
    erlang = root / "usr" / "lib" / "erlang"
    start = erlang / "bin" / "erl"
    text = start.read_text()
    start.write_text(text.replace("ROOTDIR=/usr/lib/erlang\n", f"ROOTDIR={erlang}\n"))
    (server,) = (root / "usr" / "lib" / "rabbitmq" / "lib").glob("rabbitmq_server-*")
    with held_port() as port, held_port() as distribution, held_port() as names:
        environ = os.environ | {
            "PATH": f"{erlang / 'bin'}:{os.environ['PATH']}",
            "HOME": str(place),
            "ERL_EPMD_PORT": str(names),
            "RABBITMQ_NODENAME": "bench@localhost",
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODE_PORT": str(port),
            "RABBITMQ_DIST_PORT": str(distribution),
            "RABBITMQ_MNESIA_BASE": str(place / "db"),
            "RABBITMQ_LOGS": "-",
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(place / "plugins"),
            "RABBITMQ_PID_FILE": str(place / "pid"),
            "RABBITMQ_CONF_ENV_FILE": os.devnull,
            "RABBITMQ_CONFIG_FILE": str(place / "none"),
        }
        with (
            running([str(erlang / "bin" / "epmd"), "-port", str(names)], names, environ),
            running(["sh", str(server / "sbin" / "rabbitmq-server")], port, environ) as process,
        ):
            yield Broker(f"amqp://guest:guest@127.0.0.1:{port}//", process)


STARTS: Final[dict[str, Callable[[Path], AbstractContextManager[Broker]]]] = {
    "rocketmq": rocketmq,
    "redis": redis,
    "rabbitmq": rabbitmq,
}


@contextmanager
def running(
    command: list[str], port: int | None = None, environ: dict[str, str] | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """A process and everything below it; returns when the port accepts connections."""
    process = subprocess.Popen(
        command,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=environ,
        start_new_session=True,
        cwd=None if environ is None else environ.get("HOME"),
    )
    try:
        if port is not None:
            wait(lambda: process.poll() is not None or _accepts(port))
            assert process.poll() is None, f"{command[0]} has ended"
        yield process
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _accepts(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def wait(wanted: Callable[[], bool]) -> None:
    until = time.monotonic() + _TIMEOUT_S
    while not wanted():
        if time.monotonic() > until:
            raise TimeoutError
        time.sleep(_LOOK_S)


class Celery:
    """The application on a broker."""

    def __init__(self, broker: Broker, place: Path) -> None:
        self.broker = broker
        self._place = place
        self._done = place / "done"
        self._done.touch()
        (place / "measured.py").write_text(_APPLICATION)
        self.environ = os.environ | {
            "BROKER": broker.url,
            "DONE": str(self._done),
            "PYTHONPATH": os.pathsep.join([str(place), str(plugins()), os.environ.get("PYTHONPATH", "")]),
        }

    @property
    def done(self) -> int:
        return self._done.stat().st_size

    def send(self, count: int, **options: object) -> float:
        """The CPU seconds of the tasks; 50 more are sent before."""
        command = [sys.executable, "-c", _SENDER, str(count), repr(options)]
        return float(subprocess.run(command, env=self.environ, check=True, stdout=subprocess.PIPE).stdout)

    @contextmanager
    def worker(self, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
        command = [sys.executable, "-m", "celery", "-A", "measured", "worker", "-c", "2", *arguments]
        with running(command, environ=self.environ | {"HOME": str(self._place)}) as process:
            before = self.done
            self.send(0)
            wait(lambda: self.done >= before + 50)
            yield process

    def control(self, command: str) -> None:
        """Returns when the worker has answered."""
        code = f"from measured import app; app.control.{command}('celery', reply=True, timeout=60, limit=1)"
        subprocess.run([sys.executable, "-c", code], env=self.environ, check=True)


def cost(celery: Celery, tasks: int) -> dict[str, float]:
    """A worker that stops consuming, tasks that are sent, and the same worker, which runs them."""
    broker = celery.broker
    with celery.worker() as worker:
        celery.control("cancel_consumer")
        before, broker_before = celery.done, broker.cpu_s
        client = celery.send(tasks)
        worker_before = cpu_seconds_of_tree(worker.pid)
        with running([sys.executable, "-c", _CONSUME], environ=celery.environ):
            wait(lambda: celery.done > before)
            began, first = time.monotonic(), celery.done
            wait(lambda: celery.done >= before + tasks + 50)
            elapsed = time.monotonic() - began
        worker_s = cpu_seconds_of_tree(worker.pid) - worker_before
        broker_s = broker.cpu_s - broker_before
    per_task = {
        "client_ms": client / tasks,
        "worker_ms": worker_s / (tasks + 50),
        "broker_ms": broker_s / (tasks + 50),
    }
    figures = {name: seconds * 1000 for name, seconds in per_task.items()}
    left = before + tasks + 50 - first
    return {**figures, "together_ms": sum(figures.values()), "tasks_per_s": left / elapsed if left else 0.0}


def idle(celery: Celery, seconds: float) -> dict[str, float]:
    """A worker with 20 queues and nothing to do."""
    queues = ",".join(["celery", *(f"queue{number}" for number in range(1, IDLE_QUEUES))])
    with celery.worker("-Q", queues) as worker:
        time.sleep(5)
        before, broker_before = cpu_seconds_of_tree(worker.pid), celery.broker.cpu_s
        time.sleep(seconds)
        return {
            "worker_idle_percent": (cpu_seconds_of_tree(worker.pid) - before) / seconds * 100,
            "broker_idle_percent": (celery.broker.cpu_s - broker_before) / seconds * 100,
        }


def waiting(celery: Celery, tasks: int) -> dict[str, float]:
    """How much a worker's main process grows by tasks that are due in an hour."""
    with celery.worker() as worker:
        before = _resident_mb(worker.pid)
        client = celery.send(tasks, countdown=3600)
        time.sleep(10)
        return {"grown_mb": _resident_mb(worker.pid) - before, "eta_client_ms": client / tasks * 1000}


def _resident_mb(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) / 1024


def measure(name: str, tasks: int, idle_s: float, eta: int) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as directory, STARTS[name](Path(directory)) as broker:
        celery = Celery(broker, Path(directory))
        figures = cost(celery, tasks)
        if idle_s:
            figures |= idle(celery, idle_s)
        if eta:
            figures |= waiting(celery, eta)
        return figures | {"load": os.getloadavg()[0]}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--tasks", type=int, default=3000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--idle-s", type=float, default=30.0, help="0 leaves it out")
    parser.add_argument(
        "--eta", type=int, default=20_000, help="tasks that wait for their ETA; 0 leaves it out"
    )
    parser.add_argument("--brokers", default=",".join(BROKERS))
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    found: dict[str, list[dict[str, float]]] = {}
    for turn in range(given.rounds):
        for name in given.brokers.split(","):
            # What waits is measured once: it does not depend on chance.
            figures = measure(name, given.tasks, 0 if turn else given.idle_s, 0 if turn else given.eta)
            found.setdefault(name, []).append(figures)
            print(f"{name} {turn}", {key: round(value, 2) for key, value in figures.items()}, file=sys.stderr)
    if given.json:
        given.json.write_text(json.dumps(found, indent=1))
    names = list(dict.fromkeys(key for each in found.values() for figures in each for key in figures))
    print(f"| | {' | '.join(found)} |")
    print("|---|" + "---:|" * len(found))
    for name in names:
        cells = []
        for each in found.values():
            values = [figures[name] for figures in each if name in figures]
            spread = f" ({min(values):.2f}–{max(values):.2f})" if len(values) > 1 else ""
            cells.append(f"{median(values):.2f}{spread}")
        print(f"| {name} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
