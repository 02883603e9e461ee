"""Takes back a timed message before its delivery.

The recall handle, which the broker gave in answer to the send, says which broker keeps the message. A refusal
is raised with what to do about it.
"""

from datetime import UTC, datetime

from pyromq.client.sending import Sender
from pyromq.client.values import SendResult
from pyromq.errors import BadMessage, ConnectFailed, Refused, RemoteProtocolError
from pyromq.protocol.codes import ResponseCode
from pyromq.protocol.message_id import RecallHandle, decode_recall_handle
from pyromq.protocol.names import MASTER_ID
from pyromq.protocol.requests.sending import RecallMessage

_NO_HANDLE = (
    "has no recall handle: only timed messages have one (delay, deliver_at), and only from brokers that take"
    " messages back, Apache's since 5.3"
)


def handle_text(of: str | SendResult) -> str:
    """The recall handle itself; raises BadMessage if a result has none."""
    if isinstance(of, SendResult):
        if of.recall_handle is None:
            raise BadMessage(f"{of!r} {_NO_HANDLE}")
        return of.recall_handle
    if not isinstance(of, str):
        raise BadMessage(f"recall takes a SendResult or its recall_handle, not {type(of).__name__} {of!r}")
    return of


async def recall(sender: Sender, text: str, timeout_s: float) -> str:
    """Ask the broker that keeps the message; returns the id of the message."""
    try:
        handle = decode_recall_handle(text)
    except RemoteProtocolError as problem:
        raise BadMessage(f"{problem}; expected the recall_handle of a SendResult") from None
    session = sender.session
    if session.broker_address(handle.broker_name, only_this=True) is None:
        await session.routes.refresh(handle.topic)
    address = session.broker_address(handle.broker_name, MASTER_ID, only_this=True)
    if address is None:
        raise ConnectFailed(
            f"the broker {handle.broker_name}, which keeps the message {handle.unique_key}, has no master now"
        )
    request = RecallMessage(
        producer_group=sender.group,
        topic=handle.topic,
        recall_handle=text,
        target_broker_name=handle.broker_name,
    )
    try:
        answer = await session.call(address, request, timeout_s)
    except Refused as refusal:
        hint = _hint(refusal.code, handle, session.clock.now_ms())
        raise Refused(refusal.code, f"{refusal.remark or 'no remark'}; {hint}", refusal.server) from None
    return answer.msg_id


def _hint(code: int, handle: RecallHandle, now_ms: int) -> str:
    if code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
        return f"the broker {handle.broker_name} cannot take messages back; Apache's brokers can since 5.3"
    if code == ResponseCode.NO_PERMISSION:
        return f"does the broker {handle.broker_name} have recallMessageEnable=true?"
    if handle.deliver_ms <= now_ms:
        return f"the message {handle.unique_key} was due at {_shown(handle.deliver_ms)}"
    return f"the message {handle.unique_key} is due at {_shown(handle.deliver_ms)}"


def _shown(timestamp_ms: int) -> str:
    try:
        return datetime.fromtimestamp(timestamp_ms / 1000, UTC).isoformat(timespec="milliseconds")
    except (OverflowError, ValueError, OSError):  # a handle may name any time
        return f"{timestamp_ms} ms"
