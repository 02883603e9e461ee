"""Erasing: an operator removes messages with certain keys for good, in the log, at replicas and in the tier.

The answer comes when the request is safe on this disk and, under a controller, on those of the replicas in
sync. The rest is done in the background, and again from its beginning after a restart. Each broker overwrites
its own log; the master removes the messages from the tier.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final, Protocol

from pyromq.broker.context import Context
from pyromq.broker.flow.durability import Durability
from pyromq.broker.topic_attributes import refuse_compacted
from pyromq.errors import Refused, StateError
from pyromq.protocol.codes import ResponseCode
from pyromq.protocol.properties import KEY_SEPARATOR
from pyromq.protocol.record import RecordOutline
from pyromq.protocol.requests.topics import (
    EraseMessages,
    EraseMessagesAnswer,
    Erasure,
    ErasureList,
    ErasuresAnswer,
    GetErasures,
)
from pyromq.remoting.routing import Caller, handles
from pyromq.store.deletions import Deletion
from pyromq.store.erasing import Named, mark_name, named_in

_log = logging.getLogger(__name__)

_LOOK_S: Final = 1.0
_AFTER_FAILURE_S: Final = 10.0
_AT_ONCE: Final = 1000
"""Messages that are overwritten in one go."""


class ErasedTier(Protocol):
    @property
    def problem(self) -> str:
        """Why nothing happens in the tier at the moment."""
        ...

    @property
    def erase_problem(self) -> str: ...

    def is_erased(self, erasure: Deletion) -> bool: ...

    async def alone(self, work: Callable[[], None]) -> None:
        """Do what changes files of the log, while no file is read that is being uploaded."""
        ...


class Erasing:
    def __init__(self, context: Context, durability: Durability, tiering: ErasedTier | None) -> None:
        self._store = context.store
        self._topics = context.tables.topics
        self._role = context.tables.role
        self._durability = durability
        self._tiering = tiering
        self._problem = ""
        self._searched_to: dict[str, int] = {}
        """Where the log of this master ended when it was searched for an erasure the first time."""

    @handles(EraseMessages)
    async def erase(self, request: EraseMessages, caller: Caller) -> EraseMessagesAnswer:
        self._role.require_master()
        topic, keys = request.topic, [each for each in request.keys.split(KEY_SEPARATOR) if each]
        if (config := self._topics.get(topic)) is None:
            raise Refused(ResponseCode.TOPIC_NOT_EXIST, f"the topic {topic} does not exist")
        if self._topics.is_system(topic):
            raise Refused(ResponseCode.INVALID_PARAMETER, f"the topic {topic} is a system topic")
        refuse_compacted(topic, config.attributes)
        if not keys:
            raise Refused(ResponseCode.INVALID_PARAMETER, "there is no key")
        promise, store = self._topics.promise(), self._store
        end = store.log.end
        try:
            for each in keys:
                self._searched_to.pop(mark_name((topic, each)), None)
            store.erasing.ask([(topic, each) for each in keys], end, store.time.now_ms())
        except OSError as problem:
            raise Refused(ResponseCode.SYSTEM_ERROR, f"the erasure cannot be written: {problem}") from problem
        await promise()
        _log.info("erasing by=%s topic=%s keys=%d before=%d", caller.address, topic, len(keys), end)
        return EraseMessagesAnswer(log_offset=end)

    @handles(GetErasures)
    def erasures(self, request: GetErasures, caller: Caller) -> ErasuresAnswer:
        found = [(each, *named_in(each.topic)) for each in self._store.erasing.all()]
        return ErasuresAnswer(
            body=ErasureList(
                erasures=[
                    Erasure(
                        key=key,
                        log_offset=each.log_offset,
                        time_ms=each.time_ms,
                        is_done_here=self._store.erasing.is_done_here(each),
                        is_done_in_tier=each.is_finished or self._is_done_in_tier(each),
                        problem="" if each.is_finished else self._why_not(),
                    )
                    for each, topic, key in found
                    if topic == request.topic
                ]
            )
        )

    def _is_done_in_tier(self, erasure: Deletion) -> bool:
        return self._tiering is None or self._tiering.is_erased(erasure)

    def _why_not(self) -> str:
        tiering = self._tiering
        return self._problem or (tiering.erase_problem or tiering.problem if tiering is not None else "")

    async def run(self) -> None:
        pause_s = _LOOK_S
        while True:
            await asyncio.sleep(pause_s)
            pause_s = _LOOK_S
            try:
                await self._advance()
                self._problem = ""
            except (OSError, StateError) as problem:
                _log.error("messages are not erased yet: %s", problem)
                self._problem, pause_s = str(problem), _AFTER_FAILURE_S

    async def _advance(self) -> None:
        store = self._store
        # What could still be taken back stays as others have it.
        end = min(store.flushes.offset, self._durability.readable_offset, store.queues.dispatched_offset)
        due = [
            each
            for each in store.erasing.unfinished()
            if not store.erasing.is_done_here(each) and each.log_offset <= end
        ]
        if due:
            await self._erase_here(due)
        for each in store.erasing.unfinished():
            if store.erasing.is_done_here(each) and self._is_done_in_tier(each):
                store.erasing.finish(each)
                _log.info("erased topic=%s before=%d", named_in(each.topic)[0], each.log_offset)

    async def _erase_here(self, due: list[Deletion]) -> None:
        """Search the log, and overwrite what is found."""
        store, searched_to = self._store, self._searched_to
        begin = min(searched_to.get(each.topic, 0) for each in due)
        wanted = {named_in(each.topic): each.log_offset for each in due}
        await self._overwrite(wanted, max(begin, store.log.start))
        for each in due:
            if self._role.now.is_master and each.topic not in searched_to:
                # Meanwhile a message may have been copied, because its time had come or a group had failed.
                searched_to[each.topic] = each.log_offset
                if store.log.end > each.log_offset:
                    store.erasing.ask([named_in(each.topic)], store.log.end, each.time_ms)
                    continue
            searched_to.pop(each.topic, None)
            store.erasing.done_here(each)

    async def _overwrite(self, wanted: Mapping[Named, int], offset: int) -> None:
        """Raises StateError if the log was cut meanwhile."""
        erasing, found = self._store.erasing, list[RecordOutline]()
        cuts, end = self._store.cutting.cuts, max(wanted.values())
        while offset < end or found:
            if offset < end:
                offset, more = await asyncio.to_thread(erasing.find, wanted, offset, end)
                found += more
            if self._store.cutting.cuts != cuts:
                raise StateError("the log was cut meanwhile")
            if found and (offset >= end or len(found) >= _AT_ONCE):
                for message in found:
                    erasing.hide(message)
                await self._alone(partial(_overwrite_all, erasing.overwrite, found))
                found = []

    async def _alone(self, work: Callable[[], None]) -> None:
        await (asyncio.to_thread(work) if self._tiering is None else self._tiering.alone(work))


def _overwrite_all(overwrite: Callable[[RecordOutline], None], found: list[RecordOutline]) -> None:
    for message in found:
        overwrite(message)
