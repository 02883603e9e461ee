"""The second half of a transactional message."""

from pyromq.protocol.catalogue import BROKER, Answer, Int32, Int64, Request, RoutedRequest, request
from pyromq.protocol.needs import PUB, UPDATE, topic


@request(37, to=BROKER, needs=(topic(PUB, may_be_missing=True),), oneway=True)
class EndTransaction(RoutedRequest[Answer]):
    """Commit a half message, roll it back, or report that its transaction is undecided."""

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
    """Check a half message again whose checks were given up."""

    topic: str | None = None
    msg_id: str | None = None
