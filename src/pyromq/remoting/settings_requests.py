"""Reading and changing the settings of a running server, as every server does it over the network."""

import logging
from collections.abc import Set as AbstractSet
from typing import TypeVar

from pyromq.config.changes import not_over_the_network, parse_changes, summary
from pyromq.config.live import LiveSettings
from pyromq.config.settings import Settings
from pyromq.config.settings_file import SettingsFile
from pyromq.errors import ConfigError, Refused, StoreError
from pyromq.protocol.codes import ResponseCode
from pyromq.protocol.requests.settings import ChangedSettingsAnswer, SettingsAnswer
from pyromq.remoting.routing import Caller

_log = logging.getLogger(__name__)

S = TypeVar("S", bound=Settings)


def settings_answer(settings: Settings) -> SettingsAnswer:
    values = settings.as_java_dict()
    # java: tools read plain `key=value` lines, without the escapes of a properties file
    return SettingsAnswer(body="".join(f"{key}={values[key]}\n" for key in sorted(values)))


async def change_settings(
    settings: LiveSettings[S], file: SettingsFile, text: str, unchangeable: AbstractSet[str], caller: Caller
) -> ChangedSettingsAnswer:
    """Take over and save the values in a request; raises Refused."""
    try:
        changes = parse_changes(text, settings.now.recognises)
        if listed := changes.keys() & unchangeable:
            on_list = ", ".join(sorted(listed))
            raise Refused(ResponseCode.NO_PERMISSION, f"on the black list of settings: {on_list}")
        if local := settings.now.local_keys(changes):
            raise Refused(ResponseCode.NO_PERMISSION, not_over_the_network(local))
        settings.update(changes)
        recognised = {key: value for key, value in changes.items() if settings.now.recognises(key)}
    except ConfigError as problem:
        raise Refused(ResponseCode.SYSTEM_ERROR, str(problem)) from None
    _log.info("settings changed peer=%s keys=%.500s", caller.address, ",".join(sorted(changes)))
    remarks = settings.now.remarks_on(changes)
    for remark in remarks:
        _log.warning("%.500s", remark)
    try:
        await file.save(recognised)
    except StoreError as problem:
        raise Refused(ResponseCode.SYSTEM_ERROR, f"changed, but only in memory: {problem}") from None
    return ChangedSettingsAnswer(remark=summary(remarks))
