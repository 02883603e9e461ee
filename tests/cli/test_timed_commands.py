"""`pyromq produce` with a time, and `pyromq recall`, against a broker that plays its part by script."""

import sys
from asyncio.subprocess import PIPE, create_subprocess_exec
from collections.abc import AsyncIterator
from datetime import datetime
from pathlib import Path

import pytest
from tests.support.scripted_broker import ScriptedBroker
from tests.support.server_programs import environment

from pyromq.cli.moments import duration_ms, moment_ms
from pyromq.protocol.message_id import RecallHandle, encode_offset_message_id, encode_recall_handle
from pyromq.protocol.properties import get_property
from pyromq.protocol.record import Host
from pyromq.protocol.requests.sending import SendMessageAnswer


@pytest.fixture
async def broker() -> AsyncIterator[ScriptedBroker]:
    async with ScriptedBroker("Reminders") as running:
        yield running


def handle(key: str) -> str:
    return encode_recall_handle(RecallHandle("Reminders", "scripted", 99_999_999_999_999, key))


def stored(recall_handle: str | None) -> SendMessageAnswer:
    message_id = encode_offset_message_id(Host.of("127.0.0.1", 1), 7)
    return SendMessageAnswer(msg_id=message_id, queue_id=0, queue_offset=1, recall_handle=recall_handle)


async def run(home: Path, broker: ScriptedBroker, *words: str, stdin: str = "") -> tuple[int, str, str]:
    process = await create_subprocess_exec(
        sys.executable,
        "-m",
        "pyromq",
        *words,
        env=environment(home, NAMESRV_ADDR=broker.address),
        stdin=PIPE,
        stdout=PIPE,
        stderr=PIPE,
    )
    said, complained = await process.communicate(stdin.encode())
    return process.returncode or 0, said.decode(), complained.decode()


@pytest.mark.parametrize(
    ("text", "expected"),
    [("500ms", 500), ("90s", 90_000), ("10m", 600_000), ("2h", 7_200_000), ("7d", 604_800_000)]
    + [(text, None) for text in ("10", "m", "-1s", "1.5h", "")],
)
def test_durations_have_a_unit(text: str, expected: int | None) -> None:
    assert duration_ms(text) == expected


def test_times_are_local_unless_they_say_otherwise() -> None:
    local = datetime(2026, 12, 24, 18).astimezone().timestamp()
    assert moment_ms("2026-12-24T18:00") == moment_ms("2026-12-24 18:00") == local * 1000
    assert moment_ms("2026-12-24T18:00+00:00") == moment_ms("2026-12-24T18:00Z") == 1798135200000
    assert moment_ms("@1798135200000") == 1798135200000
    assert moment_ms("tomorrow") is None


async def test_lines_are_sent_with_a_time(broker: ScriptedBroker, tmp_path: Path) -> None:
    produce = ("produce", "Reminders", "--timeout", "60", "-q")
    assert (await run(tmp_path, broker, *produce, "--delay", "10m", stdin="a\n"))[0] == 0
    assert (await run(tmp_path, broker, *produce, "--at", "@99999999999999", stdin="b\n"))[0] == 0
    given = '{"body": "c", "deliverAtMs": 5}\n{"body": "d"}\n'
    told = await run(tmp_path, broker, *produce, "--delay", "1s", "--format", "json", stdin=given)
    assert told == (0, "", "")
    found = {}
    for sent in broker.sent:
        names = ("TIMER_DELAY_MS", "TIMER_DELIVER_MS")
        found[sent.body] = tuple(get_property(sent.properties or "", name) for name in names)
    assert found == {
        b"a": ("600000", None),
        b"b": (None, "99999999999999"),
        b"c": (None, "5"),
        b"d": ("1000", None),
    }


async def test_handles_are_printed_and_take_messages_back(broker: ScriptedBroker, tmp_path: Path) -> None:
    broker.answers += [stored(handle("A")), stored(None)]
    code, said, complained = await run(
        tmp_path,
        broker,
        *("produce", "Reminders", "--timeout", "60", "--delay", "2h", "--handles", "--queue", "0"),
        stdin="a\nb\n",
    )
    assert (code, said) == (0, handle("A") + "\n")
    assert "1 of them cannot be taken back" in complained
    broker.answers.append(16)
    code, said, complained = await run(tmp_path, broker, "recall", stdin=f"{handle('B')}\n\n{said}")
    assert (code, said) == (1, "recalled\n")
    assert (
        f"not taken back; {handle('B')}: {broker.address}: code 16: as the script says; does the broker"
        in complained
    )
    assert await run(tmp_path, broker, "recall", "-q", handle("C")) == (0, "", "")
    assert [asked.recall_handle for asked in broker.recalled] == [handle("B"), handle("A"), handle("C")]


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("--delay", "10m", "--at", "2030-12-31"), "give --delay or --at, not both"),
        (("--delay", "10"), "--delay 10: expected a number with a unit"),
        (("--at", "soon"), "--at soon: expected a time"),
        (("--at", "2001-01-01"), "--at 2001-01-01 is in the past"),
    ],
)
async def test_an_unclear_time_is_an_error_of_the_command_line(
    broker: ScriptedBroker, tmp_path: Path, words: tuple[str, ...], problem: str
) -> None:
    code, _, complained = await run(tmp_path, broker, "produce", "Reminders", *words, stdin="x\n")
    assert code == 2
    assert problem in complained
    assert broker.sent == []
