"""What a noisy neighbour does to others: how long a calm producer waits, with and without a quota.

    python -m benchmarks.neighbours [--quick] [--rounds N] [--seconds S] [--json FILE]

One broker, in a process of its own. A calm producer sends a message of 1 KiB every five milliseconds and
waits for each answer. Beside it loadgen sends as much as it can to another topic, from many connections: at
first nobody does, then without a quota, then with one. The three take turns, so that all meet the same
machine.

A wait has two figures: the time that passed, and the processor time that the broker used meanwhile. That
is what the broker itself is to blame for, also while other programs compete for the machine.
"""

from __future__ import annotations

import argparse
import json
import os
import select
import statistics
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final, Self

from benchmarks import wire
from benchmarks.native import loadgen
from benchmarks.turns import ratios, spread
from tests.support.own_broker import OwnBroker
from tests.support.own_nameserver import OwnNameServer

CALM, NOISY, BOUND = "Calm", "Noisy", "NoisyWithQuota"
QUOTA: Final = 1_000
EVERY_S: Final = 0.005
BODY: Final = b"x" * 1024
QUEUES: Final = 4
ALONE, LIMITED = "alone", "the same with a quota"
CASES: Final = {ALONE: None, "next to a noisy neighbour": NOISY, LIMITED: BOUND}


@dataclass
class Waits:
    """Of the calm producer, in milliseconds."""

    sent: int
    p50: float
    p99: float
    cpu_p50: float
    cpu_p99: float


@dataclass
class Round:
    case: str
    calm: Waits
    noisy_per_s: float
    broker_cpu: float
    """Its share of one processor."""
    load: float
    """Of the machine, as the system tells it."""


# ---------------------------------------------------------------------- the calm producer


def send_calmly(port: int, pid: int) -> None:
    """Send one message after the other until standard input ends; then say how long they took."""
    connection = wire.Wire(port)
    for number in range(50):
        connection.call(_message(CALM, number))
    cpu_clock = ~pid << 3 | 2  # as clock_getcpuclockid(3) makes it
    waits: list[float] = []
    used: list[float] = []
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    while not select.select([sys.stdin], [], [], 0)[0]:
        request = _message(CALM, 50 + len(waits))
        cpu_began, began = time.clock_gettime(cpu_clock), time.perf_counter()
        header, _ = connection.call(request)
        waits.append((time.perf_counter() - began) * 1000)
        used.append((time.clock_gettime(cpu_clock) - cpu_began) * 1000)
        assert header["code"] == 0, header
        time.sleep(EVERY_S)
    found = Waits(len(waits), *_percentiles(waits), *_percentiles(used))
    sys.stdout.write(json.dumps(asdict(found)) + "\n")


class Calm:
    """The calm producer in a process of its own, from `with` until `waits()`. Its topic has to exist."""

    def __init__(self, broker: OwnBroker) -> None:
        command = [sys.executable, "-m", "benchmarks.neighbours", "--calm", str(broker.port), str(broker.pid)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def __enter__(self) -> Self:
        self._process.__enter__()
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "ready\n"
        return self

    def __exit__(self, *failure: object) -> None:
        self._process.kill()
        self._process.wait()

    def waits(self) -> Waits:
        """End it; how long it waited."""
        said, _ = self._process.communicate("")
        return Waits(**json.loads(said))


def _percentiles(values: list[float]) -> tuple[float, float]:
    values = sorted(values)
    return statistics.median(values), values[int(len(values) * 0.99)]


def _message(topic: str, number: int) -> bytes:
    fields = {"a": "neighbours", "b": topic, "c": "TBW102", "d": str(QUEUES), "e": "0", "f": "0"}
    fields |= {
        "g": "1700000000000",
        "h": "0",
        "i": f"UNIQ_KEY\x01{os.getpid():016X}{number:016X}\x02",
        "j": "0",
        "k": "false",
        "m": "false",
    }
    return wire.frame(wire.SEND_MESSAGE_V2, fields, BODY)


# ---------------------------------------------------------------------- the noise


class Noise:
    """loadgen, for as long as a round takes."""

    def __init__(self, topic: str | None, port: int, seconds: float, connections: int, window: int) -> None:
        self._process: subprocess.Popen[str] | None = None
        if topic is not None:
            options = ["-m", "send", "-P", str(port), "-T", topic, "-q", str(QUEUES), "-b", str(len(BODY))]
            options += ["-c", str(connections), "-w", str(window), "-t", str(int(seconds)), "-u", "1"]
            self._process = subprocess.Popen([str(loadgen()), *options], stdout=subprocess.PIPE, text=True)

    def rate(self) -> float:
        if self._process is None:
            return 0.0
        said, _ = self._process.communicate()
        found = dict(pair.split("=", 1) for pair in said.split() if "=" in pair)
        return float(found["rate"])


def _create(port: int, topic: str, attributes: str = "") -> None:
    fields: dict[str, object] = {
        "topic": topic,
        "defaultTopic": "TBW102",
        "readQueueNums": QUEUES,
        "writeQueueNums": QUEUES,
        "perm": 6,
        "topicFilterType": "SINGLE_TAG",
        "topicSysFlag": 0,
        "order": "false",
    }
    if attributes:
        fields["attributes"] = attributes
    connection = wire.Wire(port)
    header, _ = connection.call(
        wire.frame(wire.CREATE_TOPIC, {key: str(value) for key, value in fields.items()})
    )
    assert header["code"] == 0, header
    connection.close()


def one_round(broker: OwnBroker, case: str, seconds: float, connections: int, window: int) -> Round:
    noise = Noise(CASES[case], broker.port, seconds + 1, connections, window)
    time.sleep(1.5)  # loadgen's warm-up, and a second's worth of the quota
    cpu_clock = ~broker.pid << 3 | 2
    with Calm(broker) as calm:
        cpu_began, began = time.clock_gettime(cpu_clock), time.perf_counter()
        time.sleep(max(1.0, seconds - 2))
        busy = (time.clock_gettime(cpu_clock) - cpu_began) / (time.perf_counter() - began)
        waits = calm.waits()
    return Round(case, waits, noise.rate(), busy, os.getloadavg()[0])


# ---------------------------------------------------------------------- the report


def table(rounds: list[Round]) -> str:
    lines = [
        "| calm producer | p50 ms | p99 ms | broker's CPU in a wait: p50 ms | p99 ms "
        "| noisy messages/s | broker's CPU |",
        "|---|---|---|---|---|---|---|",
    ]
    for case in CASES:
        own = [each for each in rounds if each.case == case]

        def middle(values: list[float]) -> str:
            return f"{statistics.median(values):,.2f}"

        figures = [
            middle([getattr(each.calm, name) for each in own])
            for name in ("p50", "p99", "cpu_p50", "cpu_p99")
        ]
        rate = f"{statistics.median([each.noisy_per_s for each in own]):,.0f}"
        busy = f"{statistics.median([each.broker_cpu for each in own]):.0%}"
        lines.append(f"| {case} | {' | '.join(figures)} | {rate} | {busy} |")
    alone, bound = ([each.calm.p99 for each in rounds if each.case == case] for case in (ALONE, LIMITED))
    ratio = f"p99 with a quota ÷ p99 alone, round by round: {spread(ratios(bound, alone))}."
    loads = [each.load for each in rounds]
    return "\n".join([*lines, "", ratio, f"Load of the machine: {min(loads):.1f} to {max(loads):.1f}."])


def main() -> None:
    if sys.argv[1:2] == ["--calm"]:
        send_calmly(*map(int, sys.argv[2:4]))
        return
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="one short round: does it work at all?")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=12)
    parser.add_argument("--connections", type=int, default=8)
    parser.add_argument("--window", type=int, default=32, help="messages in flight on each connection")
    parser.add_argument("--json", type=Path, help="write the figures to this file as well")
    options = parser.parse_args()
    rounds, seconds = (1, 4.0) if options.quick else (options.rounds, options.seconds)
    settings = {"mappedFileSizeCommitLog": str(256 << 20), "fileReservedTime": "1"}
    found: list[Round] = []
    with OwnNameServer() as names, OwnBroker(names.address, settings=settings) as broker:
        for topic in (CALM, NOISY):
            _create(broker.port, topic)
        _create(broker.port, BOUND, f"+quota.send.messages={QUOTA}")
        for number in range(rounds):
            for case in CASES:
                found.append(one_round(broker, case, seconds, options.connections, options.window))
                print(f"round {number + 1}: {found[-1]}", file=sys.stderr, flush=True)
    print(table(found))
    if options.json is not None:
        options.json.write_text(json.dumps([asdict(each) for each in found], indent=1))


if __name__ == "__main__":
    main()
