"""The commands of `mqadmin` as one program, with Apache's names and flags; a failure is one line."""

from typing import Any

import click

from pyromq.cli.mqadmin.commands import ABSENT, NOUNS
from pyromq.cli.tree import LazyCommand, LazyGroup
from pyromq.errors import PyroError

_HERE = "pyromq.cli.mqadmin"
_INTERRUPTED = 130


def attribute_of(command: str) -> str:
    """The name in Python of a command: `queryMsgById` is `query_msg_by_id`."""
    words = "".join(f"_{each.lower()}" if each.isupper() else each for each in command)
    for name, attribute in (("_c_q", "_cq"), ("_r_t", "_rt"), ("_m_q", "_mq")):
        words = words.replace(name, attribute)
    return words


_SENTENCES = {name: sentence for _, commands in NOUNS.values() for name, sentence in commands.items()}
_WHY_ABSENT = {name.lower(): reason for name, reason in ABSENT.items()}


class AdminGroup(LazyGroup):
    """`mqadmin help COMMAND` works as well as `mqadmin COMMAND -h`."""

    def __init__(self) -> None:
        super().__init__(
            "mqadmin",
            "Inspect and change a running cluster, PyroMQ's or Apache's.\n\n"
            "Every command takes -n HOST:PORT, the address of a name server (several are separated by `;`);"
            " NAMESRV_ADDR in the environment sets the default. --json prints JSON for scripts.",
            {
                name: LazyCommand(f"{_HERE}.{module}", attribute_of(name), sentence)
                for module, (_, commands) in NOUNS.items()
                for name, sentence in commands.items()
            },
        )

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return _help if cmd_name == "help" else super().get_command(ctx, cmd_name)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if not ctx.resilient_parsing and name != "help" and name not in _SENTENCES:
            # java: upper and lower case make no difference
            others = {known.lower(): known for known in _SENTENCES}
            if name.lower() not in others:
                if reason := _WHY_ABSENT.get(name.lower()):
                    raise click.UsageError(f"PyroMQ's mqadmin does not have {name}: {reason}", ctx)
                from pyromq.admin.failures import nearest  # help imports nothing of the cluster

                hint = "; " + nearest(name, _SENTENCES, "`mqadmin help` lists all commands")
                raise click.UsageError(f"unknown command {name}{hint}", ctx)
            args = [others[name.lower()], *args[1:]]
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            raise click.exceptions.Exit(_INTERRUPTED) from None
        except click.ClickException as failure:
            problem = failure.__cause__
            if isinstance(problem, PyroError) and failure.message == str(problem):
                from pyromq.cli.mqadmin.advice import with_advice
                from pyromq.cli.mqadmin.running import ACCESS

                raise click.ClickException(with_advice(problem, **ctx.meta.get(ACCESS, {}))) from problem
            raise

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for title, commands in NOUNS.values():
            with formatter.section(title):
                formatter.write_dl(sorted(commands.items()))


@click.command("help")
@click.argument("command", required=False)
@click.option("--markdown", is_flag=True, help="Print the reference page of all commands.")
@click.pass_context
def _help(ctx: click.Context, command: str | None, markdown: bool) -> None:
    """Explain a command."""
    group_context = ctx.parent
    assert group_context is not None
    group = group_context.command
    assert isinstance(group, AdminGroup)
    if markdown:
        from pyromq.cli.mqadmin import reference

        click.echo(reference.markdown(group, NOUNS), nl=False)
        return
    if command is None:
        click.echo(group.get_help(group_context))
        return
    name, found, _ = group.resolve_command(group_context, [command])
    assert found is not None
    with click.Context(found, info_name=name, parent=group_context) as explained:
        click.echo(found.get_help(explained))


mqadmin = AdminGroup()
