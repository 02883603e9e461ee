"""Reading and changing the settings of a running server, as every server does it over the network."""

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Protocol, Self, TypeVar

from pyromq.config.changes import not_over_the_network, parse_changes, summary
from pyromq.config.settings import Notice
from pyromq.config.settings_file import SettingsFile
from pyromq.errors import ConfigError, Refused, StoreError
from pyromq.protocol.codes import ResponseCode
from pyromq.protocol.requests.settings import ChangedSettingsAnswer
from pyromq.remoting.routing import Caller

_log = logging.getLogger(__name__)


class Changeable(Protocol):
    """`Settings`, or the two parts of a broker's."""

    @property
    def unchangeable_keys(self) -> frozenset[str]: ...
    def as_java_dict(self) -> dict[str, str]: ...
    def recognises(self, key: str) -> bool: ...
    def local_keys(self, keys: Iterable[str], /) -> list[str]: ...
    def updated(self, changes: Mapping[str, str]) -> Self: ...
    def remarks_on(self, changes: Iterable[str]) -> list[Notice]: ...


C = TypeVar("C", bound=Changeable)


def settings_text(settings: Changeable) -> str:
    """java: tools read plain `key=value` lines, without the escapes of a properties file"""
    values = settings.as_java_dict()
    return "".join(f"{key}={values[key]}\n" for key in sorted(values))


async def change_settings(
    settings: C,
    replace: Callable[[C], None],
    file: SettingsFile,
    text: str,
    caller: Caller,
) -> ChangedSettingsAnswer:
    """Hand `replace` the settings with the values of a request, and save these; raises Refused."""
    try:
        changes = parse_changes(text, settings.recognises)
        if listed := changes.keys() & settings.unchangeable_keys:
            on_list = ", ".join(sorted(listed))
            raise Refused(ResponseCode.NO_PERMISSION, f"configBlackList forbids to change {on_list}")
        if local := settings.local_keys(changes):
            raise Refused(ResponseCode.NO_PERMISSION, not_over_the_network(local))
        updated = settings.updated(changes)
    except ConfigError as problem:
        raise Refused(ResponseCode.SYSTEM_ERROR, str(problem)) from None
    before, after = settings.as_java_dict(), updated.as_java_dict()
    caller.changed = ", ".join(
        f"{key}: {before.get(key, '')} -> {after.get(key, '')}" for key in sorted(changes)
    )
    replace(updated)
    _log.info("settings changed peer=%s %.1000s", caller.address, caller.changed)
    remarks = updated.remarks_on(changes)
    for remark in remarks:
        _log.warning("%.500s", remark)
    try:
        await file.save({key: value for key, value in changes.items() if updated.recognises(key)})
    except StoreError as problem:
        raise Refused(ResponseCode.SYSTEM_ERROR, f"changed, but only in memory: {problem}") from None
    return ChangedSettingsAnswer(remark=summary(remarks))
