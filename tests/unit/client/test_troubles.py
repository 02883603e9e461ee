"""What the log says of troubles that last."""

import logging
import subprocess
import sys

import pytest

from pyromq.client.troubles import Troubles
from pyromq.client.values import MessageQueue
from pyromq.errors import CallTimeout, ConnectFailed, Refused
from pyromq.protocol.codes import ResponseCode

FIRST, SECOND = MessageQueue("Orders", "broker-a", 0), MessageQueue("Orders", "broker-a", 1)


@pytest.fixture
def troubles() -> Troubles:
    return Troubles(logging.getLogger("pyromq.test"))


def test_a_broker_is_lost_once_and_back_once(troubles: Troubles, caplog: pytest.LogCaptureFixture) -> None:
    for problem in (ConnectFailed("refused"), CallTimeout("after 3 s"), ConnectFailed("refused")):
        for queue in (FIRST, SECOND):
            troubles.of_broker(queue, problem, "pull failed queue=%s", queue)
            troubles.of_broker(queue, problem, "offset not stored queue=%s", queue)
    assert caplog.messages == ["broker lost broker=broker-a: refused"]
    troubles.broker_answered(SECOND)
    troubles.broker_answered(FIRST)
    assert caplog.messages[1:] == ["broker back broker=broker-a"]
    troubles.of_broker(FIRST, ConnectFailed("refused"), "pull failed queue=%s", FIRST)
    assert len(caplog.messages) == 3


def test_a_refusal_is_told_again_when_it_changes(
    troubles: Troubles, caplog: pytest.LogCaptureFixture
) -> None:
    for code in (ResponseCode.NO_PERMISSION, ResponseCode.NO_PERMISSION, ResponseCode.SYSTEM_ERROR):
        for queue in (FIRST, SECOND):
            troubles.of_broker(queue, Refused(code, "no"), "pull failed queue=%s", queue.queue_id)
    assert [line.partition(":")[0] for line in caplog.messages] == ["pull failed queue=0"] * 2
    troubles.broker_answered(FIRST)
    assert caplog.messages[2:] == ["broker accepts again broker=broker-a topic=Orders"]


def test_what_repeats_is_still_there_for_debugging(
    troubles: Troubles, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    for _ in range(3):
        troubles.happened("commit", ConnectFailed("refused"), "commit failed")
    assert [record.levelname for record in caplog.records] == ["WARNING", "DEBUG", "DEBUG"]
    troubles.ended("commit", "commit succeeded")
    troubles.ended("commit", "commit succeeded")
    assert caplog.messages[3:] == ["commit succeeded"]


def test_clients_print_nothing_unless_the_application_sets_up_logging() -> None:
    script = (
        "import logging, pyromq; pyromq.Producer;"
        "logging.getLogger('pyromq.client.session').warning('not for the terminal')"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout + done.stderr == ""
