"""Settings from layers of text: later layers win, a bad value stops all, an unknown key is a notice.

A variable that several programs share, such as NAMESRV_ADDR, is a default: a settings file wins over it,
because the file was written for this server. A variable of one program, such as PYROMQ_BROKER_…, wins over
the file.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Generic, TypeVar, cast

from pyromq.config import properties
from pyromq.config.kinds import expand_path
from pyromq.config.options import Setting
from pyromq.config.settings import Notice, Settings, environment_variable, no_effect, unknown_key
from pyromq.errors import ConfigError

S = TypeVar("S", bound=Settings)

MAX_UNKNOWN_NOTICES = 16
"""This many unknown keys of a source get a notice each; the others are only counted."""


@dataclass(frozen=True, slots=True)
class Layer:
    """Values from one source. A quiet layer draws no notices: its values were not meant for us alone."""

    source: str
    values: Mapping[str, str]
    is_file: bool = False
    is_default: bool = False
    quiet: bool = False


@dataclass(frozen=True, slots=True)
class Loaded(Generic[S]):
    settings: S
    notices: tuple[Notice, ...]


def file_layer(path: Path) -> Layer:
    return Layer(str(path), properties.read(path), is_file=True)


def environment_layers(part: type[Settings], environ: Mapping[str, str]) -> list[Layer]:
    """The shared variables that RocketMQ's users know as defaults, then those of this program."""
    by_variable = {environment_variable(part, each.key): each.key for each in part.all_settings()}
    prefix = environment_variable(part, "")
    shared = [
        Layer(each.environment, {each.key: environ[each.environment]}, is_default=True, quiet=True)
        for each in part.all_settings()
        if each.environment is not None and environ.get(each.environment)
    ]
    ours = {by_variable.get(name, name): text for name, text in environ.items() if name.startswith(prefix)}
    return [*shared, Layer("the environment", ours)]


def load(part: type[S], layers: Sequence[Layer]) -> Loaded[S]:
    """Settings from their defaults and these layers, the last of them strongest."""
    notices: list[Notice] = []
    layers = [_with_new_names(part, each, notices) for each in _in_order(part, layers)]
    notices += _unused_variables(part, layers)
    values: dict[str, object] = {}
    inert: dict[str, object] = {}
    unrecognised: dict[str, str] = {}
    without_effect: dict[str, Setting] = {}
    for layer in layers:
        unknown = 0
        for key, text in layer.values.items():
            known = part.find(key)
            if known is None:
                unknown += 1
                if unknown <= MAX_UNKNOWN_NOTICES:
                    notices.append(unknown_key(part, key, layer.source))
                if layer.is_file:
                    unrecognised[key] = text
                continue
            try:
                value = known.parse(text)
            except ConfigError as error:
                error.add_note(f"from {layer.source}")
                raise
            if known.name:
                values[known.name] = value
            else:
                inert[key] = value
            if not known.has_effect and not layer.quiet:
                without_effect[key] = known
        if unknown > MAX_UNKNOWN_NOTICES:
            notices.append(
                Notice(f"{unknown - MAX_UNKNOWN_NOTICES} more unknown settings from {layer.source}")
            )
    if without_effect:
        notices.append(no_effect(without_effect.values()))
    settings = part(
        inert=inert,
        unrecognised=unrecognised,
        **cast(dict[str, Any], values),
    )
    return Loaded(settings, tuple(notices))


def _with_new_names(part: type[Settings], layer: Layer, notices: list[Notice]) -> Layer:
    """The layer with each former name of a key replaced; a value under the new name counts more."""
    former = [key for key in layer.values if key in part.RENAMED]
    if not former:
        return layer
    values = {part.RENAMED[key]: layer.values[key] for key in former}
    notices += [Notice(f"{key} from {layer.source} is read as {part.RENAMED[key]}") for key in former]
    values |= {key: text for key, text in layer.values.items() if key not in part.RENAMED}
    return replace(layer, values=values)


def _in_order(part: type[Settings], layers: Sequence[Layer]) -> list[Layer]:
    """Defaults, files, the file that a setting names if it exists, and everything else."""
    defaults = [layer for layer in layers if layer.is_default]
    files = [layer for layer in layers if layer.is_file]
    others = [layer for layer in layers if not (layer.is_file or layer.is_default)]
    including = part.find(part.INCLUDED_FILE_KEY)
    if including is not None:
        named = [layer.values[including.key] for layer in layers if including.key in layer.values]
        path = expand_path((named or [including.default_text])[-1].strip())
        if path.is_file():
            # Not marked as a file: we never write its values back.
            files.append(Layer(str(path), properties.read(path)))
    return [*defaults, *files, *others]


def _unused_variables(part: type[Settings], layers: Sequence[Layer]) -> Iterator[Notice]:
    """A notice for each shared variable that a file overrides with another value."""
    for default in layers:
        if not default.is_default:
            continue
        for key, text in default.values.items():
            known = part.find(key)
            for file in (layer for layer in layers if layer.is_file and key in layer.values):
                if known is not None and known.has_effect and file.values[key].strip() != text.strip():
                    shown = "another value" if known.secret else text
                    yield Notice(f"{key} from {file.source} is used; {default.source} says {shown}")
