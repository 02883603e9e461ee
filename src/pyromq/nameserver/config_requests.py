"""Reads and changes the name server's settings over the network."""

from pyromq.config.live import LiveSettings
from pyromq.config.settings_file import SettingsFile
from pyromq.nameserver.settings import NameServerSettings
from pyromq.protocol.requests.settings import (
    ChangedSettingsAnswer,
    GetNameServerConfig,
    SettingsAnswer,
    UpdateNameServerConfig,
)
from pyromq.remoting.routing import Caller, handles
from pyromq.remoting.settings_requests import change_settings, settings_answer

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
        return settings_answer(self._settings.now)

    @handles(UpdateNameServerConfig)
    async def update(self, request: UpdateNameServerConfig, caller: Caller) -> ChangedSettingsAnswer:
        unchangeable = _NEVER_CHANGEABLE | self._settings.now.unchangeable_keys
        return await change_settings(self._settings, self._file, request.body, unchangeable, caller)
