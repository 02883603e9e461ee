"""Instructions per operation of two checkouts, counted by valgrind: a machine that is shared or busy changes
CPU times by a half and more, and these figures by one or two in a hundred.

    python -m benchmarks.instructions BEFORE AFTER [--only store,client,broker,nameserver]

Each operation runs a few and many times in fresh processes; the difference leaves the start of Python out.
Instructions are not time: a change that misses the cache more often does not show here. Servers also do
things by the clock, which are counted with their requests: count them on a quiet machine.
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import re
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

# Only what every checkout has may be imported here: this file also is the work that is counted.

HERE: Final = Path(__file__).resolve()
COUNTED: Final = re.compile(r"I\s+refs:\s+([\d,]+)")
VALGRIND: Final = ("valgrind", "--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null")
HOST: Final = bytes([127, 0, 0, 1, 0, 0, 0x2A, 0x9F])
PROPERTIES: Final = b"KEYS\x01key\x02UNIQ_KEY\x017F0000010B2A18B4AAC20B5F00000001\x02WAIT\x01true\x02"

# ------------------------------------------------------------------------------------------- the work


def in_a_store(work: Callable[[Any, int], None], count: int) -> None:
    from pyromq.store.message_store import MessageStore
    from pyromq.store.settings import StoreSettings

    with tempfile.TemporaryDirectory() as directory:
        settings = StoreSettings(root=Path(directory), max_batch_on_disk=32, max_batch_bytes_on_disk=1 << 20)
        with MessageStore.open(settings) as store:
            work(store, count)


def append(store: Any, count: int, size: int = 100) -> None:
    body = bytes(size)
    for number in range(count):
        store.append(
            "counted", number & 3, body, PROPERTIES, born_timestamp=1, born_host=HOST, store_host=HOST
        )
        if not number & 255:
            store.dispatch()


def append_batches(store: Any, count: int) -> None:
    from pyromq.protocol.batch import BatchEntry, encode_batch

    batch = encode_batch(BatchEntry(bytes(100), PROPERTIES) for _ in range(64))
    for number in range(count):
        store.append_encoded_batch(
            "counted", number & 3, batch, born_timestamp=1, born_host=HOST, store_host=HOST
        )
        store.dispatch()


def read(store: Any, count: int, size: int = 100) -> None:
    append(store, 1024, size)
    store.dispatch()
    for _ in range(count):
        store.read("counted", 0, 0, 32)


def rows(count: int, size: int = 100) -> None:
    import pyarrow as pa

    from pyromq.protocol.record import Host, StoredMessage, encode_record
    from pyromq.spark.columns import read_columns

    host = Host.of("127.0.0.1", 10_911)
    records = (
        StoredMessage(
            topic="rows",
            queue_id=0,
            queue_offset=number,
            log_offset=number,
            body=bytes(size),
            properties=PROPERTIES,
            born_timestamp=1,
            born_host=host,
            store_timestamp=1,
            store_host=host,
        )
        for number in range(64)
    )
    data = memoryview(b"".join(map(encode_record, records)))
    columns = ("value", "topic", "queueId", "offset", "timestamp", "key", "tags", "properties")
    for _ in range(count):
        read_columns([data], columns, {"topic": pa.scalar("rows"), "queueId": pa.scalar(0)}, 0, 64)


async def send(namesrv: str, count: int, in_flight: int, linger_ms: float | None = None) -> None:
    from pyromq import Message, aio

    message = Message("counted", bytes(100))
    async with aio.Producer("counted", namesrv, linger_ms=linger_ms, send_timeout_s=60) as producer:
        numbers = iter(range(count))

        async def keep_sending() -> None:
            for _ in numbers:
                await producer.send(message)

        await asyncio.gather(*(keep_sending() for _ in range(in_flight)))


def call_again(address: str, request: Any, count: int) -> None:
    """One at a time, so that the server's loop turns as often in each run."""
    from pyromq.remoting.blocking_link import Link, LinkOptions

    with closing(Link(address, LinkOptions())) as link:
        for _ in range(count):
            link.call(request)


def pull(namesrv: str, count: int) -> None:
    from pyromq.protocol.requests.pulling import PullMessage
    from pyromq.protocol.requests.routes import GetRoute
    from pyromq.remoting.blocking_link import Link, LinkOptions

    asyncio.run(send(namesrv, 1024, 32))
    with closing(Link(namesrv, LinkOptions())) as link:
        [broker] = link.call(GetRoute(topic="counted")).body.broker_datas
    request = PullMessage(
        consumer_group="counted",
        topic="counted",
        queue_id=0,
        queue_offset=0,
        max_msg_nums=32,
        sys_flag=4,  # with the subscription
        commit_offset=0,
        suspend_timeout_millis=0,
        subscription="*",
        sub_version=0,
        expression_type="TAG",
    )
    call_again(broker.broker_addrs[0], request, count)


def look_up(namesrv: str, count: int) -> None:
    from pyromq.protocol.requests.routes import GetRoute

    call_again(namesrv, GetRoute(topic="counted"), count)


LOCAL: Final[dict[str, tuple[Callable[[int], object], int]]] = {
    "append of 100 B": (lambda n: in_a_store(append, n), 3000),
    "append of 1 KiB": (lambda n: in_a_store(lambda store, m: append(store, m, 1024), n), 3000),
    "append of 64 × 100 B": (lambda n: in_a_store(append_batches, n), 200),
    "read of 32 × 100 B": (lambda n: in_a_store(read, n), 2000),
    "read of 32 × 10 KiB": (lambda n: in_a_store(lambda store, m: read(store, m, 10_240), n), 2000),
    "rows of 64 × 100 B": (rows, 500),
}
CLIENT: Final[dict[str, tuple[Callable[[str, int], Any], int]]] = {
    "send, 64 in flight": (lambda to, n: send(to, n, 64), 4000),
    "send, batched": (lambda to, n: send(to, n, 1024, 1.0), 10_000),
}
BROKER: Final[dict[str, tuple[Callable[[str, int], None], int]]] = {
    "send, one at a time": (lambda to, n: asyncio.run(send(to, n, 1)), 20_000),
    "send, 32 in flight": (lambda to, n: asyncio.run(send(to, n, 32)), 5000),
    "pull of 32 × 100 B": (pull, 20_000),
}
NAME_SERVER: Final[dict[str, tuple[Callable[[str, int], None], int]]] = {
    "look-up of a route": (look_up, 40_000),
}


def work(name: str, count: int, namesrv: str) -> None:
    if name in LOCAL:
        LOCAL[name][0](count)
    else:
        asyncio.run(CLIENT[name][0](namesrv, count))


# ------------------------------------------------------------------------------------------- counting


def python(checkout: Path) -> str:
    return str(checkout / ".venv" / "bin" / "python")


def _instructions(errors: str) -> int:
    found = COUNTED.search(errors)
    if found is None:
        raise RuntimeError(f"valgrind did not count:\n{errors[-2000:]}")
    return int(found[1].replace(",", ""))


def counted_work(checkout: Path, name: str, count: int, namesrv: str = "") -> int:
    command = [*VALGRIND, python(checkout), "-P", str(HERE), "--work", name, str(count), namesrv]
    done = subprocess.run(command, cwd=checkout, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr[-4000:])
    return _instructions(done.stderr)


@contextmanager
def counting(checkout: Path, program: Any) -> Iterator[tuple[Any, Callable[[], int]]]:
    """The same server of a checkout under valgrind, and its instructions once it has ended."""
    with tempfile.TemporaryDirectory() as directory:
        report, script = Path(directory, "report"), Path(directory, "python")
        script.write_text(
            f'#!/bin/sh\nexec {" ".join(VALGRIND)} --log-file={report} {python(checkout)} "$@"\n'
        )
        script.chmod(script.stat().st_mode | stat.S_IXUSR)
        yield dataclasses.replace(program, python=str(script)), lambda: _instructions(report.read_text())


def counted_broker(checkout: Path, name: str, count: int) -> int:
    from tests.support.own_broker import OwnBroker
    from tests.support.own_nameserver import OwnNameServer
    from tests.support.server_programs import BROKER as PROGRAM

    with counting(checkout, PROGRAM) as (program, instructions):
        with OwnNameServer() as name_server, OwnBroker(name_server.address, program=program) as server:
            asyncio.run(_create(server.address))
            BROKER[name][0](name_server.address, count)
            server.terminate()
        return instructions()


def counted_name_server(checkout: Path, name: str, count: int) -> int:
    from tests.support.own_broker import OwnBroker
    from tests.support.own_nameserver import OwnNameServer
    from tests.support.server_programs import NAME_SERVER as PROGRAM

    with counting(checkout, PROGRAM) as (program, instructions):
        with OwnNameServer(program=program) as name_server:
            with OwnBroker(name_server.address) as server:
                asyncio.run(_create(server.address))
                NAME_SERVER[name][0](name_server.address, count)
            name_server.terminate()
        return instructions()


async def _create(address: str) -> None:
    from benchmarks.client import create_topics

    await create_topics(address, ["counted"])


def per_operation(measure: Callable[[int], int], many: int) -> float:
    few = many // 4
    return (measure(many) - measure(few)) / (many - few)


def figures(checkout: Path, parts: set[str]) -> dict[str, float]:
    from tests.support.own_broker import OwnBroker
    from tests.support.own_nameserver import OwnNameServer

    found: dict[str, float] = {}

    def note(name: str, measure: Callable[[int], int], many: int) -> None:
        found[name] = per_operation(measure, many)
        sys.stderr.write(f"  {checkout.name}: {name} = {found[name]:,.0f}\n")

    if "store" in parts:
        for name, (_, many) in LOCAL.items():
            note(f"store: {name}", partial(counted_work, checkout, name), many)
    if "client" in parts:
        with OwnNameServer() as name_server, OwnBroker(name_server.address) as server:
            asyncio.run(_create(server.address))
            to = name_server.address
            for name, (_, many) in CLIENT.items():
                note(f"client: {name}", partial(counted_work, checkout, name, namesrv=to), many)
    if "broker" in parts:
        for name, (_, many) in BROKER.items():
            note(f"broker: {name}", partial(counted_broker, checkout, name), many)
    if "nameserver" in parts:
        for name, (_, many) in NAME_SERVER.items():
            note(f"name server: {name}", partial(counted_name_server, checkout, name), many)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("before", type=Path)
    parser.add_argument("after", type=Path)
    every = "store,client,broker,nameserver"
    parser.add_argument("--only", default=every, help=f"of {every}")
    options = parser.parse_args()
    parts = set(options.only.split(","))
    before, after = (figures(checkout.resolve(), parts) for checkout in (options.before, options.after))
    print("| instructions | before | after | ratio |\n|---|---:|---:|---:|")
    for name, value in before.items():
        print(f"| {name} | {value:,.0f} | {after[name]:,.0f} | **{after[name] / value:.3f}** |")


if __name__ == "__main__":
    if sys.argv[1] == "--work":
        work(sys.argv[2], int(sys.argv[3]), sys.argv[4])
    else:
        main()
