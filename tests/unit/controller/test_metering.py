"""What a controller counts as a failure."""

from pathlib import Path

from pyromq.controller.file_store import FileStore
from pyromq.controller.journal import Journal
from pyromq.controller.liveness import Liveness
from pyromq.controller.metering import ControllerMetering
from pyromq.controller.store import Leader
from pyromq.protocol.catalogue import declaration_of
from pyromq.protocol.codes import ResponseCode
from pyromq.protocol.requests.brokers import SendBrokerHeartbeat
from pyromq.protocol.requests.controller import ElectMaster


def test_a_heartbeat_at_a_controller_that_follows_is_no_failure(tmp_path: Path) -> None:
    """Brokers send theirs to every controller; other requests that only a leader answers did fail."""
    metering = ControllerMetering(Leader("n1", "h:1"), "g", FileStore(Journal(tmp_path)), Liveness(0.0), {})
    for request in (SendBrokerHeartbeat, ElectMaster):
        declared = declaration_of(request)
        metering.request_handled(declared, 0, ResponseCode.CONTROLLER_NOT_LEADER, 0.001, waited=False)
    assert metering._requests.counts == {
        (declaration_of(SendBrokerHeartbeat).java_name.upper(), "success"): 1,
        (declaration_of(ElectMaster).java_name.upper(), "failed"): 1,
    }
