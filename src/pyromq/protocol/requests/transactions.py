"""The second half of a transactional message."""

from pyromq.protocol.catalogue import BROKER, Answer, Int32, Int64, Request, RoutedRequest, request
from pyromq.protocol.needs import PUB, UPDATE, topic


@request(37, to=BROKER, needs=(topic(PUB),), oneway=True)
class EndTransaction(RoutedRequest[Answer]):
    """Commit a prepared message, roll it back, or say that its fate is not known yet."""

    topic: str | None = None
    producer_group: str
    tran_state_table_offset: Int64
    commit_log_offset: Int64
    commit_or_rollback: Int32
    from_transaction_check: bool = False
    msg_id: str
    transaction_id: str | None = None
    # What went wrong while the producer decided.
    remark: str | None = None


@request(323, to=BROKER, needs=(topic(UPDATE),), java_name="resume_check_half_message")
class ResumeTransactionCheck(Request[Answer]):
    """Ask producers again about a prepared message that was given up."""

    topic: str | None = None
    msg_id: str | None = None
