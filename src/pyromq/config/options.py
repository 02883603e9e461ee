"""One line per option, for servers, clients and Spark: a frozen dataclass with fields made by `setting()`.

The line holds the default, what the option means and which values it takes. Parsing, checks, errors and the
tables in the documentation are derived from it.
"""

import typing
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar, TypeVar, cast

from pyromq.config.kinds import HOST, PORT, TEXT, BadValue, Check, Kind, expand_path, kind_of
from pyromq.errors import ConfigError

T = TypeVar("T")

_METADATA = "pyromq.setting"
HIDDEN = "******"


@dataclass(frozen=True, slots=True)
class Setting:
    """One option. The line that declares it leaves `name` and `kind` to the dataclass field around it.

    One without a name has no field: its value, if one was given, is among the inert ones.
    """

    default: object
    sentence: str
    key: str = ""
    mutable: bool = False
    check: Check[Any] | None = None
    environment: str | None = None
    has_effect: bool = True
    secret: bool = False
    local: bool = False
    only: str = ""
    alias: str = ""
    name: str = ""
    kind: Kind = TEXT

    @property
    def is_local(self) -> bool:
        """Whether it is set on the machine alone, and never over the network.

        A caller who could choose the files a server reads and writes, or its addresses, could take it over.
        """
        return (
            self.local
            or self.secret
            or self.kind.is_path
            or self.check in (PORT, HOST)
            or self.key.startswith("tls.")
        )

    @property
    def expected(self) -> str:
        limit = f" {self.check.expected}" if self.check else ""
        return f"{self.kind.expected}{limit}{self.kind.hint}".strip()

    @property
    def default_text(self) -> str:
        return self.kind.render(self.default)

    def parse(self, text: str) -> object:
        try:
            value = self.kind.parse(text.strip())
        except BadValue as problem:
            raise self.refusal(text, f"{self.expected} ({problem})") from None
        except ValueError:
            raise self.refusal(text) from None
        self.verify(value)
        return value

    def verify(self, value: object) -> None:
        """Raise ConfigError unless the option may have this value."""
        if value is None and self.kind.allows_none:
            return
        if not self.kind.fits(value):
            raise self.refusal(repr(value))
        if self.check is not None and not self.check.accepts(value):
            raise self.refusal(self.kind.render(value))

    def refusal(self, value: object, expected: str = "") -> ConfigError:
        return ConfigError(self.key, HIDDEN if self.secret else value, expected or self.expected)


def setting(
    default: T,
    sentence: str,
    *,
    key: str = "",
    mutable: bool = False,
    check: Check[Any] | None = None,
    environment: str | None = None,
    has_effect: bool = True,
    secret: bool = False,
    local: bool = False,
    only: str = "",
    alias: str = "",
) -> T:
    """Declare one option.

    `key` is its name outside Python, unless it follows from the field's; `alias` is a second one.
    `environment` is a variable that RocketMQ users already know. `mutable` settings act while the server
    runs. Those without effect are read and checked for the sake of existing files. Secrets are never shown
    and never leave over the network. `local` settings cannot be changed over the network; paths, ports,
    hosts, secrets and all of TLS are local in any case. `only` names the uses that an option is limited to.
    """
    line = Setting(
        default, sentence, key, mutable, check, environment, has_effect, secret, local, only, alias
    )
    metadata = {_METADATA: line}
    if isinstance(default, Path):  # the home directory is looked up at use, not at import
        return cast(T, field(default_factory=lambda: expand_path(default), metadata=metadata))
    return field(default=default, metadata=metadata, repr=not secret)


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Values that are checked when they are put together; a bad one raises ConfigError."""

    FROM_TEXT: ClassVar[bool] = False
    """Whether values come as text, under camelCase keys; else they come in code, under the fields' names."""

    def __post_init__(self) -> None:
        for each in self.all_settings():
            each.verify(self.value_of(each))
        self.verify_together()

    def verify_together(self) -> None:
        """Rules about several settings at once; raises ConfigError."""

    @classmethod
    def all_settings(cls) -> tuple[Setting, ...]:
        """Every setting, in the order of its declaration."""
        return tuple(cls.settings_by_key().values())

    @classmethod
    def settings_by_key(cls) -> Mapping[str, Setting]:
        return _declared(cls)

    def value_of(self, each: Setting) -> object:
        return getattr(self, each.name)


_DECLARED: dict[type[Options], Mapping[str, Setting]] = {}


def _declared(options: type[Options]) -> Mapping[str, Setting]:
    """Worked out once for each class."""
    if options not in _DECLARED:
        _DECLARED[options] = MappingProxyType(_work_out(options))
    return _DECLARED[options]


def _work_out(options: type[Options]) -> dict[str, Setting]:
    hints = typing.get_type_hints(options, include_extras=True)
    found: dict[str, Setting] = {}
    for each in fields(options):
        line: Setting | None = each.metadata.get(_METADATA)
        if line is not None:
            key = line.key or (_camel_case(each.name) if options.FROM_TEXT else each.name)
            kind = kind_of(hints[each.name], in_code=not options.FROM_TEXT)
            found[key] = replace(line, name=each.name, key=key, kind=kind)
    return found


def _camel_case(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(word[:1].upper() + word[1:] for word in others)
