"""The command tree of mqadmin: help, completion, the reference page, and how little it imports."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Coroutine
from pathlib import Path

import pytest
from click.testing import CliRunner

from pyromq.cli.mqadmin.commands import ABSENT, NOUNS
from pyromq.cli.mqadmin.reference import markdown
from pyromq.cli.mqadmin.tree import attribute_of, mqadmin
from pyromq.testing import cluster

ROOT = Path(__file__).parents[2]
COMMANDS = [name for _, commands in NOUNS.values() for name in commands]


def test_no_command_is_there_and_said_to_be_missing() -> None:
    assert not ABSENT.keys() & set(COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_explains_itself_and_takes_the_common_options(name: str) -> None:
    done = CliRunner().invoke(mqadmin, [name, "-h"], prog_name="mqadmin")
    assert done.exit_code == 0, done.output
    assert done.output.startswith(f"Usage: mqadmin {name}")
    for option in ("--namesrvAddr", "--json", "--timeout"):
        assert option in done.output


def test_help_of_a_command_can_be_asked_for_as_apache_does() -> None:
    runner = CliRunner()
    asked = runner.invoke(mqadmin, ["help", "topicList"], prog_name="mqadmin").output
    assert asked == runner.invoke(mqadmin, ["topicList", "-h"], prog_name="mqadmin").output
    whole = runner.invoke(mqadmin, ["help"], prog_name="mqadmin").output
    assert "Consumer groups:" in whole
    assert all(f"  {name} " in whole for name in COMMANDS)


def test_case_makes_no_difference_in_the_name_of_a_command() -> None:
    done = CliRunner().invoke(mqadmin, ["TOPICLIST", "-h"], prog_name="mqadmin")
    assert (done.exit_code, done.output.splitlines()[0]) == (0, "Usage: mqadmin topicList [OPTIONS]")


def test_names_in_python_follow_from_names_of_commands() -> None:
    assert [attribute_of(name) for name in ("queryMsgById", "cleanExpiredCQ", "clusterRT", "allocateMQ")] == [
        "query_msg_by_id",
        "clean_expired_cq",
        "cluster_rt",
        "allocate_mq",
    ]


def test_the_reference_page_is_fresh() -> None:
    written = (ROOT / "docs/reference/mqadmin.md").read_text()
    assert written == markdown(mqadmin, NOUNS), "run `make docs`"
    assert CliRunner().invoke(mqadmin, ["help", "--markdown"]).output == written


def _run(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    script = "from pyromq.apps.mqadmin import main; main()"
    return subprocess.run(
        [sys.executable, "-c", script, *words],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=os.environ | environment,
    )


def test_help_imports_neither_network_nor_tables() -> None:
    script = (
        "import sys\n"
        "from pyromq.apps.mqadmin import main\n"
        "sys.argv = ['mqadmin', 'help']\n"
        "try:\n    main()\n"
        "except SystemExit as ended:\n    assert ended.code == 0\n"
        "heavy = {'rich', 'asyncio', 'msgspec', 'ssl', 'pyromq.admin'} & set(sys.modules)\n"
        "sys.exit(f'imported {heavy}' if heavy else 0)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_the_shell_completes_commands_and_options() -> None:
    done = _run(_MQADMIN_COMPLETE="bash_complete", COMP_WORDS="mqadmin topicSt", COMP_CWORD="1")
    assert "topicStatus" in done.stdout
    assert "updateTopic" not in done.stdout
    done = _run(_MQADMIN_COMPLETE="bash_complete", COMP_WORDS="mqadmin topicStatus --wa", COMP_CWORD="2")
    assert "--watch" in done.stdout


def test_the_program_answers_from_a_shell(tmp_path: Path) -> None:
    with cluster(tmp_path) as running:
        done = _run("topicList", NAMESRV_ADDR=running.namesrv)
        assert (done.returncode, done.stderr) == (0, "")
        assert "broker-a" in done.stdout.splitlines()
        watched = _run(
            "brokerStatus", "-b", "broker-a", "--watch", "0.01", "--rounds", "2", "-n", running.namesrv
        )
        assert watched.stdout.count("#In Trend") == 2
    done = _run("topicList", "-n", "127.0.0.1:1")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("place", ["pyromq.cli.tree.LazyCommand.load", "asyncio.run"])
def test_an_interrupt_ends_it_without_a_word(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(started: object) -> None:
        if isinstance(started, Coroutine):
            started.close()
        raise KeyboardInterrupt

    monkeypatch.setattr(place, interrupt)
    done = CliRunner().invoke(mqadmin, ["topicList", "-n", "127.0.0.1:1"])
    assert (done.exit_code, done.output) == (130, "")


async def test_whoever_speaks_another_language_is_told_of_once() -> None:
    async def greet(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(greet, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        done = await asyncio.to_thread(_run, "topicList", "-n", f"127.0.0.1:{port}")
    assert done.returncode == 1
    assert done.stderr.startswith("Error: no name server answers")
    assert done.stderr.count("\n") == 1
