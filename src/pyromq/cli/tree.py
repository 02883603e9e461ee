"""A command group that imports a command only when it runs, so that help stays fast."""

import importlib
from dataclasses import dataclass
from typing import Any

import click

from pyromq.cli.version import version_option
from pyromq.errors import PyroError


@dataclass(frozen=True, slots=True)
class LazyCommand:
    """The module of a command, and its sentence in the help."""

    module: str
    attribute: str
    sentence: str

    def load(self) -> click.Command:
        command = getattr(importlib.import_module(self.module), self.attribute)
        assert isinstance(command, click.Command)
        return command


class LazyGroup(click.Group):
    def __init__(self, name: str, sentence: str, commands: dict[str, LazyCommand]) -> None:
        super().__init__(
            name,
            help=sentence,
            context_settings={"help_option_names": ["-h", "--help"]},
            no_args_is_help=True,
            params=[version_option()],
        )
        self._lazy = commands

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(self._lazy)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        lazy = self._lazy.get(cmd_name)
        return with_version(lazy.load()) if lazy else None

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except PyroError as error:
            raise click.ClickException(str(error)) from error

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, self._lazy[name].sentence) for name in self.list_commands(ctx)])


def with_version(command: click.Command) -> click.Command:
    """The command, and those below it, with `--version`."""
    for below in command.commands.values() if isinstance(command, click.Group) else ():
        with_version(below)
    if not any("--version" in param.opts for param in command.params):
        command.params.append(version_option(hidden=True))
    return command
