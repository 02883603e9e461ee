"""Requests that every controller answers, leading or not: heartbeats, who leads, and its settings."""

import logging
from collections.abc import Callable

from pyromq.clock import Clock
from pyromq.config.live import LiveSettings
from pyromq.config.settings_file import SettingsFile
from pyromq.controller.liveness import DEFAULT_TIMEOUT_S, Liveness, Vitals
from pyromq.controller.settings import ControllerSettings
from pyromq.controller.store import ControllerStore, Leader
from pyromq.errors import Refused
from pyromq.protocol.codes import ResponseCode
from pyromq.protocol.requests.brokers import SendBrokerHeartbeat
from pyromq.protocol.requests.controller import GetControllerMetadata, GetControllerMetadataAnswer
from pyromq.protocol.requests.settings import (
    ChangedSettingsAnswer,
    GetControllerConfig,
    SettingsAnswer,
    UpdateControllerConfig,
)
from pyromq.remoting.channel import Channel
from pyromq.remoting.routing import Caller, handles
from pyromq.remoting.settings_requests import change_settings, settings_text

_log = logging.getLogger(__name__)


class OwnRequests:
    def __init__(
        self,
        store: ControllerStore,
        liveness: Liveness[Channel],
        settings: LiveSettings[ControllerSettings],
        file: SettingsFile,
        clock: Clock,
        own: Callable[[], Leader],
    ) -> None:
        """`own` names this controller, once it listens."""
        self._store = store
        self._liveness = liveness
        self._settings = settings
        self._file = file
        self._clock = clock
        self._own = own

    def __repr__(self) -> str:
        return f"<OwnRequests {self._liveness!r}>"

    @handles(SendBrokerHeartbeat)
    def heartbeat(self, request: SendBrokerHeartbeat, caller: Caller) -> None:
        if request.broker_id is None:
            raise Refused(ResponseCode.CONTROLLER_INVALID_REQUEST, "a heartbeat needs the id of its broker")
        said = {
            "epoch": request.epoch,
            "max_offset": request.max_offset,
            "priority": request.election_priority,
        }
        vitals = Vitals(**{name: number for name, number in said.items() if number is not None})
        timeout_ms = request.heartbeat_timeout_millis
        is_news = self._liveness.beat(
            request.cluster_name,
            (request.broker_name, request.broker_id),
            vitals,
            DEFAULT_TIMEOUT_S if timeout_ms is None else timeout_ms / 1000,
            caller.channel,
            self._clock.monotonic(),
        )
        if is_news:
            _log.info(
                "broker is alive group=%s id=%d address=%s",
                *(request.broker_name, request.broker_id, request.broker_addr),
            )
        if not self._store.is_leading:
            # Noted, but a master that may continue alone because of it would be promised too much.
            raise Refused(ResponseCode.CONTROLLER_NOT_LEADER, "this controller does not lead")

    @handles(GetControllerMetadata)
    def metadata(self, request: GetControllerMetadata, caller: Caller) -> GetControllerMetadataAnswer:
        settings, leader, own = self._settings.now, self._store.leader, self._own()
        peers = settings.all_peers or {own.id: own}
        return GetControllerMetadataAnswer(
            group=settings.group_name,
            controller_leader_id=leader.id if leader is not None else None,
            controller_leader_address=leader.address if leader is not None else None,
            is_leader=self._store.is_leading,
            peers="".join(f"{each.id}:{each.address};" for each in peers.values()),
        )

    @handles(GetControllerConfig)
    def config(self, request: GetControllerConfig, caller: Caller) -> SettingsAnswer:
        return SettingsAnswer(body=settings_text(self._settings.now))

    @handles(UpdateControllerConfig)
    async def update_config(self, request: UpdateControllerConfig, caller: Caller) -> ChangedSettingsAnswer:
        live = self._settings
        return await change_settings(live.now, live.replace, self._file, request.body, caller)
