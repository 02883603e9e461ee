"""Servers of others that tests of ours are run against."""

import os
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final
from urllib.error import HTTPError
from urllib.request import urlopen

from tests.support.apache_releases import PeerUnavailable

START_TIMEOUT_S: Final = 180.0


@contextmanager
def running(command: Sequence[str], environment: Mapping[str, str], url: str) -> Iterator[None]:
    """The server, from the time on at which it answers at `url`; a refusal is an answer, too."""
    with tempfile.TemporaryFile() as said:
        server = subprocess.Popen(
            command, env=os.environ | environment, stdout=said, stderr=subprocess.STDOUT
        )
        try:
            last = time.monotonic() + START_TIMEOUT_S
            while not _answers(url):
                if server.poll() is not None or time.monotonic() > last:
                    said.seek(0)
                    end = said.read().decode(errors="replace")[-2000:]
                    raise PeerUnavailable(f"{command[0]} did not start: {end}")
                time.sleep(0.5)
            yield
        finally:
            server.kill()
            server.wait()


def _answers(url: str) -> bool:
    try:
        urlopen(url, timeout=10).close()
        return True
    except HTTPError as problem:
        return problem.code < 500
    except OSError:
        return False
