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
from pyromq.remoting.settings_requests import change_settings, settings_text


class ConfigRequests:
    def __init__(self, settings: LiveSettings[NameServerSettings], file: SettingsFile) -> None:
        self._settings = settings
        self._file = file

    def __repr__(self) -> str:
        return f"<ConfigRequests {self._file!r}>"

    @handles(GetNameServerConfig)
    def get(self, request: GetNameServerConfig, caller: Caller) -> SettingsAnswer:
        return SettingsAnswer(body=settings_text(self._settings.now))

    @handles(UpdateNameServerConfig)
    async def update(self, request: UpdateNameServerConfig, caller: Caller) -> ChangedSettingsAnswer:
        live = self._settings
        return await change_settings(live.now, live.replace, self._file, request.body, caller)
