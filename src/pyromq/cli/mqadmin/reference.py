"""The commands as people read them: one page, derived from the command tree alone."""

from collections.abc import Mapping

import click

_OPENING = """\
# mqadmin

Derived from the command tree by `mqadmin help --markdown`; edit the commands, not this page.
[How to use it](../howto/admin.md) shows what daily work looks like.

Names and flags are Apache's. `*` marks an option that must be given. A broker is named by its address or its
name. Every command also takes:

"""

Nouns = Mapping[str, tuple[str, Mapping[str, str]]]
"""For each noun its title, and its commands with what they do."""

_VALUES = {"integer range": "number", "integer": "number", "float range": "number", "boolean": "true/false"}


def markdown(group: click.Group, nouns: Nouns) -> str:
    """The reference page."""
    with click.Context(group, info_name="mqadmin") as context:
        commands = {
            name: _command(group, context, name) for _, commands in nouns.values() for name in commands
        }
    common = _common_options(commands)
    lines = [_OPENING + "\n".join(_table(common))]
    for title, names in nouns.values():
        lines += ["", f"## {title}"]
        for name in names:
            lines += ["", f"### {name}", "", _sentence(commands[name])]
            own = [row for row in _options(commands[name]) if row not in common]
            if own:
                lines += ["", *_table(own)]
    return "\n".join(lines) + "\n"


def _command(group: click.Group, context: click.Context, name: str) -> click.Command:
    command = group.get_command(context, name)
    assert command is not None
    return command


def _common_options(commands: dict[str, click.Command]) -> list[tuple[str, str]]:
    first, *others = [_options(command) for command in commands.values()]
    return [row for row in first if all(row in options for options in others)]


def _sentence(command: click.Command) -> str:
    return " ".join((command.help or "").split())


def _options(command: click.Command) -> list[tuple[str, str]]:
    options = [parameter for parameter in command.params if isinstance(parameter, click.Option)]
    return [(_named(option), _explained(option)) for option in options]


def _named(option: click.Option) -> str:
    names = " ".join(f"`{name}`" for name in option.opts)
    value = "" if option.is_flag else f" {option.metavar or _VALUES.get(option.type.name, option.type.name)}"
    return names + value + (" *" if option.required else "")


def _explained(option: click.Option) -> str:
    text = (option.help or "").replace("  [", " [")
    if isinstance(option.type, click.Choice):
        text = f"{text} One of {', '.join(map(str, option.type.choices))}.".strip()
    if option.show_default and option.default is not None and not option.is_flag:
        text = f"{text} Default {option.default}.".strip()
    return text.replace("|", "\\|")


def _table(rows: list[tuple[str, str]]) -> list[str]:
    return ["| option | meaning |", "|---|---|", *(f"| {name} | {text} |" for name, text in rows)]
