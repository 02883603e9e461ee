"""One store directory, written by Apache's broker and by our store in turn; each reads the other's."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import pytest
from tests.support.apache import (
    ApacheBroker,
    ApacheClient,
    ApacheNameServer,
    ClientOf,
    saved_table,
    wait_for_broker,
    wait_until,
)
from tests.support.apache_releases import ALL_RELEASES, RELEASES, Release
from tests.support.java_rows import Row, java_row, rows_of
from tests.support.own_broker import OwnBroker
from tests.support.small_stores import dispatch_all
from tests.support.varied_messages import varied_messages

from pyromq.protocol.batch import BatchEntry
from pyromq.protocol.compression import Compression, compress
from pyromq.protocol.properties import encode_properties
from pyromq.protocol.record import Host, SysFlag
from pyromq.store.message_store import MessageStore
from pyromq.store.settings import StoreSettings

# A JVM takes its time to start, and longer on a busy machine.
pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]

TOPIC, QUEUES = "Varied", 4
BORN_MS = 1_700_000_000_123
SIZES = {
    "mappedFileSizeCommitLog": 64 << 10,
    "mappedFileSizeConsumeQueue": 20 * 25,
    "maxHashSlotNum": 50,
    "maxIndexNum": 120,
}
STOPS: dict[str, Callable[[ApacheBroker], None]] = {
    "stopped": ApacheBroker.terminate,
    "killed": ApacheBroker.kill,
}


@dataclass(frozen=True)
class Directory:
    """A store directory and everyone who may open it."""

    root: Path
    release: Release
    client: ApacheClient
    name_server: str

    @contextlib.contextmanager
    def apaches_broker(self, **settings: str) -> Iterator[ApacheBroker]:
        sizes = {name: str(size) for name, size in SIZES.items()}
        broker = ApacheBroker(
            self.release,
            self.name_server,
            self.root,
            settings={**sizes, "timerWheelEnable": "false", **settings},
        )
        with broker:
            wait_for_broker(self.name_server, broker.name)
            self.client.create_topic(self.name_server, broker.address, TOPIC, QUEUES)
            yield broker
        wait_for_broker(self.name_server, broker.name, present=False)

    @contextlib.contextmanager
    def our_broker(self, **settings: str) -> Iterator[OwnBroker]:
        sizes = {name: str(size) for name, size in SIZES.items()}
        with OwnBroker(
            self.name_server, settings={**sizes, "storePathRootDir": str(self.root), **settings}
        ) as broker:
            wait_for_broker(self.name_server, broker.name)
            yield broker

    def our_store(self) -> MessageStore:
        return MessageStore.open(
            StoreSettings(
                root=self.root,
                log_segment_bytes=SIZES["mappedFileSizeCommitLog"],
                queue_file_bytes=SIZES["mappedFileSizeConsumeQueue"],
                index_slots=SIZES["maxHashSlotNum"],
                index_units=SIZES["maxIndexNum"],
            )
        )

    def send(self, seed: int) -> list[Row]:
        """Everything the topic holds then, read by Java."""
        # 60 KiB in one record: most of a file, so that it begins the next one.
        messages = varied_messages(TOPIC, seed, fillers=150, big_bytes=60_000)
        before = len(self.client.read(self.name_server, TOPIC))
        self.client.send(self.name_server, messages)
        return self.read_by_java(before + len(messages))

    def read_by_java(self, count: int) -> list[Row]:
        return [java_row(row) for row in self.client.read(self.name_server, TOPIC, at_least=count)]


@pytest.fixture(scope="module")
def names_of() -> Iterator[Callable[[Release], str]]:
    """The name server of a release, which forgets each broker when that is gone."""
    with contextlib.ExitStack() as running:
        yield cache(lambda release: running.enter_context(ApacheNameServer(release)).address)


@pytest.fixture(params=RELEASES, ids=str)
def directory(
    request: pytest.FixtureRequest, tmp_path: Path, client_of: ClientOf, names_of: Callable[[Release], str]
) -> Directory:
    release = request.param
    return Directory(tmp_path / "store", release, client_of(release, "JSON"), names_of(release))


@pytest.mark.parametrize("stop", STOPS)
def test_apache_writes_and_we_write_on_and_both_read_it_all(directory: Directory, stop: str) -> None:
    with directory.apaches_broker() as broker:
        by_java = directory.send(seed=1)
        STOPS[stop](broker)
    with directory.our_store() as store:
        dispatch_all(store)
        assert rows_of(store, TOPIC) == by_java
        assert store.recovery.was_clean is (stop == "stopped")
        append_varied(store)
        dispatch_all(store)
        by_us = rows_of(store, TOPIC)
    assert len(by_us) > len(by_java)
    with directory.apaches_broker():
        assert directory.read_by_java(len(by_us)) == by_us
        by_java = directory.send(seed=2)
        assert_found_by_key(directory, by_us)
    assert len(by_java) > len(by_us)
    with directory.our_store() as store:
        dispatch_all(store)
        assert rows_of(store, TOPIC) == by_java


@pytest.mark.parametrize("is_clean", [True, False], ids=["closed", "abandoned"])
def test_a_store_of_ours_is_opened_by_apaches_broker(directory: Directory, is_clean: bool) -> None:
    store = directory.our_store()
    append_varied(store)
    dispatch_all(store)
    by_us = rows_of(store, TOPIC)
    if is_clean:
        store.close()
    else:
        store.flushes.flush()
        store.abandon()
    with directory.apaches_broker():
        assert directory.read_by_java(len(by_us)) == by_us
        assert_found_by_key(directory, by_us)


@pytest.mark.parametrize("stop", STOPS)
def test_our_broker_takes_over_from_apaches_and_hands_back(directory: Directory, stop: str) -> None:
    """Topics, groups and how far these have read move with the messages."""
    sent: list[bytes] = []

    def send_and_consume(name: str) -> None:
        """A member of the group gets what is new, and nothing else."""
        bodies = [b"%s %d" % (name.encode(), number) for number in range(20)]
        directory.client.send(directory.name_server, [{"topic": TOPIC, "body": body} for body in bodies])
        with directory.client.member(directory.name_server, "readers", TOPIC) as member:
            assert sorted(row["body"] for row in member.received(20)) == sorted(bodies)
            directory.client.wait_committed(directory.name_server, "readers", TOPIC, QUEUES)
        sent.extend(bodies)

    with directory.apaches_broker() as apaches:
        send_and_consume("by Apache's")
        directory.client.mqadmin(
            "updateTopic",
            "-b",
            apaches.address,
            "-t",
            "Odd",
            "-r",
            "3",
            "-w",
            "5",
            "-n",
            directory.name_server,
        )
        apaches.terminate()
    with directory.our_broker() as ours:
        route = directory.client.mqadmin("topicRoute", "-t", "Odd", "-n", directory.name_server)
        assert re.search(r'"readQueueNums":\s*3', route), route
        assert re.search(r'"writeQueueNums":\s*5', route), route
        send_and_consume("by ours")
        if stop == "stopped":
            assert ours.terminate() == 0
        else:
            # Tables are saved every few seconds, messages at once.
            wait_until(lambda: _committed(directory.root) == 40, "a saved table of offsets")
            ours.kill()
    wait_for_broker(directory.name_server, "broker-a", present=False)
    with directory.apaches_broker():
        send_and_consume("by Apache's again")
        rows = directory.client.read(directory.name_server, TOPIC, at_least=60)
    assert sorted(row["body"] for row in rows) == sorted(sent)


ASKING_SOON = {
    "transactionTimeOut": "1000",
    "transactionCheckInterval": "1000",
    # A busy machine may take longer to start a producer than 15 checks.
    "transactionCheckMax": "1000",
}


@pytest.mark.parametrize("directory", ALL_RELEASES, indirect=True, ids=str)
def test_open_transactions_move_with_the_store(directory: Directory) -> None:
    """Both sides ask about those that the other left open, and deliver no other transaction once more."""
    names, client = directory.name_server, directory.client
    seen: list[bytes] = []

    def wait_for(*bodies: bytes) -> None:
        seen.extend(bodies)
        wait_until(lambda: directory_bodies() == sorted(seen), f"{bodies}")

    def directory_bodies() -> list[bytes]:
        return sorted(row["body"] for row in client.read(names, TOPIC))

    def leave_transactions(where: str) -> None:
        """One of each kind; nobody is there when the broker wants to ask about the open one."""
        with client.transactor(names, f"payers-{where}") as producer:
            producer.send(TOPIC, b"committed at %s" % where.encode(), "COMMIT_MESSAGE")
            producer.send(TOPIC, b"rolled back at %s" % where.encode(), "ROLLBACK_MESSAGE")
            producer.send(
                TOPIC,
                b"open at %s" % where.encode(),
                "UNKNOW",
                "COMMIT_MESSAGE",
                CHECK_IMMUNITY_TIME_IN_SECONDS="4",
            )
        wait_for(b"committed at %s" % where.encode())

    def answer_for(where: str) -> None:
        with client.transactor(names, f"payers-{where}") as producer:
            # Brokers learn of a producer of 5.x with its first message.
            producer.send(TOPIC, b"introduces it", "ROLLBACK_MESSAGE")
            wait_for(b"open at %s" % where.encode())
            assert b"open at %s" % where.encode() in {row["body"] for row in producer.asked()}

    with directory.apaches_broker() as apaches:
        leave_transactions("theirs")
        apaches.terminate()
    with directory.our_broker(**ASKING_SOON) as ours:
        answer_for("theirs")
        leave_transactions("ours")
        assert ours.terminate() == 0
    wait_for_broker(names, "broker-a", present=False)
    with directory.apaches_broker(**ASKING_SOON):
        answer_for("ours")
        assert directory_bodies() == sorted(seen)


def _committed(root: Path) -> int:
    """How many messages of the topic are consumed, as the file of offsets says; Java's keys are no JSON."""
    saved = saved_table(root, "consumerOffset.json")
    queues = re.search(rf'"{TOPIC}@readers":\s*{{([^}}]*)}}', saved)
    return sum(map(int, re.findall(r":\s*(\d+)", queues[1]))) if queues else 0


def assert_found_by_key(directory: Directory, rows: list[Row]) -> None:
    """Apache's index finds what we put into it: some keys in its first file, some in its last."""
    keyed = [row for row in rows if "KEYS" in row["properties"]]
    for row in (keyed[0], keyed[len(keyed) // 2], keyed[-1]):
        wait_until(partial(is_found_by_key, directory, row["properties"]), row["properties"]["KEYS"])


def is_found_by_key(directory: Directory, properties: dict[str, str]) -> bool:
    key = properties["KEYS"].split()[0]
    said = directory.client.mqadmin("queryMsgByKey", "-n", directory.name_server, "-t", TOPIC, "-k", key)
    return properties["UNIQ_KEY"] in said


def append_varied(store: MessageStore) -> None:
    """The same kinds of message that the Java producer sends, put in by hand."""
    born_host, store_host = Host.of("127.0.0.1", 40_001).pack(), Host.of("127.0.0.1", 10_911).pack()
    batch: list[BatchEntry] = []
    for message in varied_messages(TOPIC, seed=3, fillers=150, big_bytes=60_000):
        properties = encode_properties(properties_of(message)).encode()
        body, sys_flag = message["body"], 0
        if "batch" in message:
            batch.append(BatchEntry(body, properties, 0))
            continue
        if len(body) > 4096:
            body, sys_flag = compress(body, Compression.ZLIB), SysFlag.COMPRESSED | SysFlag.COMPRESSION_ZLIB
        result = store.append(
            TOPIC,
            message["queue"],
            body,
            properties,
            flag=message.get("flag", 0),
            sys_flag=sys_flag,
            reconsume_times=message["queue"],
            born_timestamp=BORN_MS,
            born_host=born_host,
            store_host=store_host,
        )
        assert result.is_ok, result
    assert store.append_batch(
        TOPIC, 3, batch, born_timestamp=BORN_MS, born_host=born_host, store_host=store_host
    ).is_ok


def properties_of(message: dict[str, Any]) -> dict[str, str]:
    named = {"TAGS": "tags", "KEYS": "keys"}
    return {**message["properties"], **{name: message[key] for name, key in named.items() if key in message}}
