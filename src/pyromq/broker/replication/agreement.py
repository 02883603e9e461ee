"""Whether a replica's log is a prefix of its master's, asked before the log is copied any further.

The HA stream has no handshake. A replica that has messages which its master lost would be sent bytes from
the middle of other records, or none at all; so it asks first, with requests that every master answers.
"""

from pyromq.errors import Refused, StateError
from pyromq.protocol.record import ReadBuffer, scan_record
from pyromq.protocol.requests.inspection import GetBrokerRuntimeInfo
from pyromq.protocol.requests.pulling import ViewMessage
from pyromq.remoting.dialer import Dialer
from pyromq.store.log.damage import is_removed
from pyromq.store.message_store import MessageStore

_TIMEOUT_S = 5.0
_START_OVER = "to copy the master's log again, stop this broker and move its store away"


class Disagreement(StateError):
    """The logs of master and replica are different; only an operator can decide which one counts."""


async def log_range(dialer: Dialer, master: str) -> tuple[int, int]:
    """Where the log of a broker begins and ends. Raises PyroError."""
    info = (await dialer.call(master, GetBrokerRuntimeInfo(), _TIMEOUT_S)).body.table
    return int(info["commitLogMinOffset"]), int(info["commitLogMaxOffset"])


async def check_agreement(dialer: Dialer, master: str, store: MessageStore) -> None:
    """Raises Disagreement, or another PyroError if the master does not answer."""
    if not store.log.end:
        return
    first, end = await log_range(dialer, master)
    ours = store.log.end
    if ours > end:
        raise Disagreement(
            f"the log of this replica ends at {ours}, the log of its master {master} at {end}. Either the"
            f" master has lost messages, or the logs are different: {_START_OVER}, or make it the master"
        )
    if ours < first:
        raise Disagreement(
            f"the log of this replica ends at {ours}, the oldest file of its master {master} begins at"
            f" {first}. The files in between are deleted: {_START_OVER}"
        )
    last = store.copying.last_record()
    if last is None or last[0] < first:
        return
    place, record = last
    try:
        theirs = (await dialer.call(master, ViewMessage(offset=place), _TIMEOUT_S)).body
    except Refused:
        theirs = b""
    if not is_same_message(record, theirs):
        raise Disagreement(
            f"this replica and its master {master} have different messages at log offset {place}. Either the"
            " master has lost messages and accepted others, or the logs are different:"
            f" {_START_OVER}, or make it the master"
        )


def is_same_message(ours: ReadBuffer, theirs: ReadBuffer) -> bool:
    """Also if only one of the two logs has erased it so far."""
    if ours == theirs:
        return True
    outlines = [scan_record(each) if each else None for each in (ours, theirs)]
    if any(each is None for each in outlines) or len(ours) != len(theirs):
        return False
    places = {(each.log_offset, each.store_timestamp) for each in outlines if each is not None}
    return len(places) == 1 and any(is_removed(each) for each in outlines if each is not None)
