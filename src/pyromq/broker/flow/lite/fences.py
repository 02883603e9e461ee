"""Who may append to a lite topic: a message may say what it expects there, and is refused if that is not so.

`LITE_OFFSET` is the offset that the message must get. `LITE_EPOCH` counts the writers of the lite topic: a
message with a lower one than the last message is refused, and so is one without. The rule needs no table of
its own: it holds as long as the log has the last message, on every replica and after a restart.
"""

from collections import OrderedDict
from typing import Final

from pyromq.broker.tables.role import RoleTable
from pyromq.errors import Refused, RemoteProtocolError
from pyromq.protocol import properties as props
from pyromq.protocol.codes import ResponseCode
from pyromq.protocol.properties import get_property
from pyromq.protocol.record import decode_record
from pyromq.store.message_store import MessageStore

_MAX_KNOWN: Final = 10_000
_EPOCH_MARK: Final = props.LITE_EPOCH.encode()
_MAX_NUMBER: Final = 2**63 - 1


class Fences:
    def __init__(self, store: MessageStore, role: RoleTable) -> None:
        self._store = store
        self._light = store.light
        self._known: OrderedDict[str, tuple[int, int]] = OrderedDict()
        """Of light queues that got a message lately: the next offset, and the epoch of the last message."""
        role.on_change(lambda _: self._known.clear())

    def __repr__(self) -> str:
        return f"<Fences known={len(self._known)}>"

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
        if self._light is None:
            return
        epoch = _number(properties, props.LITE_EPOCH) or 0
        self._known[queue] = self._light.next_offset(queue), epoch
        self._known.move_to_end(queue)
        if len(self._known) > _MAX_KNOWN:
            self._known.popitem(last=False)

    def _epoch(self, queue: str, following: int) -> int:
        """The epoch of the last message; 0 if there is none."""
        light = self._light
        assert light is not None
        if not following:
            return 0
        known = self._known.get(queue)
        if known is not None and known[0] == following:
            return known[1]
        if light.max_offset(queue) != following:
            raise Refused(ResponseCode.SYSTEM_BUSY, f"the last message of {queue} cannot be read yet")
        views = self._store.read(queue, 0, following - 1, 1).views
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
