"""The settings of a server: one frozen dataclass, one line per setting, every other view derived from it."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from types import MappingProxyType
from typing import Any, ClassVar, Self, cast

from pyromq.config.inert import InertKey
from pyromq.config.kinds import Check, kind_like
from pyromq.config.nearest import NearestName
from pyromq.config.options import HIDDEN, Options, Setting


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


@dataclass(frozen=True, slots=True)
class NoEffect(Notice):
    keys: tuple[str, ...]


def no_effect(known: Iterable[Setting]) -> NoEffect:
    """One notice about keys without effect, by reason."""
    by_reason: dict[str, list[str]] = {}
    for each in known:
        by_reason.setdefault(each.sentence, []).append(each.key)
    groups = (f"{', '.join(sorted(keys))} ({reason.rstrip('.')})" for reason, keys in by_reason.items())
    keys = sorted(key for group in by_reason.values() for key in group)
    return NoEffect(f"accepted, but without effect here: {'; '.join(groups)}", tuple(keys))


@dataclass(frozen=True, kw_only=True)
class Settings(Options):
    FROM_TEXT: ClassVar[bool] = True

    PART: ClassVar[str]
    """The name of the part, as in its command and in `PYROMQ_<PART>_…` environment variables."""

    INCLUDED_FILE_KEY: ClassVar[str] = ""
    """The setting, if any, that names one more file to read."""

    INERT: ClassVar[Mapping[str, InertKey]] = MappingProxyType({})
    """Keys of RocketMQ without an effect here."""

    RENAMED: ClassVar[Mapping[str, str]] = MappingProxyType({})
    """Former names of keys, in older files of RocketMQ."""

    inert: Mapping[str, object] = field(default_factory=dict, repr=False)
    """Values of inert keys that are not their defaults."""

    unrecognised: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Unknown keys of the file."""

    @classmethod
    def settings_by_key(cls) -> Mapping[str, Setting]:
        return _with_inert(cls)

    @classmethod
    def find(cls, key: str) -> Setting | None:
        return cls.settings_by_key().get(key)

    def recognises(self, key: str) -> bool:
        """Whether a key is a setting, or stands in our file although it is none."""
        return self.find(key) is not None or key in self.unrecognised

    @classmethod
    def local_keys(cls, keys: Iterable[str]) -> list[str]:
        """The keys among these that cannot be changed over the network."""
        return [key for key in keys if (known := cls.find(key)) is not None and known.is_local]

    def value_of(self, each: Setting) -> object:
        return getattr(self, each.name) if each.name else self.inert.get(each.key, each.default)

    def as_java_dict(self) -> dict[str, str]:
        """Every value as text under its Java key, without secrets and without unset ones."""
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
            shown[each.key] = HIDDEN if each.secret and text else text
        return "".join(f"{key}={shown[key]}\n" for key in sorted(shown))

    def updated(self, changes: Mapping[str, str]) -> Self:
        """These settings with some values replaced; a bad value raises ConfigError and changes nothing.

        java: unknown keys are passed over, and values that need a restart are accepted all the same;
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
        """Notices about keys handed to `updated`: unknown ones, those without effect, and those that wait
        for a restart."""
        remarks: list[Notice] = []
        for key in changes:
            known = self.find(key)
            if known is None:
                remarks.append(unknown_key(type(self), key))
            elif not known.has_effect:
                remarks.append(no_effect([known]))
            elif not known.mutable:
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


_SETTINGS: dict[type[Settings], Mapping[str, Setting]] = {}


def _with_inert(part: type[Settings]) -> Mapping[str, Setting]:
    """Worked out once for each part."""
    if part not in _SETTINGS:
        declared = super(Settings, part).settings_by_key()
        inert = {key: _inert(key, each) for key, each in part.INERT.items() if key not in declared}
        _SETTINGS[part] = {**declared, **inert}
    return _SETTINGS[part]


def _inert(key: str, inert: InertKey) -> Setting:
    kind = kind_like(inert.default)
    default = kind.parse(inert.default)
    check: Check[object] | None = None
    if inert.is_refused:
        kind = replace(kind, expected=f"{inert.default or 'nothing'}, because {inert.reason}")
        check = Check("", lambda value: value == default)
    # Those without a default are paths, addresses and names of classes.
    is_local = inert.default == "" or _LOCAL_NAME.search(key) is not None
    return Setting(default, inert.reason, key, check=check, has_effect=False, local=is_local, kind=kind)
