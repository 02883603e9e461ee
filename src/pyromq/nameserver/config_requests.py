"""Reads and changes the name server's settings over the network."""

import logging

from pyromq.config.changes import not_over_the_network, parse_changes, summary
from pyromq.config.live import LiveSettings
from pyromq.config.settings_file import SettingsFile
from pyromq.errors import ConfigError, Refused, StoreError
from pyromq.nameserver.settings import NameServerSettings
from pyromq.protocol.codes import ResponseCode
from pyromq.protocol.requests.settings import (
    ChangedSettingsAnswer,
    GetNameServerConfig,
    SettingsAnswer,
    UpdateNameServerConfig,
)
from pyromq.remoting.routing import Caller, handles

_log = logging.getLogger(__name__)

# java: refused whatever the configured list says
_NEVER_CHANGEABLE = {"configBlackList", "configStorePath", "kvConfigPath", "rocketmqHome"}


class ConfigRequests:
    def __init__(self, settings: LiveSettings[NameServerSettings], file: SettingsFile) -> None:
        self._settings = settings
        self._file = file

    def __repr__(self) -> str:
        return f"<ConfigRequests {self._file!r}>"

    @handles(GetNameServerConfig)
    def get(self, request: GetNameServerConfig, caller: Caller) -> SettingsAnswer:
        values = self._settings.now.as_java_dict()
        # java: tools read plain `key=value` lines, without the escapes of a properties file
        return SettingsAnswer(body="".join(f"{key}={values[key]}\n" for key in sorted(values)))

    @handles(UpdateNameServerConfig)
    async def update(self, request: UpdateNameServerConfig, caller: Caller) -> ChangedSettingsAnswer:
        try:
            changes = parse_changes(request.body, self._settings.now.recognises)
            if listed := changes.keys() & (_NEVER_CHANGEABLE | self._settings.now.unchangeable_keys):
                on_list = ", ".join(sorted(listed))
                raise Refused(ResponseCode.NO_PERMISSION, f"on the black list of settings: {on_list}")
            if local := self._settings.now.local_keys(changes):
                raise Refused(ResponseCode.NO_PERMISSION, not_over_the_network(local))
            self._settings.update(changes)
            recognised = {key: text for key, text in changes.items() if self._settings.now.recognises(key)}
        except ConfigError as problem:
            raise Refused(ResponseCode.SYSTEM_ERROR, str(problem)) from None
        _log.info("settings changed peer=%s keys=%.500s", caller.address, ",".join(sorted(changes)))
        remarks = self._settings.now.remarks_on(changes)
        for remark in remarks:
            _log.warning("%.500s", remark)
        try:
            await self._file.save(recognised)
        except StoreError as problem:
            raise Refused(ResponseCode.SYSTEM_ERROR, f"changed, but only in memory: {problem}") from None
        return ChangedSettingsAnswer(remark=summary(remarks))
