"""A writer is killed in the middle of its work, again and again; what it was told is safe must be there."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.small_stores import bodies_of, small_settings
from tools import campaign

from pyromq.store.message_store import MessageStore

ROUNDS = campaign.rounds(10)

WRITER = """
import sys
from pathlib import Path
from pyromq.store.message_store import MessageStore
from pyromq.store.results import AppendStatus
from tests.support.small_stores import append, small_settings

root, first = Path(sys.argv[1]), int(sys.argv[2])
settings = small_settings(
    root,
    flush_disk_type="SYNC_FLUSH",
    log_segment_bytes=32768,
    queue_file_bytes=2000,
    file_reserved_hours=72,  # whatever the hour
)
store = MessageStore.open(settings)
number = first
while True:
    results = []
    for _ in range(16):
        body = b"%d:" % number + b"x" * (number * 37 % 900)
        properties = b"UNIQ_KEY\\x01key-%d\\x02" % number
        results.append(append(store, body, properties=properties))
        number += 1
    assert store.flushes.wait(results[-1], 60) is AppendStatus.PUT_OK
    sys.stdout.write(f"{number}\\n")
    sys.stdout.flush()
    store.dispatch()
    store.upkeep()
"""


def run_and_kill(root: Path, first: int, batches: int, native: str) -> int:
    """Let a writer work until it has reported some batches, kill it, and say what it reported last."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "PYROMQ_NATIVE": native}
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, str(root), str(first)], stdout=subprocess.PIPE, env=environment
    ) as writer:
        assert writer.stdout is not None
        reported = first
        for _ in range(batches):
            reported = int(writer.stdout.readline())
        writer.send_signal(signal.SIGKILL)
        for line in writer.stdout:
            if line.endswith(b"\n"):
                reported = int(line)
    return reported


@pytest.mark.parametrize("native", ["0", os.environ.get("PYROMQ_NATIVE", "1")])
def test_every_acknowledged_message_survives_being_killed(tmp_path: Path, native: str) -> None:
    settings = small_settings(tmp_path, log_segment_bytes=32768, queue_file_bytes=2000)
    count = 0
    for round_number in range(ROUNDS):
        acknowledged = run_and_kill(tmp_path, count, 3 + round_number * 5, native)
        with MessageStore.open(settings, start_flusher=False) as store:
            assert not store.recovery.was_clean
            bodies = bodies_of(store)
            count = len(bodies)
            assert count >= acknowledged
            numbers = [int(body.partition(b":")[0]) for body in bodies]
            assert numbers == list(range(count))
            for number in (0, count // 2, count - 1):
                assert len(store.log.query("Orders", f"key-{number}", 10)) == 1
