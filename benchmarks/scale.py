"""Cost as the work grows: topics on a name server; queues, groups, connections and log on one broker.

    python -m benchmarks.scale [--quick] [--parts topics,queues,…] [--out docs/benchmarks]

Each part is measured at several sizes, on a fresh server each time, and drawn as a curve: a figure for a
single one of them (memory, CPU) is level where the cost grows with the work, and rises where it grows faster.
Times are CPU times of the server, which hardly change when the machine is busy. It writes `scale.json`, a
picture for each part and, below what is written there by hand, the tables of `scale.md`. What it measured
before and not this time is kept.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import resource
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final
from xml.sax.saxutils import escape

from benchmarks import wire
from benchmarks.namesrv import Plan, registered
from benchmarks.turns import Running, short
from tests.support.own_broker import OwnBroker
from tests.support.own_nameserver import OwnNameServer

from pyromq.protocol.record import StoredMessage, encode_record, pack_blank_into

Figures = Mapping[str, float]
Curve = dict[int, Figures]

HEARTBEAT: Final = 34
DELETE_EXPIRED: Final = 329
LOG_FILE_BYTES: Final = 1 << 30
OLD_S: Final = 100 * 3600
"""The age of all log files but the last one: more than the 72 hours for which they are kept."""
RESPONSE: Final = 1
QUEUES_PER_TOPIC: Final = 1000
ASKED: Final = 20_000
"""Requests of each kind whose CPU time is measured."""
PIPELINED: Final = 100
BROKER_SETTINGS: Final = {
    "mappedFileSizeCommitLog": str(64 << 20),
    "autoCreateTopicEnable": "false",
    # On a busy machine no request shall be refused for waiting.
    "waitTimeMillsInSendQueue": "60000",
    "osPageCacheBusyTimeOutMills": "60000",
}
PATIENT: Final = {"brokerExpiryMillis": "3600000", "serverChannelMaxIdleTimeSeconds": "3600"}
"""A name server that waits for brokers: the first may have been silent for long when the last registers."""
SIZES: Final[Mapping[str, Sequence[int]]] = {
    "topics": (1_000, 10_000, 100_000, 1_000_000, 2_000_000),
    "queues": (10, 1_000, 10_000, 100_000),
    "groups": (10, 1_000, 10_000),
    "connections": (10, 1_000, 10_000),
    "log": (1, 32, 256, 1024),
}
UNITS: Final = {"log": "GiB of log"}
FILES: Final = ("connections",)
"""Each of them has an open file, in the broker or also here."""
MAX_FILES: Final = resource.getrlimit(resource.RLIMIT_NOFILE)[1] - 2_000
MARK: Final = "<!-- From here on: `python -m benchmarks.scale` -->\n"
COLOURS: Final = ("#2a7f8e", "#d1702b", "#5b4b8a", "#7a8b2f", "#b03a5b", "#3366aa", "#8a6d3b", "#22303a")


def pipelined(server: wire.Wire, frames: Iterator[bytes]) -> None:
    """Send frames, some at a time, and read an answer to each; one that is refused is an error."""
    batch: list[bytes] = []
    for each in frames:
        batch.append(each)
        if len(batch) == PIPELINED:
            _exchange(server, batch)
            batch = []
    if batch:
        _exchange(server, batch)


def _exchange(server: wire.Wire, batch: Sequence[bytes]) -> None:
    server.send(*batch)
    for _ in batch:
        header, _ = server.receive()
        while not header["flag"] & RESPONSE:  # brokers ask their clients things, too
            header, _ = server.receive()
        if header["code"] not in (0, 19, 20):  # a pull may find nothing
            raise RuntimeError(f"refused: {header}")


def cpu_us_each(server: Running, connection: wire.Wire, frames: Iterator[bytes], count: int) -> float:
    before = server.cpu_s()
    pipelined(connection, frames)
    return (server.cpu_s() - before) / count * 1e6


# ------------------------------------------------------------------------------------------- a name server


def topics(size: int) -> Figures:
    """Every topic on 2 of 100 brokers."""
    plan = Plan(size, 100, 2, 8, (), 1, 1, 1, 0)
    with OwnNameServer(PATIENT) as own:
        server = Running("pyromq", own.port, own.pid)
        rss_before, cpu_before = server.rss_mb(), server.cpu_s()
        with registered(server, plan, size):
            figures = {
                "register: server CPU µs a topic": (server.cpu_s() - cpu_before) / size * 1e6,
                "memory: bytes a topic": (server.rss_mb() - rss_before) * 2**20 / size,
            }
            asking = wire.Wire(server.port)
            step = max(1, size // ASKED)
            routes = (wire.route(wire.topic_name(number * step % size)) for number in range(ASKED))
            figures["look-up: server CPU µs"] = cpu_us_each(server, asking, routes, ASKED)
            asking.close()
            return figures


# ------------------------------------------------------------------------------------------- one broker


@contextlib.contextmanager
def broker() -> Iterator[tuple[OwnBroker, Running]]:
    with OwnNameServer() as names, OwnBroker(names.address, settings=BROKER_SETTINGS) as own:
        yield own, Running("pyromq", own.port, own.pid)


def queues(size: int) -> Figures:
    """Topics of up to 1,000 queues with one message in each; then sends and pulls all over them."""
    allow_files(size + 1000)  # a mapped file keeps a descriptor
    with broker() as (own, server):
        rss_before, connection = server.rss_mb(), wire.Wire(own.port)
        each = min(size, QUEUES_PER_TOPIC)
        places = [(f"scale-{number // each}", number % each) for number in range(size)]
        made = (wire.create_topic(f"scale-{number}", each) for number in range(math.ceil(size / each)))
        pipelined(connection, made)
        filling = cpu_us_each(server, connection, (send(*place) for place in places), size)
        figures = {
            "first send to a queue: server CPU µs": filling,
            "memory: KB a queue": (server.rss_mb() - rss_before) * 1024 / size,
            "open files": float(len(os.listdir(f"/proc/{own.pid}/fd"))),
        }
        settle(server)
        # Spread over all queues, each time another one.
        spread = [places[number * 7919 % size] for number in range(ASKED)]
        sends = (send(*place) for place in spread)
        figures["send: server CPU µs"] = cpu_us_each(server, connection, sends, ASKED)
        for name in ("first pull", "next pull"):
            pulls = (pull(*place) for place in spread)
            figures[f"{name}: server CPU µs"] = cpu_us_each(server, connection, pulls, ASKED)
        connection.close()
        own.terminate()
        start_s, _ = started(own)
        figures["start after a clean stop: CPU ms"] = start_s * 1e3
    return figures


def settle(server: Running) -> None:
    """Wait until a server has next to nothing to do: it syncs the files of all queues."""
    while True:
        before = server.cpu_s()
        time.sleep(1)
        if server.cpu_s() - before < 0.05:
            return


def send(topic: str, queue: int) -> bytes:
    """A send as clients write it, with a unique key."""
    ext = {
        "a": "group", "b": topic, "c": "TBW102", "d": "4", "e": str(queue), "f": "0",
        "g": "1700000000000", "h": "0",
        "i": "UNIQ_KEY\x017F00000100002A9F0000000000000001\x02", "j": "0", "k": "false", "m": "false",
    }  # fmt: skip
    return wire.frame(wire.SEND_MESSAGE_V2, ext, b"hello")


def pull(topic: str, queue: int) -> bytes:
    """A pull of one message, answered at once."""
    ext = {
        "consumerGroup": "group", "topic": topic, "queueId": str(queue), "queueOffset": "0",
        "maxMsgNums": "1", "sysFlag": "4", "commitOffset": "0", "suspendTimeoutMillis": "0",
        "subscription": "*", "subVersion": "0", "expressionType": "TAG",
    }  # fmt: skip
    return wire.frame(wire.PULL_MESSAGE, ext)


def groups(size: int) -> Figures:
    """A member of each group sends heartbeats, all of them on one connection."""
    with broker() as (own, server):
        connection = wire.Wire(own.port)
        rss_before = server.rss_mb()
        first = cpu_us_each(server, connection, map(heartbeat, range(size)), size)
        repeated = cpu_us_each(server, connection, map(heartbeat, range(size)), size)
        memory = (server.rss_mb() - rss_before) * 1024 / size
        connection.close()
    return {
        "first heartbeat: server CPU µs": first,
        "next heartbeat: server CPU µs": repeated,
        "memory: KB a group": memory,
    }


def heartbeat(number: int) -> bytes:
    subscription = {"classFilterMode": False, "codeSet": [], "expressionType": "TAG", "subString": "*",
                    "subVersion": 1, "tagsSet": [], "topic": "TBW102"}  # fmt: skip
    group = {"consumeFromWhere": "CONSUME_FROM_LAST_OFFSET", "consumeType": "CONSUME_PASSIVELY",
             "groupName": f"group-{number}", "messageModel": "CLUSTERING",
             "subscriptionDataSet": [subscription], "unitMode": False}  # fmt: skip
    body = {"clientID": f"client-{number}", "consumerDataSet": [group], "producerDataSet": []}
    return wire.frame(HEARTBEAT, {}, json.dumps(body).encode())


def connections(size: int) -> Figures:
    """Idle connections that have sent one request each; then one of them sends."""
    allow_files(size + 200)
    with broker() as (own, server), contextlib.ExitStack() as stack:
        sending = wire.Wire(own.port)
        stack.callback(sending.close)
        sending.call(wire.create_topic("scale", 8))
        rss_before, cpu_before = server.rss_mb(), server.cpu_s()
        for _ in range(size):
            connection = wire.Wire(own.port)
            stack.callback(connection.close)
            connection.call(send("scale", 0))
        opened = (server.cpu_s() - cpu_before) / size * 1e6
        memory = (server.rss_mb() - rss_before) * 1024 / size
        sends = (send("scale", number % 8) for number in range(ASKED))
        busy = cpu_us_each(server, sending, sends, ASKED)
        idle_before, began = server.cpu_s(), time.monotonic()
        time.sleep(2)
        idle = (server.cpu_s() - idle_before) / (time.monotonic() - began) * 1000
    return {
        "memory: KB a connection": memory,
        "connect and send once: server CPU µs": opened,
        "send: server CPU µs": busy,
        "idle: server CPU ms a second": idle,
    }


def log(size: int) -> Figures:
    """A log of sparse files of 1 GiB, with a message at the start of each; all but the last have expired."""
    settings = {
        **BROKER_SETTINGS,
        "mappedFileSizeCommitLog": str(LOG_FILE_BYTES),
        "deleteWhen": f"{(time.localtime().tm_hour + 12) % 24:02}",  # not now
    }
    with OwnNameServer() as names, contextlib.ExitStack() as stack:
        own = OwnBroker(names.address, settings=settings)
        stack.push(own)
        make_log(own.store / "commitlog", size)
        first, _ = started(own)
        own.terminate()
        clean, memory = started(own)
        own.kill()
        crashed, _ = started(own)
        server, connection = Running("pyromq", own.port, own.pid), wire.Wire(own.port)
        before, left = server.cpu_s(), size
        while left > 1:
            connection.call(wire.frame(DELETE_EXPIRED, {}))
            fewer = len(list((own.store / "commitlog").iterdir()))
            if fewer == left:
                raise RuntimeError(f"{left} files stay in the log")
            left = fewer
        removing = (server.cpu_s() - before) / max(1, size - 1)
        connection.close()
    return {
        "start with queues to rebuild: CPU ms": first * 1e3,
        "start after a clean stop: CPU ms": clean * 1e3,
        "start after kill -9: CPU ms": crashed * 1e3,
        "memory after the start: MB": memory,
        "removing an expired file: CPU ms": removing * 1e3,
    }


def make_log(folder: Path, files: int) -> None:
    folder.mkdir(parents=True)
    for number in range(files):
        is_last = number + 1 == files
        start = number * LOG_FILE_BYTES
        stored_s = time.time() - (0 if is_last else OLD_S)
        message = StoredMessage(
            topic="scale",
            body=b"hello",
            queue_offset=number,
            log_offset=start,
            born_timestamp=int(stored_s * 1000),
            store_timestamp=int(stored_s * 1000),
        )
        record = encode_record(message)
        rest = bytearray(8)
        pack_blank_into(rest, 0, LOG_FILE_BYTES - len(record))
        path = folder / f"{start:020}"
        path.write_bytes(record + (b"" if is_last else rest))
        os.truncate(path, LOG_FILE_BYTES)
        os.utime(path, (stored_s, stored_s))


def started(own: OwnBroker) -> tuple[float, float]:
    """Start a broker; the CPU seconds until it said that it was up, and its memory then."""
    own.__enter__()
    server = Running("pyromq", own.port, own.pid)
    return server.cpu_s(), server.rss_mb()


def allow_files(count: int) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < count:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(count, hard), hard))


PARTS: Final[Mapping[str, Callable[[int], Figures]]] = {
    "topics": topics,
    "queues": queues,
    "groups": groups,
    "connections": connections,
    "log": log,
}


# ------------------------------------------------------------------------------------------- showing it


def as_table(part: str, curve: Curve) -> str:
    figures = list(dict.fromkeys(name for measured in curve.values() for name in measured))
    lines = [f"| {part} | " + " | ".join(figures) + " |", "|---:|" + "---:|" * len(figures)]
    lines += [
        f"| {size:,} | " + " | ".join(short(measured[name]) for name in figures) + " |"
        for size, measured in curve.items()
    ]
    return "\n".join(lines)


def picture(part: str, curve: Curve) -> str:
    """Both axes are logarithmic."""
    sizes, names = list(curve), list(next(iter(curve.values())))
    top = 25 + 15 * len(names)
    width, height, left, bottom = 640, top + 290, 60, 40
    values = [max(value, 0.1) for measured in curve.values() for value in measured.values()]
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)) + 0.01)
    first, last = math.log10(sizes[0]), math.log10(max(sizes[-1], sizes[0] * 10))

    def x(size: float) -> float:
        return left + (math.log10(size) - first) / (last - first) * (width - left - 30)

    def y(value: float) -> float:
        return height - bottom - (math.log10(max(value, 0.1)) - low) / (high - low) * (height - bottom - top)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-size="12"'
        ' font-family="Helvetica, Arial, DejaVu Sans, sans-serif" fill="#22303a">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
    ]
    for power in range(low, high + 1):
        at = y(10.0**power)
        parts.append(f'<line x1="{left}" x2="{width - 20}" y1="{at:.1f}" y2="{at:.1f}" stroke="#dde3e7"/>')
        parts.append(f'<text x="{left - 6}" y="{at + 4:.1f}" text-anchor="end">{10.0**power:g}</text>')
    parts += [
        f'<text x="{x(size):.1f}" y="{height - 20}" text-anchor="middle">{size:,}</text>' for size in sizes
    ]
    for number, name in enumerate(names):
        colour = COLOURS[number % len(COLOURS)]
        points = " ".join(f"{x(size):.1f},{y(measured[name]):.1f}" for size, measured in curve.items())
        parts.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts.append(f'<text x="{left}" y="{16 + 15 * number}" fill="{colour}">{escape(name)}</text>')
    parts.append(f'<text x="{width - 20}" y="{height - 4}" text-anchor="end">{escape(part)}</text></svg>')
    return "\n".join(parts)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="the two smallest sizes: does it work at all?")
    parser.add_argument("--parts", default=",".join(PARTS))
    parser.add_argument("--smallest", type=int, default=0, help="leave out smaller sizes")
    parser.add_argument("--largest", type=int, default=10**9, help="leave out larger sizes")
    parser.add_argument("--out", type=Path, help="by default docs/benchmarks, and build/benchmarks if quick")
    options = parser.parse_args()
    out: Path = options.out or Path("build/benchmarks" if options.quick else "docs/benchmarks")
    out.mkdir(parents=True, exist_ok=True)
    curves = kept(out / "scale.json")
    for part in options.parts.split(","):
        for size in SIZES[part][: 2 if options.quick else None]:
            if part in FILES and size > MAX_FILES:
                sys.stderr.write(f"{part} {size:,} left out: only {MAX_FILES:,} files may be open here\n")
            elif options.smallest <= size <= options.largest:
                measured = PARTS[part](size)
                sys.stderr.write(f"{part} {size:,}: {dict(measured)}\n")
                curves[part] = dict(sorted({**curves.get(part, {}), size: measured}.items()))
                (out / "scale.json").write_text(json.dumps(curves, indent=1) + "\n", "utf-8")
    tables = []
    for part in (part for part in PARTS if part in curves):
        unit = UNITS.get(part, part)
        (out / f"scale-{part}.svg").write_text(picture(unit, curves[part]), "utf-8")
        tables += [f"## {part.capitalize()}", "", f"![{part}](scale-{part}.svg)", ""]
        tables += [as_table(unit, curves[part]), ""]
    page = out / "scale.md"
    before = page.read_text("utf-8").partition(MARK)[0] if page.exists() else "# Cost as the work grows\n\n"
    page.write_text(before + MARK + "\n" + "\n".join(tables), "utf-8")
    print("\n".join(tables))


def kept(path: Path) -> dict[str, Curve]:
    """What earlier runs have measured: each may have been of one part, or of one size."""
    if not path.exists():
        return {}
    found: dict[str, dict[str, Figures]] = json.loads(path.read_text("utf-8"))
    return {part: {int(size): figures for size, figures in curve.items()} for part, curve in found.items()}


if __name__ == "__main__":
    main()
