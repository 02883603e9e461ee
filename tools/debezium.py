"""A real Debezium beside a real PostgreSQL: `pyromq pipeline changes` must end with the rows of the database.

    python -m tools.debezium

Debezium's engine and the pipelines are killed in the middle of batches, in a snapshot and in a stream, while
rows and the database's schema change. Needs Java 17, Maven, Maven Central (26 MB, kept in the user's cache
directory) and PostgreSQL (Debian's package). Exit status 3 says that these could not be had; everything else
that is not 0 is our own fault. `SEED` chooses rows and deaths; both sides die `ROUNDS=3` times in the stream.
"""

import base64
import json
import os
import pwd
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, date, datetime
from decimal import Decimal
from math import isinf, isnan
from pathlib import Path
from random import Random
from typing import Any, Final
from uuid import UUID

from tests.spark_kills.programs import HOWS, Moment, Pipeline, check_death
from tests.spark_kills.rounds import is_starved
from tests.support.apache import free_ports
from tests.support.apache_releases import (
    FETCH_TIMEOUT_S,
    REPOSITORY,
    UNAVAILABLE,
    PeerUnavailable,
    cache_directory,
    check_java,
    maven,
    say,
    tool,
)

from pyromq import Admin, Message, Producer
from pyromq.spark.pipelines.lake import DELTA, ICEBERG
from pyromq.testing import cluster

VERSION: Final = "3.3.1.Final"
START_TIMEOUT_S: Final = 120.0
STALLED_S: Final = 120.0
ROWS: Final = 200
WORK: Final = 20
"""Transactions between two deaths."""
MOMENTS: Final = ("*.parquet", "*/offsets/[0-9]*", "*.json", "*")
BIG: Final = 6_000
"""Characters of a value that PostgreSQL stores apart, and does not log when it stays as it is."""
PREFIX: Final = "shop"
ORDERS, LOG = f"{PREFIX}_public_orders", f"{PREFIX}_public_log"
PATTERN: Final = f"({PREFIX}|__debezium).*"
"""Heartbeats and the begins and ends of transactions as well."""
TABLES: Final = """
CREATE TYPE mood AS ENUM ('sad', 'ok', 'happy');
CREATE TABLE orders (
  id bigint PRIMARY KEY, customer int, small smallint, amount numeric(12, 2), exact numeric(38, 10),
  free numeric, note text, big text, ratio float8, narrow real, flag boolean, raw bytea, day date,
  at timestamp, zoned timestamptz, mark uuid, doc jsonb, tags text[], numbers int[], state mood, until date,
  huge numeric(60, 5), "an odd; name (x)" text, gone text
);
ALTER TABLE orders ALTER big SET STORAGE EXTERNAL;
CREATE TABLE log (host text, line int, words text, PRIMARY KEY (host, line));
"""
TEXTS: Final = ("until", "huge")
AS_JSON: Final = {
    "raw": "encode(raw, 'hex')",
    "doc": "doc::text",
    "at": "to_char(at, 'YYYY-MM-DD\"T\"HH24:MI:SS.US')",
    "zoned": "to_char(zoned AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.US')",
    "until": r"regexp_replace(until::text, '^(\d{5,})', '+\1')",
    "huge": "huge::text",
    "narrow": "narrow::float8",
}
"""Expressions for columns that JSON of PostgreSQL would write otherwise than `_plain`."""
KEYS: Final = {ORDERS: ("id",), LOG: ("host", "line")}


def main() -> int:
    chance = Random(int(os.environ.get("SEED", "7")))
    try:
        check_java()
        classes = _compiled()
        with tempfile.TemporaryDirectory(prefix="pyromq-debezium-") as scratch:
            Path(scratch).chmod(0o755)  # PostgreSQL may run as another user
            with database(Path(scratch) / "postgres") as shop, cluster(Path(scratch) / "store") as running:
                Trial(shop, running.namesrv, Path(scratch), classes, chance).run()
    except PeerUnavailable as problem:
        say(f"NOT RUN: {problem}")
        return UNAVAILABLE
    return 0


def _compiled() -> str:
    """The class path of Debezium's engine and our driver of it."""
    home = cache_directory().parent / "debezium" / VERSION
    if not (home / "complete").exists():
        say(f"fetching Debezium {VERSION} with Maven ...")
        shutil.rmtree(home, ignore_errors=True)
        home.mkdir(parents=True)
        profile = (f"--file={REPOSITORY / 'interop' / 'pom.xml'}", "--activate-profiles=debezium")
        settings = (
            f"-Ddebezium.version={VERSION}",
            "-DincludeScope=runtime",
            f"-DoutputDirectory={home}/jars",
        )
        maven(*profile, *settings, "dependency:copy-dependencies", timeout_s=FETCH_TIMEOUT_S)
        (home / "complete").touch()
    source, classes = REPOSITORY / "interop" / "java" / "Capture.java", home / "classes"
    subprocess.run(
        [tool("javac"), "-nowarn", "-cp", f"{home}/jars/*", "-d", str(classes), str(source)], check=True
    )
    return f"{home}/jars/*{os.pathsep}{classes}"


class Database:
    def __init__(self, port: int) -> None:
        self.port = port

    def run(self, text: str) -> str:
        """One transaction."""
        address = ("-h", "127.0.0.1", "-p", str(self.port), "-U", PREFIX, "-d", "postgres")
        done = subprocess.run(
            [tool("psql"), *address, "-qAtX1", "-v", "ON_ERROR_STOP=1"],
            input=text,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            raise RuntimeError(f"{done.stderr.strip()} in {text[:200]}")
        return done.stdout

    def rows(self, table: str) -> list[dict[str, Any]]:
        named = self.run(
            "SELECT string_agg(column_name, E'\\t' ORDER BY ordinal_position)"
            f" FROM information_schema.columns WHERE table_name = '{table}'"
        )
        columns = ", ".join(
            f"{AS_JSON.get(name, _quoted(name))} AS {_quoted(name)}" for name in named.strip().split("\t")
        )
        found = self.run(
            f"SELECT coalesce(json_agg(each), '[]') FROM (SELECT {columns} FROM {table}) AS each"
        )
        rows: list[dict[str, Any]] = json.loads(found, parse_float=Decimal)
        return rows


def _quoted(name: str) -> str:
    return f'"{name}"'


@contextmanager
def database(directory: Path) -> Iterator[Database]:
    """PostgreSQL on a port that the system chooses, without passwords."""
    home = _postgres_home()
    directory.mkdir()
    user: dict[str, Any] = {}
    if os.geteuid() == 0:  # which PostgreSQL refuses
        user = {"user": "postgres"}
        owner = pwd.getpwnam("postgres")
        os.chown(directory, owner.pw_uid, owner.pw_gid)
    port = free_ports()
    data, log = directory / "data", (directory / "said").open("wb")
    make: list[str | Path] = [
        home / "initdb",
        "-D",
        data,
        "-U",
        PREFIX,
        "-A",
        "trust",
        "-E",
        "UTF8",
        "--locale=C",
        "--no-sync",
    ]
    subprocess.run(make, stdout=log, stderr=log, check=True, cwd="/", **user)
    settings = {
        "port": port,
        "listen_addresses": "127.0.0.1",
        "unix_socket_directories": "",
        "wal_level": "logical",
        "fsync": "off",
        "timezone": "UTC",
    }
    words = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
    server = subprocess.Popen(
        [home / "postgres", "-D", data, *words], stdout=log, stderr=log, cwd="/", **user
    )
    try:
        found = Database(port)
        last = time.monotonic() + START_TIMEOUT_S
        while True:
            try:
                found.run("SELECT 1")
                break
            except RuntimeError as problem:
                if server.poll() is not None or time.monotonic() > last:
                    raise PeerUnavailable(f"PostgreSQL did not start: {problem}") from None
                time.sleep(0.2)
        yield found
    finally:
        server.kill()
        server.wait()
        log.close()


def _postgres_home() -> Path:
    for home in sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True):
        if (home / "initdb").exists():
            return home
    return Path(tool("initdb")).resolve().parent


class Capture:
    """Debezium's engine; what it sends goes to the topics of tables."""

    def __init__(self, shop: Database, namesrv: str, directory: Path, class_path: str) -> None:
        self._shop = shop
        self._namesrv = namesrv
        self._said = directory / "engine"
        self._marks = 0
        properties = directory / "engine.properties"
        settings = {
            "name": PREFIX,
            "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
            "offset.storage": "org.apache.kafka.connect.storage.FileOffsetBackingStore",
            "offset.storage.file.filename": directory / "engine.offsets",
            "offset.flush.interval.ms": 0,
            "database.hostname": "127.0.0.1",
            "database.port": shop.port,
            "database.user": PREFIX,
            "database.dbname": "postgres",
            "plugin.name": "pgoutput",
            "publication.autocreate.mode": "filtered",
            "table.include.list": "public.orders,public.log",
            "topic.prefix": PREFIX,
            "skipped.operations": "none",
            "provide.transaction.metadata": "true",
            "heartbeat.interval.ms": 200,
            "poll.interval.ms": 20,
            "max.batch.size": 32,
            "max.queue.size": 64,
            "slot.max.retries": 100,
            "slot.retry.delay.ms": 500,
        }
        properties.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        self._command = [
            tool("java"),
            "-Duser.timezone=UTC",
            "-Xmx256m",
            "-cp",
            class_path,
            "Capture",
            str(properties),
        ]

    def carry(self, dies_after: int | None = None) -> int:
        """Until everything that the database has is in the topics, or to its death after some events."""
        sent, stored, mark, is_marked = 0, -1, "", False
        with (
            self._said.open("ab") as log,
            Producer("debezium", namesrv=self._namesrv) as producer,
            subprocess.Popen(
                self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True, bufsize=1
            ) as engine,
        ):
            assert engine.stdin is not None
            assert engine.stdout is not None
            try:
                while dies_after is None or sent < dies_after:
                    line = engine.stdout.readline().rstrip("\n")
                    if not line:
                        raise AssertionError(f"the engine has ended: {self._said.read_text()[-3000:]}")
                    if line == ".":
                        if is_marked and sent == stored:
                            break  # It asks about the next batch, and remembers those before.
                        stored = sent
                        engine.stdin.write("stored\n")
                        continue
                    topic, *parts = line.split("\t")
                    keys, body = (base64.b64decode(part).decode() for part in parts)
                    message = Message(topic.replace(".", "_"), (body or "null").encode(), keys=keys)
                    producer.send(message, sharding_key=keys)
                    if not topic.startswith(f"{PREFIX}.public"):
                        continue
                    sent += 1
                    is_found = bool(mark) and mark in keys
                    if is_found and '"op":"c"' in body:
                        is_marked = True
                    elif not mark or is_found:
                        mark = self._mark()  # Behind everything else; again if a snapshot has read it.
            finally:
                engine.kill()
        return sent

    def _mark(self) -> str:
        self._marks += 1
        self._shop.run(f"INSERT INTO log VALUES ('mark', {self._marks}, 'x')")
        return json.dumps({"host": "mark", "line": self._marks}, separators=(",", ":"))


class Trial:
    """The database changes, both sides die, and at the end the tables are those of the database."""

    def __init__(
        self, shop: Database, namesrv: str, directory: Path, class_path: str, chance: Random
    ) -> None:
        self._shop = shop
        self._chance = chance
        self._directory = directory
        self._next = 0
        self._line = 0
        self._columns = Columns(chance)
        with Admin(namesrv=namesrv) as admin:
            admin.create_topic(ORDERS, queues=4)
            admin.create_topic(LOG, queues=1)  # it is truncated
        self._capture = Capture(shop, namesrv, directory, class_path)
        texts = [word for column in TEXTS for word in ("--as-text", f"{ORDERS}={column}")]
        words = ("--pattern", PATTERN, "--table-per-topic", *texts, "-O", "maxOffsetsPerTrigger=150")
        self._pipelines = {
            form: Pipeline(
                namesrv, self._place(form).parent, "changes", str(self._place(form)), "--format", form, *words
            )
            for form in (DELTA, ICEBERG)
        }

    def _place(self, form: str) -> Path:
        return self._directory / form / "tables"

    def run(self) -> None:
        self._shop.run(TABLES + "".join(self._insert() for _ in range(ROWS)))
        sent = self._capture.carry(self._chance.randint(1, ROWS))
        say(f"the engine dies in its snapshot, after {sent} events")
        say(f"the snapshot: {self._capture.carry()} events")
        for number in range(int(os.environ.get("ROUNDS", "3"))):
            if number == 0:
                self._alter()
            self._work()
            sent = self._capture.carry(self._chance.randint(1, 40))
            say(f"the engine dies in its stream, after {sent} events")
            self._work()
            self._kill_pipelines()
            say(f"the stream: {self._capture.carry()} events")
        for form, pipeline in self._pipelines.items():
            end = pipeline.run()
            assert end.code == 0, end.said
            for topic, keys in KEYS.items():
                expected = self._shop.rows(topic.rpartition("_")[2])
                _compare(f"{form} {topic}", keys, _rows(form, self._place(form) / topic), expected)
            made = {each.name for each in self._place(form).iterdir() if not each.name.startswith("_")}
            assert made == set(KEYS), made

    def _kill_pipelines(self) -> None:
        for form, pipeline in self._pipelines.items():
            moment = Moment(self._chance.choice(MOMENTS), self._chance.randint(1, 4))
            how = self._chance.choice(HOWS)
            end = pipeline.run(moment, how)
            if not is_starved(end.said):
                check_death(end, how)
            say(f"{form}: {how} at {moment.path}: {'killed' if end.was_killed else 'ended before'}")

    # What happens to the database

    def _alter(self) -> None:
        self._shop.run(
            "ALTER TABLE orders ADD COLUMN added text; ALTER TABLE orders DROP COLUMN gone;"
            "ALTER TABLE orders ALTER COLUMN customer TYPE bigint"
        )
        self._columns.alter()

    def _work(self) -> None:
        """Transactions of a few changes each."""
        if self._chance.random() < 0.5:
            self._shop.run("TRUNCATE log;" + self._log())
        for _ in range(WORK):
            kinds = (
                self._insert,
                self._update,
                self._update,
                self._update,
                self._delete,
                self._log,
                self._move,
            )
            changes = (self._chance.choice(kinds)() for _ in range(self._chance.randint(1, 5)))
            self._shop.run("".join(changes))

    def _insert(self) -> str:
        self._next += 1
        values = self._columns.values()
        names = ", ".join(map(_quoted, values))
        row = f"INSERT INTO orders (id, {names}) VALUES ({self._next}, {', '.join(values.values())});"
        return row + self._log()

    def _update(self) -> str:
        values = self._columns.values()
        chosen = self._chance.sample(sorted(values), 3)
        changed = ", ".join(f"{_quoted(name)} = {values[name]}" for name in chosen)
        return f"UPDATE orders SET {changed} WHERE id = {self._chance.randint(1, self._next)};"

    def _delete(self) -> str:
        return f"DELETE FROM orders WHERE id = {self._chance.randint(1, self._next)};"

    def _log(self) -> str:
        self._line += 1
        return f"INSERT INTO log VALUES ('host {self._line % 3}', {self._line}, 'words {self._line}');"

    def _move(self) -> str:
        """Another primary key."""
        line = self._chance.randint(1, self._line)
        self._line += 1
        return f"UPDATE log SET line = {self._line} WHERE line = {line} AND host <> 'mark';"


class Columns:
    """Expressions of SQL for the values of a row."""

    def __init__(self, chance: Random) -> None:
        self._chance = chance
        self._dropped: set[str] = set()
        self._added: set[str] = set()
        self._customers = 2**31

    def alter(self) -> None:
        self._dropped.add("gone")
        self._added.add("added")
        self._customers = 2**63

    def values(self) -> dict[str, str]:
        chance = self._chance
        seconds = f"{chance.randint(-(10**9), 4 * 10**9)}.{chance.randint(0, 999_999):06d}"
        texts = ("plain", "it''s", "back\\slash", "ünïcödé 🙂", "", "two\nlines", '{"json": 1}')
        values = {
            "customer": str(chance.randint(-self._customers, self._customers - 1)),
            "small": str(chance.randint(-32768, 32767)),
            "amount": f"{chance.randint(-(10**12) + 1, 10**12 - 1)}e-2",
            "exact": f"{chance.randint(-(10**38) + 1, 10**38 - 1)}e-10",
            "free": f"{chance.randint(-(10**30), 10**30)}e-{chance.randint(11, 18)}",
            "note": f"'{chance.choice(texts)}'",
            "big": f"'{chance.randbytes(BIG // 2).hex()}'",
            "ratio": chance.choice((repr(chance.uniform(-1e9, 1e9)), "'NaN'", "'Infinity'", "1e-300")),
            "narrow": repr(chance.uniform(-1, 1)),
            "flag": chance.choice(("true", "false")),
            "raw": f"'\\x{chance.randbytes(8).hex()}'",
            "day": f"date '1970-01-01' + {chance.randint(-30_000, 60_000)}",
            "at": f"timestamp '1970-01-01' + interval '{seconds} s'",
            "zoned": f"timestamptz '1970-01-01 00:00:00+00' + interval '{seconds} s'",
            "mark": f"'{UUID(bytes=chance.randbytes(16))}'",
            "doc": f"""'{{"n": {chance.randint(0, 9)}, "deep": {{"list": [1, null, "x"]}}}}'""",
            "tags": chance.choice(("'{}'", """'{a,NULL,"b c"}'""")),
            "numbers": f"'{{{chance.randint(0, 9)},NULL}}'",
            "state": chance.choice(("'sad'", "'ok'", "'happy'")),
            "until": chance.choice(("'infinity'", "'-infinity'", "'2026-03-01'", "'12000-01-01'")),
            "huge": f"{chance.randint(-(10**59), 10**59)}e-5",
            "an odd; name (x)": "'odd'",
            "gone": "'here'",
        } | dict.fromkeys(self._added, "'new'")
        for name in chance.sample(sorted(values), 3):
            values[name] = "NULL"
        return {name: value for name, value in values.items() if name not in self._dropped}


def _rows(form: str, place: Path) -> list[dict[str, Any]]:
    """As the table's own library reads it."""
    if form == DELTA:
        from deltalake import DeltaTable

        found = DeltaTable(str(place)).to_pyarrow_table()
    else:
        from pyiceberg.table import StaticTable

        found = StaticTable.from_metadata(str(place)).scan().to_arrow()
    return [{name: _plain(value) for name, value in row.items()} for row in found.to_pylist()]


def _plain(value: Any) -> Any:
    """As JSON of PostgreSQL has it."""
    match value:
        case float() if isnan(value):
            return "NaN"
        case float() if isinf(value):
            return "Infinity" if value > 0 else "-Infinity"
        case float():
            return Decimal(repr(value))
        case bytes():
            return value.hex()
        case datetime():
            return value.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="microseconds")
        case date():
            return value.isoformat()
        case list():
            return [_plain(each) for each in value]
        case _:
            return value


def _compare(
    name: str, keys: Sequence[str], found: Sequence[Mapping[str, Any]], expected: Sequence[Mapping[str, Any]]
) -> None:
    """AssertionError says what differs. A column that the database has dropped may stay."""
    ours, theirs = ({tuple(row[key] for key in keys): row for row in rows} for rows in (found, expected))
    assert len(ours) == len(found), f"{name}: a key has several rows"
    assert ours.keys() == theirs.keys(), f"{name}: {ours.keys() ^ theirs.keys()}"
    wrong = [
        f"{key} {column}: {ours[key].get(column)!r} instead of {value!r}"
        for key, row in theirs.items()
        for column, value in row.items()
        if ours[key].get(column) != value
    ]
    assert not wrong, f"{name}: {len(wrong)} values differ: {wrong[:5]}"
    say(f"{name}: all {len(theirs)} rows are those of the database")


if __name__ == "__main__":
    sys.exit(main())
