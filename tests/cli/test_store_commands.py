"""`pyromq store` on real files."""

import base64
import json
import os
import pty
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from tests.support.small_stores import TOPIC, append, dispatch_all, small_settings
from tests.support.terminals import all_shown

from pyromq.apps.pyromq import COMMANDS
from pyromq.cli.tables import moment, printable
from pyromq.protocol.compression import Compression, compress
from pyromq.store.message_store import MessageStore


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Sixty messages in two queues; the first is packed, the second no text, the third malicious."""
    with MessageStore.open(small_settings(tmp_path), start_flusher=False) as store:
        packed = compress(b"packed body", Compression.ZSTD)
        append(
            store, packed, sys_flag=Compression.ZSTD.sys_flag, properties=b"TAGS\x01Paid\x02KEYS\x01k1 k2\x02"
        )
        append(store, b"\xff\xfe\x00")
        append(store, b"\x1b[2J[red]gone[/red]")
        for number in range(3, 30):
            append(store, b"body-%d" % number)
        for number in range(30):
            append(store, b"other-%d" % number, queue_id=1)
        dispatch_all(store)
    return tmp_path


def pyromq(*arguments: str | Path) -> Result:
    return CliRunner().invoke(COMMANDS, ["store", *map(str, arguments)])


def rows(outcome: Result, first_cell: str) -> list[list[str]]:
    """The cells of the table rows that begin with the given cell."""
    cells = [[cell.strip() for cell in line.strip("│ \n").split("│")] for line in outcome.output.splitlines()]
    return [row for row in cells if row[0] == first_cell]


def test_inspect_shows_log_queues_and_index(root: Path) -> None:
    outcome = pyromq("inspect", root)
    assert outcome.exit_code == 0, outcome.output
    assert rows(outcome, "state") == [["state", "closed cleanly"]]
    assert [row[:5] for row in rows(outcome, TOPIC)] == [
        [TOPIC, "0", "0", "30", "30"],
        [TOPIC, "1", "0", "30", "30"],
    ]
    assert rows(outcome, "00000000000000000000")[0][1] == "8192"
    assert "verified" not in outcome.output


def test_inspect_verifies_a_sound_store(root: Path) -> None:
    outcome = pyromq("inspect", root, "--verify")
    assert outcome.exit_code == 0, outcome.output
    assert "verified 60 records" in outcome.output
    assert "60 queue units: sound" in outcome.output


def test_inspect_shows_deleted_topics_and_calls_them_no_damage(root: Path) -> None:
    with MessageStore.open(small_settings(root), start_flusher=False) as store:
        deleted_at = store.statistics().log_end_offset
        store.topics.delete(TOPIC)
        append(store, b"a new one")
    outcome = pyromq("inspect", root, "--verify")
    assert outcome.exit_code == 0, outcome.output
    queue, deletion = rows(outcome, TOPIC)
    assert queue[:4] == [TOPIC, "0", "0", "1"]
    assert (deletion[1], deletion[3]) == (str(deleted_at), "finished")


def test_inspect_fails_on_damage_and_names_it(root: Path) -> None:
    log = root / "commitlog" / "00000000000000000000"
    content = bytearray(log.read_bytes())
    content[95] ^= 0xFF
    log.write_bytes(content)
    outcome = pyromq("inspect", root, "--verify")
    assert outcome.exit_code == 1
    assert "damage: log offsets 0 to 138, 138 bytes: " in outcome.output
    assert "total damage: 138 bytes of the log, 1 messages lost" in outcome.output


def test_dump_shows_messages_without_obeying_them(root: Path) -> None:
    outcome = pyromq("dump", root, "--topic", TOPIC, "--queue", "0", "--limit", "4")
    assert outcome.exit_code == 0, outcome.output
    table = [row for row in rows(outcome, "0") if len(row) == 7]
    assert [row[1] for row in table] == ["0", "1", "2", "3"]
    assert table[0][4:] == ["Paid", "k1 k2", "packed body"]
    assert table[1][6] == "(3 bytes)"
    assert table[2][6] == "\\x1b[2J[red]gone[/red]"
    assert "\x1b" not in outcome.output
    assert "there are more messages: raise --limit above 4" in outcome.stderr


def test_dump_gives_json_lines(root: Path) -> None:
    outcome = pyromq("dump", root, "--topic", TOPIC, "--json")
    assert outcome.exit_code == 0, outcome.output
    messages = [json.loads(line) for line in outcome.stdout.splitlines()]
    assert [(each["queueId"], each["queueOffset"]) for each in messages] == [
        (queue, offset) for queue in (0, 1) for offset in range(30)
    ]
    assert messages[0]["body"] == "packed body"
    assert messages[0]["properties"] == {"TAGS": "Paid", "KEYS": "k1 k2"}
    assert base64.b64decode(messages[1]["bodyBase64"]) == b"\xff\xfe\x00"
    assert messages[2]["bornHost"] == "10.1.2.3:40001"
    assert messages[2]["msgId"].startswith("0A090807")


def test_dump_starts_at_an_offset(root: Path) -> None:
    outcome = pyromq("dump", root, "--topic", TOPIC, "--queue", "1", "--from-offset", "28", "--json")
    assert [json.loads(line)["body"] for line in outcome.stdout.splitlines()] == ["other-28", "other-29"]


def test_dump_leaves_out_what_is_damaged_and_says_so(root: Path) -> None:
    log = root / "commitlog" / "00000000000000000000"
    content = bytearray(log.read_bytes())
    content[95] ^= 0xFF
    log.write_bytes(content)
    outcome = pyromq("dump", root, "--topic", TOPIC, "--json")
    assert outcome.exit_code == 0, outcome.output
    assert len(outcome.stdout.splitlines()) == 59
    assert outcome.stderr.startswith("note: log offset 0: message skipped: ")


def test_dump_gives_everything_if_told_so(root: Path) -> None:
    outcome = pyromq("dump", root, "--topic", TOPIC, "--json", "--limit", "0")
    assert len(outcome.stdout.splitlines()) == 60
    assert outcome.stderr == ""


@pytest.mark.parametrize("command", [["dump", "--topic", TOPIC, "--json"], ["inspect", "--verify"]])
def test_a_terminal_shows_the_progress_and_the_pipe_only_the_answer(root: Path, command: list[str]) -> None:
    ours, theirs = pty.openpty()
    try:
        process = subprocess.run(
            [sys.executable, "-m", "pyromq", "store", command[0], str(root), *command[1:]],
            stdout=subprocess.PIPE,
            stderr=theirs,
            env={**os.environ, "TERM": "xterm", "COLUMNS": "100"},
            check=True,
        )
    finally:
        os.close(theirs)
    shown = all_shown(ours)
    os.close(ours)
    assert "100%" in shown
    assert process.stdout.decode() == pyromq(command[0], root, *command[1:]).stdout


@pytest.mark.parametrize(
    ("content", "what"), [(b"short", "is shorter than its header"), (b"\xfe" * 40, "has an invalid header")]
)
def test_a_broken_index_file_is_damage_and_no_obstacle(root: Path, content: bytes, what: str) -> None:
    (root / "index" / "20240101000000000").write_bytes(content)
    outcome = pyromq("inspect", root, "--verify")
    assert outcome.exit_code == 1, outcome.output
    assert f"damage: index/20240101000000000 {what}" in outcome.output


def test_units_that_lead_nowhere_are_counted_and_not_listed(root: Path) -> None:
    for path in (root / "commitlog").iterdir():
        path.write_bytes(bytes(8192))
    outcome = pyromq("inspect", root, "--verify")
    assert outcome.exit_code == 1
    assert f"damage: queue {TOPIC}/1: 30 units (0 to 29) do not point to their messages" in outcome.output


@pytest.mark.parametrize("command", [["inspect"], ["dump", "--topic", TOPIC]])
def test_what_cannot_be_read_is_named(root: Path, command: list[str]) -> None:
    shutil.rmtree(root / "consumequeue")
    (root / "consumequeue").touch()
    outcome = pyromq(command[0], root, *command[1:])
    assert outcome.exit_code == 1
    assert f"Error: cannot read the store in {root}: " in outcome.output


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["dump", "{root}", "--topic", "Order"], "Error: no topic Order in {root}; did you mean Orders?"),
        (["inspect", "{root}/commitlog"], "Error: {root}/commitlog is not a store"),
    ],
)
def test_what_is_not_there_is_one_line(root: Path, arguments: list[str], complaint: str) -> None:
    outcome = pyromq(*(each.format(root=root) for each in arguments))
    assert outcome.exit_code == 1
    (line,) = outcome.stderr.splitlines()
    assert line.startswith(complaint.format(root=root))


@pytest.mark.parametrize(
    ("timestamp_ms", "text"),
    [(0, ""), (1_600_000_000_123, "2020-09-13 12:26:40.123+00:00"), (2**62, str(2**62))],
)
def test_moments_are_told_in_utc(timestamp_ms: int, text: str) -> None:
    assert moment(timestamp_ms) == text


def test_control_characters_are_made_visible() -> None:
    assert printable("a\x1b[31m\n\u2028é") == "a\\x1b[31m\\n\\u2028é"
