"""Tells brokers who is their master now. A notice may get lost: brokers also ask every few seconds."""

import asyncio
import logging

from pyromq.controller.groups import GroupRecord
from pyromq.errors import TransportError
from pyromq.protocol.requests.controller import NotifyBrokerRoleChanged, SyncStateSet
from pyromq.remoting.dialer import Dialer

_log = logging.getLogger(__name__)

_NOTICE_TIMEOUT_S = 3.0


class RoleNotices:
    def __init__(self, dialer: Dialer) -> None:
        self._dialer = dialer
        self._tasks: set[asyncio.Task[None]] = set()

    def __repr__(self) -> str:
        return f"<RoleNotices underway={len(self._tasks)}>"

    def send(self, group: GroupRecord, broker_ids: list[int]) -> None:
        notice = NotifyBrokerRoleChanged(
            master_broker_id=group.master_id,
            master_address=group.master_address,
            master_epoch=group.master_epoch,
            sync_state_set_epoch=group.sync_set_epoch,
            body=SyncStateSet(sync_state_set=set(group.sync_set), sync_state_set_epoch=group.sync_set_epoch),
        )
        for each in broker_ids:
            task = asyncio.create_task(self._tell(group.replicas[each].address, notice))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _tell(self, address: str, notice: NotifyBrokerRoleChanged) -> None:
        # The broker has just sent a heartbeat: it is worth an attempt, whatever happened before.
        self._dialer.reset_backoff(address)
        try:
            await self._dialer.send_oneway(address, notice, _NOTICE_TIMEOUT_S)
        except TransportError as problem:
            _log.warning("could not tell a broker of its new master address=%s: %s", address, problem)

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
