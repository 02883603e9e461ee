"""One frozen dataclass per part, one line per setting; every other view is derived from that line."""

import re
import typing
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar, Self, TypeVar, cast

from pyromq.config import properties
from pyromq.config.kinds import HOST, PORT, TEXT, Check, Kind, expand_path, kind_like, kind_of
from pyromq.config.nearest import NearestName
from pyromq.errors import ConfigError

T = TypeVar("T")

_METADATA = "pyromq.setting"
_HIDDEN = "******"


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting. The line that declares it leaves `name` and `kind` to the dataclass field around it.

    One without a name has no field: its value, if one was given, is among the inert ones.
    """

    default: object
    sentence: str
    key: str
    mutable: bool
    check: Check[Any] | None
    environment: str | None
    has_effect: bool
    secret: bool
    local: bool
    name: str = ""
    kind: Kind = TEXT

    @property
    def is_local(self) -> bool:
        """Whether it is set on the machine alone, and never over the network.

        Whoever could say which files a server reads and writes, or where it listens and whom it asks, could
        take it over.
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
        return f"{self.kind.expected}{limit}{self.kind.hint}"

    @property
    def default_text(self) -> str:
        return self.kind.render(self.default)

    def parse(self, text: str) -> object:
        try:
            value = self.kind.parse(text.strip())
        except ValueError:
            raise ConfigError(self.key, _HIDDEN if self.secret else text, self.expected) from None
        self.verify(value)
        return value

    def verify(self, value: object) -> None:
        if self.check is not None and value is not None and not self.check.accepts(value):
            raise ConfigError(self.key, _HIDDEN if self.secret else value, self.expected)


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
) -> T:
    """Declare one setting.

    `key` is its name in files (the camelCase of the field unless said otherwise), `environment` a variable
    that RocketMQ users already know. `mutable` settings act while the server runs. Those without effect are
    read and checked for the sake of existing files. Secrets never leave over the network. Nobody changes
    `local` settings over the network; paths, ports, hosts, secrets and all of TLS are local in any case.
    """
    line = Setting(default, sentence, key, mutable, check, environment, has_effect, secret, local)
    metadata = {_METADATA: line}
    if isinstance(default, Path):  # the home directory is looked up at use, not at import
        return cast(T, field(default_factory=lambda: expand_path(default), metadata=metadata))
    return field(default=default, metadata=metadata)


@dataclass(frozen=True, slots=True)
class Notice:
    """Something about the settings that the operator should read; it stops nothing."""

    sentence: str

    def __str__(self) -> str:
        return self.sentence


@dataclass(frozen=True, slots=True)
class UnknownKey(Notice):
    key: str
    nearest: str | None


@dataclass(frozen=True, slots=True)
class NeedsRestart(Notice):
    key: str


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What every part's settings have in common."""

    PART: ClassVar[str]
    """The name of the part, as in its command and in `PYROMQ_<PART>_…` environment variables."""

    INCLUDED_FILE_KEY: ClassVar[str] = ""
    """The setting, if any, that names one more file to read."""

    INERT: ClassVar[Mapping[str, str]] = MappingProxyType({})
    """Keys of RocketMQ without an effect here, each with its default; their kind is that of the default."""

    inert: Mapping[str, object] = field(default_factory=dict, repr=False)
    """Values of inert keys that are not their defaults."""

    unrecognised: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Keys of the file that mean nothing to us; kept so that writing the file again loses nothing."""

    file_keys: frozenset[str] = field(default=frozenset(), repr=False)
    """The keys that came from a file."""

    def __post_init__(self) -> None:
        for each in self.all_settings():
            each.verify(self.value_of(each))
        self.verify_together()

    def verify_together(self) -> None:
        """Rules about several settings at once; raises ConfigError."""

    @classmethod
    def all_settings(cls) -> tuple[Setting, ...]:
        """Every setting, in the order of its declaration."""
        return tuple(_settings_of(cls).values())

    @classmethod
    def find(cls, key: str) -> Setting | None:
        return _settings_of(cls).get(key)

    def recognises(self, key: str) -> bool:
        """Whether a key is a setting, or stands in our file although it is none."""
        return self.find(key) is not None or key in self.unrecognised

    @classmethod
    def local_keys(cls, keys: Iterable[str]) -> list[str]:
        """Those of the keys that nobody may change over the network."""
        return [key for key in keys if (known := cls.find(key)) is not None and known.is_local]

    def value_of(self, each: Setting) -> object:
        return getattr(self, each.name) if each.name else self.inert.get(each.key, each.default)

    def as_java_dict(self) -> dict[str, str]:
        """Every value as text under its Java key, without secrets and without what is unset."""
        shown = {
            each.key: each.kind.render(value)
            for each in self.all_settings()
            if not each.secret and (value := self.value_of(each)) is not None
        }
        return {**self.unrecognised, **shown}

    def describe(self) -> str:
        """Every setting as `key=value`, one a line, sorted; secrets are masked."""
        shown = dict(self.unrecognised)
        for each in self.all_settings():
            text = each.kind.render(self.value_of(each))
            shown[each.key] = _HIDDEN if each.secret and text else text
        return "".join(f"{key}={shown[key]}\n" for key in sorted(shown))

    def to_properties_text(self) -> str:
        """The file that gives these settings again.

        A secret goes back into the file it came from, and nowhere else.
        """
        secrets = {
            each.key: each.kind.render(self.value_of(each))
            for each in self.all_settings()
            if each.secret and each.key in self.file_keys
        }
        return properties.render({**self.as_java_dict(), **secrets})

    def updated(self, changes: Mapping[str, str]) -> Self:
        """These settings with some values replaced; a bad value raises ConfigError and changes nothing.

        java: keys nobody knows are passed over, and values that need a restart are taken all the same;
        `remarks_on` names both.
        """
        values: dict[str, object] = {}
        inert = dict(self.inert)
        unrecognised = dict(self.unrecognised)
        for key, text in changes.items():
            known = self.find(key)
            if known is None:
                if key in unrecognised:
                    unrecognised[key] = text
            elif known.name:
                values[known.name] = known.parse(text)
            else:
                inert[key] = known.parse(text)
        return replace(self, inert=inert, unrecognised=unrecognised, **cast(dict[str, Any], values))

    def remarks_on(self, changes: Iterable[str]) -> list[Notice]:
        """What to tell about keys handed to `updated`: unknown ones, and those that wait for a restart."""
        remarks: list[Notice] = []
        for key in changes:
            known = self.find(key)
            if known is None:
                remarks.append(unknown_key(type(self), key))
            elif not known.mutable and known.has_effect:
                remarks.append(NeedsRestart(f"{key} takes effect after a restart", key))
        return remarks


def environment_variable(part: type[Settings], key: str) -> str:
    """PYROMQ_NAMESRV_LISTEN_PORT for listenPort."""
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|\.", "_", key)
    return f"PYROMQ_{part.PART}_{words}".upper()


def unknown_key(parts: type[Settings] | Iterable[type[Settings]], key: str, source: str = "") -> UnknownKey:
    nearest = _names_of((parts,) if isinstance(parts, type) else tuple(parts)).find(key)
    sentence = f"unknown setting {key}"
    if source:
        sentence += f" from {source}"
    if nearest:
        sentence += f"; did you mean {nearest}?"
    return UnknownKey(sentence, key, nearest)


@cache
def _names_of(parts: tuple[type[Settings], ...]) -> NearestName:
    """Every way to spell a setting of these parts."""
    keys = [(part, known.key) for part in parts for known in part.all_settings()]
    return NearestName([*(key for _, key in keys), *(environment_variable(part, key) for part, key in keys)])


_LOCAL_NAME = re.compile("Path|Addr|Host|Port|Proxy|TLS|[aA]uth")


_SETTINGS: dict[type[Settings], dict[str, Setting]] = {}


def _settings_of(part: type[Settings]) -> dict[str, Setting]:
    """The settings of a part by key; worked out once."""
    if part not in _SETTINGS:
        hints = typing.get_type_hints(part, include_extras=True)
        _SETTINGS[part] = {}
        for each in fields(part):
            line: Setting | None = each.metadata.get(_METADATA)
            if line is not None:
                key = line.key or _camel_case(each.name)
                _SETTINGS[part][key] = replace(line, name=each.name, key=key, kind=kind_of(hints[each.name]))
        for key, default in part.INERT.items():
            if key not in _SETTINGS[part]:
                _SETTINGS[part][key] = _inert(key, default)
    return _SETTINGS[part]


def _inert(key: str, default: str) -> Setting:
    kind = kind_like(default)
    return Setting(
        default=kind.parse(default),
        sentence="",
        key=key,
        mutable=False,
        check=None,
        environment=None,
        has_effect=False,
        secret=False,
        # Those without a default are paths, addresses and names of classes.
        local=default == "" or _LOCAL_NAME.search(key) is not None,
        kind=kind,
    )


def _camel_case(name: str) -> str:
    return re.sub(r"_([a-z0-9])", lambda match: match[1].upper(), name)
