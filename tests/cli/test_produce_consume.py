"""`pyromq produce` and `pyromq consume` as a person meets them: pipes, formats, groups, and how they end."""

import asyncio
import base64
import io
import json
import os
import pty
import random
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result
from tests.support.server_programs import environment
from tests.support.terminals import all_shown

from pyromq.apps.pyromq import COMMANDS
from pyromq.cli.message_formats import renderer
from pyromq.cli.outgoing import InputLines, Template
from pyromq.cli.produce import _paced
from pyromq.cli.rate_line import RateLine, amount
from pyromq.cli.signals import exit_on_signals
from pyromq.cli.starting_points import Start, StartKind, parse_start
from pyromq.client.producer import Producer
from pyromq.client.values import MessageQueue, ReceivedMessage
from pyromq.clock import ManualClock
from pyromq.protocol import names
from pyromq.protocol.record import Host, StoredMessage
from pyromq.protocol.requests.topics import CreateOrUpdateTopic
from pyromq.remoting.dialer import Dialer
from pyromq.testing import RunningCluster, cluster

NOW_MS = 1_700_000_000_000


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    with cluster(tmp_path_factory.mktemp("cluster"), brokers=2) as started:
        yield started


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A topic of the test's own."""
    return re.sub(r"\W", "_", request.node.name)[:100]


PATIENTLY = ("--timeout", "60")
"""A busy machine may take longer than anyone in front of a terminal would like."""


class Shell:
    """Runs commands against the cluster."""

    def __init__(self, namesrv: str) -> None:
        self.namesrv = namesrv

    def run(self, command: str, *arguments: str, stdin: str | bytes = b"", code: int = 0) -> Result:
        env = {"NAMESRV_ADDR": self.namesrv}
        outcome = CliRunner(env=env).invoke(COMMANDS, [command, *arguments], input=stdin)
        assert outcome.exit_code == code, (outcome.output, outcome.exception)
        return outcome

    def produce(self, topic: str, *arguments: str, stdin: str | bytes = b"", code: int = 0) -> Result:
        return self.run("produce", topic, *PATIENTLY, *arguments, stdin=stdin, code=code)

    def consume(self, topic: str, *arguments: str) -> list[str]:
        """The lines of its output, sorted: queues are read side by side."""
        return sorted(self.run("consume", topic, *arguments).stdout.splitlines())

    def start(
        self,
        home: Path,
        *arguments: str,
        stdin: int = subprocess.PIPE,
        stderr: int = subprocess.PIPE,
    ) -> "Process":
        return subprocess.Popen(
            [sys.executable, "-m", "pyromq", *arguments],
            env=environment(home, NAMESRV_ADDR=self.namesrv),
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=stderr,
        )


Process = subprocess.Popen[bytes]


@pytest.fixture
def shell(running: RunningCluster) -> Shell:
    return Shell(running.namesrv)


# From stdin to stdout


def test_lines_go_in_and_come_out(shell: Shell, topic: str) -> None:
    sent = shell.produce(topic, stdin="one\n\ntwo\nthree")
    assert sent.stdout == ""
    assert sent.stderr.startswith("sent 3 messages (11 B) in ")
    read = shell.run("consume", topic)
    assert sorted(read.stdout.splitlines()) == ["one", "three", "two"]
    assert read.stderr.startswith("read 3 messages (14 B) in ")


def test_a_message_has_as_much_time_as_is_given(
    monkeypatch: pytest.MonkeyPatch, shell: Shell, topic: str
) -> None:
    given: list[object] = []

    class Watched(Producer):
        def __init__(self, group: str, namesrv: str | Iterable[str] | None = None, **options: Any) -> None:
            given.append(options["send_timeout_s"])
            super().__init__(group, namesrv, **options | {"send_timeout_s": 60.0})

    monkeypatch.setattr("pyromq.cli.produce.Producer", Watched)
    shell.run("produce", topic, "--timeout", "45", stdin="x")
    shell.run("produce", topic, stdin="x")
    assert given == [45.0, 3.0]


def test_quiet_is_quiet(shell: Shell, topic: str) -> None:
    assert shell.produce(topic, "-q", stdin="one\n").output == ""
    assert shell.run("consume", topic, "-q").output == "one\n"


def test_many_lines_arrive_once_each(shell: Shell, topic: str) -> None:
    numbers = [str(number) for number in range(3000)]
    for options in ((), ("--linger", "0")):
        shell.produce(topic, *options, stdin="\n".join(numbers))
    assert shell.consume(topic) == sorted(numbers * 2)


def test_keys_tags_and_properties_travel(shell: Shell, topic: str) -> None:
    options = ("-K", ":", "--tags", "Paid", "-H", "a=7", "--property", "b=x=y", "--key", "all")
    shell.produce(topic, *options, stdin="k1 k2:one:1\nno key\n")
    assert shell.consume(topic, "-f", r"%k|%g|%s\n") == ["all|Paid|no key", "k1 k2|Paid|one:1"]
    described = json.loads(shell.consume(topic, "-f", "json")[0])
    assert described["properties"].items() >= {"a": "7", "b": "x=y"}.items()


def test_a_file_is_one_body_as_often_as_wanted(shell: Shell, topic: str, tmp_path: Path) -> None:
    photo = tmp_path / "photo"
    photo.write_bytes(b"\x00\xff\nline\n" * 1000)
    shell.produce(topic, "--file", str(photo), "--count", "3", "--compress", "zstd")
    bodies = [base64.b64decode(json.loads(line)["bodyBase64"]) for line in shell.consume(topic, "-f", "json")]
    assert bodies == [photo.read_bytes()] * 3


@pytest.mark.parametrize("how", ["none", "zlib", "lz4", "zstd"])
def test_packed_bodies_come_out_unpacked(shell: Shell, topic: str, how: str) -> None:
    shell.produce(topic, "--compress", how, stdin="a" * 5000)
    assert shell.consume(topic) == ["a" * 5000]


def test_json_says_everything_about_a_message(shell: Shell, topic: str) -> None:
    lines = [
        {"body": "text", "key": "k", "tags": "T", "properties": {"p": "1"}},
        {"body": {"nested": [1, 2]}, "keys": ["a", "b"]},
        {"bodyBase64": "/wA="},
    ]
    shell.produce(topic, "--format", "json", "--tags", "Else", stdin="\n".join(map(json.dumps, lines)))
    found = sorted(
        (line.get("body", ""), line.get("bodyBase64", ""), line["tags"], line["keys"])
        for line in map(json.loads, shell.consume(topic, "-f", "json"))
    )
    assert found == [
        ("", "/wA=", "Else", []),
        ("text", "", "T", ["k"]),
        ('{"nested": [1, 2]}', "", "Else", ["a", "b"]),
    ]


def test_what_consume_prints_produce_can_send_again(shell: Shell, topic: str) -> None:
    shell.produce(topic, "-K", ":", "--tags", "T", "-H", "a=1", stdin="k:one\nl:two\n")
    copied = shell.run("consume", topic, "--format", "json").stdout
    shell.produce(f"{topic}-copy", "--format", "json", stdin=copied)
    form = r"%k|%g|%s\n"
    assert shell.consume(f"{topic}-copy", "-f", form) == shell.consume(topic, "-f", form)
    assert json.loads(shell.consume(f"{topic}-copy", "-f", "json")[0])["properties"]["a"] == "1"


def test_a_queue_or_a_sharding_key_says_where_messages_go(shell: Shell, topic: str) -> None:
    shell.produce(topic, "-p", "broker-b:2", stdin="chosen\n")
    assert shell.consume(topic, "-f", r"%b:%p %s\n") == ["broker-b:2 chosen"]
    shell.produce(topic, "--sharding-key", "customer-1", stdin="a\nb\nc\n")
    places = {line.split()[0] for line in shell.consume(topic, "-f", r"%b:%p %s\n") if "chosen" not in line}
    assert len(places) == 1
    assert shell.consume(topic, "-p", "broker-b:2", "-c", "1") == ["chosen"]


def test_counts_end_either_side(shell: Shell, topic: str) -> None:
    shell.produce(topic, "--count", "4", stdin="".join(f"{number}\n" for number in range(1000)))
    assert shell.consume(topic) == ["0", "1", "2", "3"]
    assert len(shell.consume(topic, "--count", "3")) == 3


def test_a_rate_slows_nothing_but_the_sending(shell: Shell, topic: str) -> None:
    shell.produce(topic, "--rate", "1000", stdin="".join(f"{number}\n" for number in range(60)))
    assert len(shell.consume(topic)) == 60


@pytest.mark.parametrize("filtering", [("--tags", "A || B"), ("--sql", "n > 5")])
def test_filters_let_some_pass(shell: Shell, topic: str, filtering: tuple[str, str]) -> None:
    for tag, number in (("A", 6), ("B", 7), ("C", 1)):
        shell.produce(topic, "--tags", tag, "-H", f"n={number}", stdin=f"{tag}\n")
    assert shell.consume(topic, *filtering) == ["A", "B"]
    assert shell.consume(topic, *filtering, "--group", f"{topic[:80]}-group") == ["A", "B"]


# Where to start


def test_reading_starts_where_one_wants(shell: Shell, topic: str) -> None:
    shell.produce(topic, "-p", "broker-a:0", stdin="0\n1\n2\n3\n")
    assert shell.consume(topic, "--from", "earliest") == ["0", "1", "2", "3"]
    assert shell.consume(topic, "--from", "-2") == ["2", "3"]
    assert shell.consume(topic, "-o", "1") == ["1", "2", "3"]
    assert shell.consume(topic, "-o", "100") == []
    assert shell.consume(topic, "-o", "-1h") == ["0", "1", "2", "3"]
    times = [json.loads(line)["storeTimestamp"] for line in shell.consume(topic, "-f", "json")]
    assert shell.consume(topic, "-o", f"@{max(times) + 1}") == []
    assert "0" in shell.consume(topic, "-o", f"@{min(times)}")


@pytest.mark.parametrize(
    ("text", "start"),
    [
        ("earliest", Start(StartKind.EARLIEST)),
        ("first", Start(StartKind.EARLIEST)),
        ("end", Start(StartKind.LATEST)),
        ("latest", Start(StartKind.LATEST)),
        ("stored", Start(StartKind.STORED)),
        ("17", Start(StartKind.OFFSET, 17)),
        ("-17", Start(StartKind.LAST, 17)),
        ("-90s", Start(StartKind.TIME, NOW_MS - 90_000)),
        ("-2d", Start(StartKind.TIME, NOW_MS - 172_800_000)),
        ("@1600000000123", Start(StartKind.TIME, 1_600_000_000_123)),
        ("2020-09-13T12:26:40+00:00", Start(StartKind.TIME, 1_600_000_000_000)),
        (
            datetime.fromtimestamp(1_600_000_000, UTC).astimezone().replace(tzinfo=None).isoformat(),
            Start(StartKind.TIME, 1_600_000_000_000),
        ),
    ],
)
def test_starting_points_are_understood(text: str, start: Start) -> None:
    assert parse_start(text, NOW_MS) == start


# Groups


def test_a_group_goes_on_where_it_stopped(shell: Shell, topic: str) -> None:
    group = ("--group", "readers")
    shell.produce(topic, stdin="a\nb\nc\nd\n")
    first = shell.consume(topic, *group, "--count", "3")
    second = shell.consume(topic, *group)
    assert sorted(first + second) == ["a", "b", "c", "d"]
    assert shell.consume(topic, *group) == []
    assert shell.consume(topic) == ["a", "b", "c", "d"]
    shell.produce(topic, stdin="e\n")
    assert shell.consume(topic, *group, "--from", "stored") == ["e"]
    assert shell.consume(topic, *group, "--from", "earliest") == ["a", "b", "c", "d", "e"]
    assert shell.consume(topic, *group) == []


def test_a_group_can_read_a_queue_by_name(shell: Shell, topic: str) -> None:
    shell.produce(topic, "-p", "broker-a:1", stdin="mine\n")
    shell.produce(topic, "-p", "broker-a:2", stdin="other\n")
    by_name = ("--group", "by-name", "--queue", "broker-a:1")
    assert shell.consume(topic, *by_name) == ["mine"]
    assert shell.consume(topic, *by_name) == []
    assert shell.consume(topic, "--group", "by-name") == ["other"]


def test_a_topic_that_may_only_be_written_to_is_told(
    shell: Shell, running: RunningCluster, topic: str
) -> None:
    request = CreateOrUpdateTopic(
        topic=topic,
        default_topic=names.AUTO_CREATE_TOPIC,
        read_queue_nums=1,
        write_queue_nums=1,
        perm=names.WRITE,
        topic_filter_type="SINGLE_TAG",
    )

    async def create() -> None:
        dialer = Dialer()
        await dialer.call(running.broker_address, request, 30)
        await dialer.close()

    asyncio.run(create())
    for group in ((), ("--group", "curious")):
        (line,) = shell.run("consume", topic, *group, code=1).stderr.splitlines()
        assert line.startswith(f"Error: topic {topic} has no readable queue")


def test_broadcasting_keeps_its_offsets_at_home(
    shell: Shell, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    shell.produce(topic, stdin="a\nb\n")
    everyone = ("--group", "everyone", "--broadcast")
    assert shell.consume(topic, *everyone) == ["a", "b"]
    assert shell.consume(topic, *everyone) == []
    assert list(tmp_path.glob(".rocketmq_offsets/*/everyone/offsets.json"))


# How they end


@pytest.mark.parametrize("received", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("group", [(), ("--group", "following")])
def test_following_shows_what_comes_until_a_signal(
    shell: Shell, topic: str, tmp_path: Path, received: signal.Signals, group: tuple[str, ...]
) -> None:
    shell.produce(topic, stdin="before\n")
    with shell.start(tmp_path, "consume", topic, "--follow", *group) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"before\n"
            shell.produce(topic, stdin="after\n")
            assert process.stdout.readline() == b"after\n"
            process.send_signal(received)
            output, errors = process.communicate(timeout=60)
        finally:
            process.kill()
    assert output == b""
    assert re.fullmatch(rb"read 2 messages \(13 B\) in .*\n", errors)
    assert process.returncode == 128 + received


def test_a_reader_who_has_seen_enough_is_no_error(shell: Shell, topic: str, tmp_path: Path) -> None:
    shell.produce(topic, stdin="".join(f"{number:0100}\n" for number in range(5000)))
    with shell.start(tmp_path, "consume", topic, "--group", "heads") as process:
        try:
            assert process.stdout is not None
            assert len(process.stdout.readline()) == 101
            process.stdout.close()
            assert process.stderr is not None
            errors = process.stderr.read()
            assert process.wait(timeout=60) == 128 + signal.SIGPIPE
        finally:
            process.kill()
    assert b"Traceback" not in errors
    assert b"Exception" not in errors
    assert len(shell.consume(topic, "--group", "heads")) > 0  # what nobody read comes again


def test_a_signal_ends_it_though_nobody_reads_what_it_writes(
    shell: Shell, topic: str, tmp_path: Path
) -> None:
    shell.produce(topic, stdin="".join(f"{number:01000}\n" for number in range(1000)))
    with shell.start(tmp_path, "consume", topic, "--group", "unread") as process:
        try:
            assert process.stdout is not None
            assert len(process.stdout.read(1)) == 1  # the rest of the megabyte fills the pipe
            process.send_signal(signal.SIGTERM)
            assert process.wait(timeout=60) == 128 + signal.SIGTERM
        finally:
            process.kill()
            process.communicate()
    assert len(shell.consume(topic, "--group", "unread")) > 0


def test_a_typed_line_leaves_at_once_and_ctrl_c_ends_the_rest(
    shell: Shell, topic: str, tmp_path: Path
) -> None:
    shell.produce(topic, stdin="before\n")
    keyboard, theirs = pty.openpty()
    try:
        with (
            shell.start(tmp_path, "consume", topic, "--follow") as reader,
            shell.start(tmp_path, "produce", topic, *PATIENTLY, stdin=theirs) as writer,
        ):
            try:
                assert reader.stdout is not None
                assert reader.stdout.readline() == b"before\n"
                os.write(keyboard, b"typed\n")
                assert reader.stdout.readline() == b"typed\n"
                writer.send_signal(signal.SIGINT)
                _, errors = writer.communicate(timeout=60)
            finally:
                reader.kill()
                writer.kill()
    finally:
        os.close(keyboard)
        os.close(theirs)
    assert errors.startswith(b"sent 1 message (5 B)")
    assert writer.returncode == 128 + signal.SIGINT


class SignalledPipe(io.FileIO):
    """Whoever waits for it to be readable gets a signal that does not wake him."""

    def fileno(self) -> int:
        threading.Thread(target=lambda: signal.pthread_kill(threading.get_ident(), signal.SIGTERM)).start()
        return super().fileno()


def test_waiting_for_lines_ends_though_the_signal_woke_nobody() -> None:
    readable, writable = os.pipe()
    with (
        SignalledPipe(readable) as stream,
        open(writable, "wb"),
        pytest.raises(click.exceptions.Exit) as ended,
        exit_on_signals(),
    ):
        list(InputLines(stream))
    assert ended.value.exit_code == 128 + signal.SIGTERM


def test_waiting_for_the_next_message_ends_though_the_signal_woke_nobody() -> None:
    one = Template("Orders").message(b"x", "line 1")
    paced = _paced([[one, one]], rate=0.001)
    assert next(paced) == [one]

    def signal_nobody() -> None:
        signal.pthread_kill(threading.get_ident(), signal.SIGTERM)

    def wait() -> None:
        threading.Timer(0.05, signal_nobody).start()
        next(paced)

    with pytest.raises(click.exceptions.Exit) as ended, exit_on_signals():
        wait()
    assert ended.value.exit_code == 128 + signal.SIGTERM


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_what_fails_because_of_a_signal_is_not_told(number: signal.Signals) -> None:
    """A signal for the whole group also ends the processes that `finally` blocks need."""

    def clean_up() -> None:
        try:
            raise ConnectionRefusedError("the helper is gone")
        except ConnectionRefusedError as problem:
            raise RuntimeError("cannot clean up") from problem

    def work() -> None:
        try:
            signal.raise_signal(number)
        finally:
            clean_up()

    with pytest.raises(click.exceptions.Exit) as ended, exit_on_signals():
        work()
    assert ended.value.exit_code == 128 + number
    with pytest.raises(RuntimeError, match="cannot clean up"), exit_on_signals():
        clean_up()


@pytest.mark.parametrize("command", ["produce", "consume"])
def test_a_terminal_shows_how_fast_it_goes(shell: Shell, topic: str, tmp_path: Path, command: str) -> None:
    lines = b"".join(b"%d\n" % number for number in range(1500))
    if command == "consume":
        shell.produce(topic, stdin=lines)
    ours, theirs = pty.openpty()
    try:
        arguments = (command, topic, *((*PATIENTLY, "--rate", "2000") if command == "produce" else ()))
        with shell.start(tmp_path, *arguments, stderr=theirs) as process:
            os.close(theirs)
            process.communicate(lines, timeout=60)
        shown = all_shown(ours)
    finally:
        os.close(ours)
    verb = {"produce": "sent", "consume": "read"}[command]
    assert shown.startswith(f"\r\x1b[K{verb} ")
    assert f"{verb} 1,500 messages" in shown.splitlines()[-1]
    if command == "produce":
        assert shown.count("\r\x1b[K") > 2


# Mistakes


@pytest.mark.parametrize(
    ("command", "arguments", "complaint"),
    [
        ("produce", ("--queue", "0", "--sharding-key", "k"), "give --queue or --sharding-key, not both"),
        ("produce", ("--format", "json", "-K", ":"), 'in JSON, use "key"'),
        ("produce", ("--access-key", "me"), "--access-key and --secret-key must be given together"),
        ("consume", ("--tags", "a", "--sql", "b > 1"), "give --tags or --sql, not both"),
        ("consume", ("--broadcast",), "--broadcast needs --group"),
        ("consume", ("--from", "stored"), "--from stored needs --group"),
        ("consume", ("--from", "latest"), "add --follow to wait for new messages"),
        ("consume", ("--from", "yesterday"), "expected earliest, latest, stored"),
        ("consume", ("--format", "xml"), "expected value, json, hex, or a format string"),
        ("consume", ("--format", "%z"), "format=%z: expected one of %% %s"),
        ("consume", ("-n", "nowhere"), "namesrv=nowhere: expected host:port"),
    ],
)
def test_a_mistake_in_the_options_is_told(
    shell: Shell, command: str, arguments: tuple[str, ...], complaint: str
) -> None:
    outcome = shell.run(command, "Topic", *arguments, code=2)
    assert outcome.stderr.startswith(f"Usage: pyromq {command}")
    assert complaint in outcome.stderr


@pytest.mark.parametrize("command", ["produce", "consume"])
def test_without_a_name_server_it_says_where_to_get_one(command: str) -> None:
    outcome = CliRunner(env={"NAMESRV_ADDR": None}).invoke(COMMANDS, [command, "Topic"], input="x")
    assert outcome.exit_code == 2
    assert "set -n HOST:PORT, PYROMQ_URL or NAMESRV_ADDR; `pyromq standalone` starts one" in outcome.stderr


@pytest.mark.parametrize("command", ["produce", "consume"])
def test_a_name_server_that_is_not_there_is_one_line(command: str) -> None:
    outcome = CliRunner().invoke(COMMANDS, [command, "Topic", "-n", "127.0.0.1:1"], input="x")
    assert outcome.exit_code == 1
    (line,) = outcome.stderr.splitlines()
    assert line.endswith("is a name server running there? `pyromq standalone` starts a whole cluster")


def test_a_topic_that_is_not_there_is_one_line(shell: Shell, topic: str) -> None:
    for group in ((), ("--group", "nobody")):
        (line,) = shell.run("consume", topic, *group, code=1).stderr.splitlines()
        assert line.startswith(f"Error: no route for topic {topic}: ")


def test_a_queue_that_is_not_there_is_named_with_those_that_are(shell: Shell, topic: str) -> None:
    shell.produce(topic, stdin="x")
    for command in ("produce", "consume"):
        outcome = shell.run(command, topic, "--queue", "9", stdin="x", code=1)
        assert "Error: queue=9: expected a queue of the topic: broker-" in outcome.stderr
    outcome = shell.produce("TBW102", "--queue", "0", stdin="x", code=1)
    assert "queue=0: expected one of broker-a:0, broker-b:0" in outcome.stderr


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("{", "line 3: Input data was truncated"),
        ('{"body": "x", "tag": "T"}', "line 3: Object contains unknown field `tag`"),
        ('{"key": "x"}', 'line 3: expected "body" or "bodyBase64"'),
        ('{"bodyBase64": "?"}', "line 3: Invalid base64 encoded string"),
    ],
)
def test_what_stands_before_a_bad_line_is_sent(shell: Shell, topic: str, line: str, complaint: str) -> None:
    good = '{"body": "a"}\n{"body": "b"}\n'
    outcome = shell.produce(topic, "--format", "json", stdin=f"{good}{line}\n{good}", code=1)
    assert outcome.stderr.startswith("sent 2 messages")
    assert f"Error: some messages were not sent; {complaint}" in outcome.stderr
    assert shell.consume(topic) == ["a", "b"]


def test_a_message_that_is_refused_is_named(shell: Shell, topic: str, tmp_path: Path) -> None:
    large = tmp_path / "large"
    large.write_bytes(random.randbytes(4 * 1024 * 1024 + 1))
    outcome = shell.produce(topic, "--file", str(large), "--count", "2", code=1)
    (line,) = outcome.stderr.splitlines()
    assert line.startswith(
        f"Error: some messages were not sent; {large} and 1 more: the body has 4194305 bytes"
    )
    outcome = shell.produce(topic, "--key", "with blank", stdin="x", code=1)
    assert (
        "line 1: a key must not be empty or contain a blank, which separates keys: ('with blank',)"
        in outcome.stderr
    )
    outcome = shell.produce(topic, "-H", "KEYS=x", stdin="x", code=1)
    assert "the property name KEYS is reserved" in outcome.stderr
    assert "expected NAME=VALUE" in shell.produce(topic, "-H", "a", stdin="x", code=1).stderr


def test_nothing_on_stdin_is_said(shell: Shell, topic: str) -> None:
    assert shell.produce(topic).stderr.splitlines()[-1] == "stdin was empty"


# What messages look like


def received(body: bytes) -> ReceivedMessage:
    stored = StoredMessage(
        topic="Orders",
        queue_id=3,
        flag=0,
        queue_offset=17,
        log_offset=1000,
        sys_flag=0,
        born_timestamp=NOW_MS - 5,
        born_host=Host.of("10.0.0.1", 40000),
        store_timestamp=NOW_MS,
        store_host=Host.of("10.0.0.2", 10911),
        reconsume_times=0,
        prepared_transaction_offset=0,
        body=body,
        properties=b"KEYS\x01k1 k2\x02TAGS\x01T\x02UNIQ_KEY\x01ID\x02a\x017\x02",
    )
    return ReceivedMessage(stored, MessageQueue("Orders", "broker-a", 3))


@pytest.mark.parametrize(
    ("form", "shown"),
    [
        ("value", b"a\xffb\n"),
        ("%t/%b/%p/%o/%T", b"Orders/broker-a/3/17/%d" % NOW_MS),
        (r"%k %K %s %S %g %i%%\t\x41\q\n", b"k1 k2 5 a\xffb 3 T ID%\tA\\q\n"),
        ("%h", b"KEYS=k1 k2,TAGS=T,UNIQ_KEY=ID,a=7"),
        (
            "hex",
            b"Orders@broker-a:3 offset=17 keys=k1 k2 tags=T 3 bytes\n"
            b"00000000  61 ff 62                                          |a.b|\n",
        ),
    ],
)
def test_formats_write_every_byte(form: str, shown: bytes) -> None:
    assert renderer(form, is_terminal=False)(received(b"a\xffb")) == shown


def test_a_terminal_is_not_controlled_by_messages() -> None:
    render = renderer("value", is_terminal=True)
    assert render(received("ü\tx".encode())) == "ü\tx\n".encode()
    assert render(received(b"\x1b[2J\xff")) == b"\\x1b[2J\\xff\n"


def test_the_rate_line_counts() -> None:
    clock = ManualClock()
    line = RateLine("sent", is_live=False, is_quiet=False, clock=clock)
    line.add(1, 10)
    clock.advance(2)
    line.add(4999, 1_234_567)
    assert repr(line) == "<RateLine sent 5,000 messages (1.23 MB) in 2.0 s, 2,500/s>"
    assert [amount(size) for size in (0, 999, 1000, 5.5e15)] == ["0 B", "999 B", "1 kB", "5.5e+03 TB"]


def test_a_live_line_counts_from_its_beginning_and_makes_room(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    clock = ManualClock()
    line = RateLine("measured", is_live=True, is_quiet=False, clock=clock)
    clock.advance(60)
    line.begin()
    clock.advance(2)
    line.add(10, 100)
    line.clear()
    shown = "measured 10 messages (100 B) in 2.0 s, 5/s"
    assert capsys.readouterr().err == f"\r\x1b[K{shown}\r\x1b[K"


def test_starting_takes_no_part_that_it_does_not_need() -> None:
    script = (
        "import sys, pyromq.cli.produce, pyromq.cli.consume\n"
        "heavy = {'rich', 'pyromq.store', 'pyromq.nameserver', 'pyromq.broker', 'h11', 'prometheus_client'}\n"
        "sys.exit(f'imported {heavy & set(sys.modules)}' if heavy & set(sys.modules) else 0)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
