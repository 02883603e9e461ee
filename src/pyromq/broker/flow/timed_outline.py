"""The facts in a record about a message that waits for its time, without its body.

Compiled code reads the usual messages; this code reads recalls, messages on a longer way, and damaged ones.
"""

from typing import NamedTuple

from pyromq.broker.flow.timing import asked_ms, number_in
from pyromq.compiled import twin
from pyromq.errors import RemoteProtocolError
from pyromq.protocol import properties as props
from pyromq.protocol.properties import get_property
from pyromq.protocol.record import scan_record

_native = twin("protocol.requests")


class TimedOutline(NamedTuple):
    """None stands for what is missing or is not a number."""

    topic: str | None
    queue_id: int | None
    slot_ms: int | None
    deliver_ms: int | None
    asked_ms: int | None
    """The time that it asks for; a delay counts from `stored_ms` on."""
    stored_ms: int
    size_bytes: int
    recalls: str | None = None
    """The message that it recalls."""
    is_usual: bool = False
    """Whether it leaves the wheel for the first time and names its place, in the usual form."""

    def due_ms(self, slot_ms: int, precision_ms: int) -> int:
        """When exactly it is due in a slot; at the end of the slot if it does not say so."""
        end_ms = slot_ms + precision_ms
        if self.deliver_ms is not None and slot_ms < self.deliver_ms <= end_ms:
            return self.deliver_ms
        # The broker takes the time of a send twice: for the slot, and then for the record.
        return end_ms if self.asked_ms is None else min(max(self.asked_ms, slot_ms + 1), end_ms)


def read_timed(record: memoryview | None) -> TimedOutline | None:
    """None if there is no record, or a damaged one."""
    if record is None:
        return None
    if _native is not None and (found := _native.read_timed(record)) is not None:
        return TimedOutline(*found)
    try:
        outline = scan_record(record)
    except RemoteProtocolError:
        return None
    if outline is None:
        return None
    properties = bytes(record[outline.properties_start : outline.properties_end])
    try:
        asked = asked_ms(properties, outline.store_timestamp)
    except ValueError:
        asked = None
    return TimedOutline(
        get_property(properties, props.REAL_TOPIC),
        _number(properties, props.REAL_QUEUE_ID),
        _number(properties, props.TIMER_OUT_MS),
        _number(properties, props.TIMER_DELIVER_MS),
        asked,
        outline.store_timestamp,
        outline.size,
        get_property(properties, props.TIMER_DEL_UNIQKEY),
    )


def _number(properties: bytes, name: str) -> int | None:
    try:
        return number_in(name, get_property(properties, name) or "")
    except ValueError:
        return None
