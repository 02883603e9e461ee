"""Fences of lite topics: a message may say what it expects there, and is refused if that is not so.

`LITE_OFFSET` is the offset that the message must get. `LITE_EPOCH` counts the writers of the lite topic: a
message with a lower one than the last message is refused, and so is one without. The rule needs no table:
it holds as long as the log has the last message, on every replica and after a restart.
"""

from typing import Final

from pyromq.broker.tables.role import RoleTable
from pyromq.errors import Refused, RemoteProtocolError
from pyromq.protocol import properties as props
from pyromq.protocol.codes import ResponseCode
from pyromq.protocol.properties import get_property
from pyromq.protocol.record import decode_record
from pyromq.store.message_store import MessageStore

_EPOCH_MARK: Final = props.LITE_EPOCH.encode()
_MAX_NUMBER: Final = 2**63 - 1


class Fences:
    def __init__(self, store: MessageStore, role: RoleTable) -> None:
        self._store = store
        self._light = store.light
        if self._light is not None:
            light = self._light
            role.on_change(lambda _: light.forget_epochs())

    def __repr__(self) -> str:
        return f"<Fences of {self._light!r}>"

    def check(self, queue: str, properties: str) -> None:
        """Raises Refused if a message with these properties may not be the next one of a light queue."""
        if self._light is None:
            return
        following = self._light.next_offset(queue)
        expected = _number(properties, props.LITE_OFFSET)
        if expected is not None and expected != following:
            raise Refused(
                ResponseCode.LITE_OFFSET_TAKEN,
                f"the next message of {queue} has the offset {following}, not {expected}",
            )
        epoch = _number(properties, props.LITE_EPOCH) or 0
        last = self._epoch(queue, following)
        if epoch < last:
            raise Refused(
                ResponseCode.LITE_FENCED,
                f"the writer of epoch {last} has {queue}: the message has epoch {epoch}",
            )

    def appended(self, queue: str, properties: str) -> None:
        """A message that was checked is in the log."""
        if self._light is not None and (epoch := _number(properties, props.LITE_EPOCH)):
            self._light.note_epoch(queue, epoch)

    def _epoch(self, queue: str, following: int) -> int:
        """The epoch of the last message; 0 if there is none."""
        light = self._light
        assert light is not None
        if not following:
            return 0
        known = light.epoch(queue)
        if known >= 0:
            return known
        if light.max_offset(queue) != following:
            raise Refused(ResponseCode.SYSTEM_BUSY, f"the last message of {queue} cannot be read yet")
        epoch = self._stored_epoch(queue, following - 1)
        light.note_epoch(queue, epoch)
        return epoch

    def _stored_epoch(self, queue: str, offset: int) -> int:
        views = self._store.read(queue, 0, offset, 1).views
        # Most say nothing of epochs: to look for the name costs less than to decode them.
        if not views or _EPOCH_MARK not in bytes(views[0]):
            return 0
        try:
            last = decode_record(views[0], check_crc=False)
        except RemoteProtocolError:
            return 0
        return _number(last.properties.decode("utf-8", "replace"), props.LITE_EPOCH) or 0


def _number(properties: str, name: str) -> int | None:
    text = get_property(properties, name) if name in properties else None
    if text is None:
        return None
    if not text.isascii() or not text.isdecimal() or len(text) > 19 or int(text) > _MAX_NUMBER:
        raise Refused(ResponseCode.MESSAGE_ILLEGAL, f"{name} is {text[:40]!r}, expected a whole number")
    return int(text)
