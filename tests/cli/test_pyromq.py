"""The command tree as a person meets it."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from pyromq import __version__
from pyromq.apps import broker, namesrv
from pyromq.apps.pyromq import COMMANDS

ROOT = Path(__file__).parents[2]
NAMES = ("broker", "config", "namesrv", "standalone", "store", "version")


def test_help_lists_every_command_and_imports_none() -> None:
    script = (
        "import sys\n"
        "from pyromq.apps.pyromq import main\n"
        "sys.argv = ['pyromq', '--help']\n"
        "try:\n    main()\n"
        "except SystemExit as ended:\n    assert ended.code == 0\n"
        "heavy = {'rich', 'asyncio', 'msgspec', 'pyromq.store', 'pyromq.nameserver', 'pyromq.broker'}\n"
        "sys.exit(f'imported {heavy & set(sys.modules)}' if heavy & set(sys.modules) else 0)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    for name in NAMES:
        assert f"\n  {name} " in done.stdout


def test_every_listed_command_can_be_loaded_and_explains_itself() -> None:
    runner = CliRunner()
    for name in NAMES:
        outcome = runner.invoke(COMMANDS, [name, "--help"])
        assert outcome.exit_code == 0, outcome.output
        assert outcome.output.startswith(f"Usage: pyromq {name}")


def test_the_module_is_the_command() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pyromq", "version"], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.startswith(f"pyromq {__version__} on Python ")


def commands_below(group: click.Group, *path: str) -> Iterator[tuple[str, ...]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        yield (*path, name)
        if isinstance(command, click.Group):
            yield from commands_below(command, *path, name)


def test_every_command_knows_its_version() -> None:
    runner = CliRunner()
    for root in (COMMANDS, namesrv.command, broker.command):
        below = commands_below(root) if isinstance(root, click.Group) else ()
        for arguments in [(), *below]:
            outcome = runner.invoke(root, [*arguments, "--version"])
            assert outcome.exit_code == 0, (root.name, arguments, outcome.output)
            assert outcome.output.startswith(f"pyromq {__version__} on Python "), arguments


def test_an_unknown_command_is_one_clear_error() -> None:
    outcome = CliRunner().invoke(COMMANDS, ["nmesrv"])
    assert outcome.exit_code == 2
    assert "No such command 'nmesrv'" in outcome.output


@pytest.mark.parametrize("part", ["namesrv", "broker", "store"])
def test_the_reference_page_of_each_part_is_fresh(part: str) -> None:
    outcome = CliRunner().invoke(COMMANDS, ["config", part, "--markdown"])
    assert outcome.exit_code == 0
    assert outcome.output == (ROOT / "docs" / "reference" / f"{part}-settings.md").read_text()


@pytest.mark.parametrize(
    ("file", "parts"), [("namesrv.conf", ["namesrv"]), ("broker.conf", ["broker", "store"])]
)
def test_the_example_files_are_fresh(file: str, parts: list[str]) -> None:
    examples = []
    for part in parts:
        outcome = CliRunner().invoke(COMMANDS, ["config", part, "--example"])
        assert outcome.exit_code == 0
        examples.append(outcome.output)
    assert "\n".join(examples) == (ROOT / "conf" / file).read_text()


def test_config_prints_a_table_by_default() -> None:
    outcome = CliRunner(env={"COLUMNS": "200"}).invoke(COMMANDS, ["config", "namesrv"])
    assert outcome.exit_code == 0
    assert "listenPort" in outcome.output
    assert "serverWorkerThreads" not in outcome.output


def test_every_command_that_reaches_a_cluster_takes_the_same_keys_and_trust() -> None:
    servers = {("broker",), ("controller",), ("namesrv",), ("proxy",), ("standalone",)}
    seen = 0
    for path in commands_below(COMMANDS):
        command: click.Command = COMMANDS
        for name in path:
            assert isinstance(command, click.Group)
            found = command.get_command(click.Context(command), name)
            assert found is not None
            command = found
        options = {option for each in command.params for option in each.opts}
        if path not in servers and options & {"-n", "--key-file"}:
            assert {"--key-file", "--tls-trust"} <= options, path
            text = " ".join(command.get_help(click.Context(command)).split())
            assert {"PYROMQ_KEY_FILE", "PYROMQ_TLS_TRUST"} <= set(re.findall(r"PYROMQ_\w+", text)), path
            seen += 1
    assert seen > 100
