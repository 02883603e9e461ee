"""The options of a command are declared once, in the signature of its function.

`topic: Annotated[str, option("-t --topic", "The topic.")]` is required; a parameter with a default is not. A
default is shown in the help unless it is empty.
"""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import click
import msgspec

from pyromq.admin.attributes import Attribute, AttributeKind, read_changes
from pyromq.protocol.requests.groups import GroupRetryPolicy


def text(value: str) -> str:
    """A text without surrounding spaces; click shows the name of this function in its help."""
    return value.strip()


COUNT = click.IntRange(min=0)
SECONDS = click.FloatRange(min=0, min_open=True)
_READERS = {str: text, int: COUNT, Path: click.Path(path_type=Path)}


def _retry_policy(text: str) -> GroupRetryPolicy:
    try:
        return msgspec.json.decode(text, type=GroupRetryPolicy)
    except msgspec.MsgspecError as problem:
        raise click.BadParameter(f"{text!r} is not a retry policy: {problem}") from problem


PERMISSION = click.IntRange(0, 7)
_KINDS: dict[AttributeKind, dict[str, Any]] = {
    AttributeKind.SWITCH: {"type": bool},
    AttributeKind.COUNT: {"type": COUNT},
    AttributeKind.NUMBER: {"type": int},
    AttributeKind.PERMISSION: {"type": PERMISSION},
    AttributeKind.RETRY_POLICY: {"type": _retry_policy, "metavar": "JSON"},
}


@dataclass(frozen=True, slots=True)
class _Option:
    flags: str
    attributes: dict[str, Any]


@dataclass(frozen=True, slots=True)
class OptionsOf:
    """`settings: Annotated[dict[str, Any], OptionsOf(GROUP)]` has an option for each attribute, and gets the
    fields of the configuration that were chosen."""

    attributes: tuple[Attribute, ...]

    def options(self) -> list[click.Parameter]:
        found: list[click.Parameter] = []
        for each in self._with_options():
            default = each.default if each.option_default is None else each.option_default
            more = {} if default is None else {"default": default, "show_default": bool(default)}
            names = [*each.flags.split(), each.field]
            found.append(click.Option(names, help=each.help, **_KINDS[each.kind], **more))
        return found

    def _with_options(self) -> list[Attribute]:
        return [each for each in self.attributes if each.flags]

    def taken_from(self, given: dict[str, Any]) -> dict[str, Any]:
        chosen = {each.field: given.pop(each.field) for each in self._with_options()}
        return {field: value for field, value in chosen.items() if value is not None}


def attribute_changes(text: str | None) -> dict[str, str]:
    try:
        return read_changes(text)
    except ValueError as problem:
        raise click.BadParameter(str(problem), param_hint="--attributes") from None


def option(flags: str, help: str, type: Any = None, **attributes: Any) -> _Option:
    """An option with a value; `type` reads it, unless the type of the parameter says how."""
    return _Option(flags, {"help": help, "type": type, **attributes})


def flag(flags: str, help: str) -> _Option:
    """An option without a value."""
    return _Option(flags, {"help": help, "is_flag": True})


Topic = Annotated[str, option("-t --topic", "The topic.")]
Broker = Annotated[str | None, option("-b --brokerAddr", "This broker: its address, or its name.")]
# java: some commands call it --cluster
ClusterName = Annotated[str | None, option("-c --clusterName --cluster", "All masters of this cluster.")]
IGNORED = "Ignored; accepted for existing scripts."


def declared_options(function: Callable[..., Any]) -> list[click.Parameter]:
    """The options of a function, in the order of its signature."""
    found: list[click.Parameter] = []
    hints = get_type_hints(function, include_extras=True)
    for name, parameter in inspect.signature(function).parameters.items():
        if get_origin(hints[name]) is Annotated:
            hint, option = get_args(hints[name])
            if isinstance(option, OptionsOf):
                found += option.options()
                continue
            attributes = dict(option.attributes)
            scalar = next((each for each in get_args(hint) if each is not type(None)), hint)
            attributes["type"] = attributes.get("type") or _READERS.get(scalar, scalar)
            if parameter.default is inspect.Parameter.empty:
                attributes["required"] = True
            elif parameter.default is not None:
                attributes |= {"default": parameter.default, "show_default": bool(parameter.default)}
            found.append(click.Option([*option.flags.split(), name], **attributes))
    return found


def arguments(function: Callable[..., Any], given: dict[str, Any]) -> dict[str, Any]:
    """The values of these options, as the function takes them."""
    for name, hint in get_type_hints(function, include_extras=True).items():
        if get_origin(hint) is Annotated and isinstance(get_args(hint)[1], OptionsOf):
            given[name] = get_args(hint)[1].taken_from(given)
    return given
