"""The connections that a Python worker keeps from task to task end with its process."""

import socket
import subprocess
import sys

KEEPS_A_CONNECTION = """
import sys
from pyromq.spark.links import links_of_this_worker
from pyromq.spark.options import Access

with links_of_this_worker(Access((sys.argv[1],))).borrow(sys.argv[1]):
    pass
"""


def test_a_process_closes_the_connections_that_it_kept() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        done = subprocess.run(
            [sys.executable, "-W", "always::ResourceWarning", "-c", KEEPS_A_CONNECTION, address],
            capture_output=True,
            text=True,
            timeout=100,
            check=True,
        )
    assert "unclosed" not in done.stderr
