"""h2spec, the conformance tests of HTTP/2 and HPACK, against our server."""

from __future__ import annotations

import asyncio
import hashlib
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from tests.support.apache_releases import FETCH_TIMEOUT_S, REPOSITORY, cache_directory
from tests.support.grpc_echo import echo_port

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]

PACKAGE = "github.com/summerwind/h2spec/cmd/h2spec"


@pytest.fixture(scope="module")
def h2spec() -> Path:
    """The program, built if it was not yet."""
    go = shutil.which("go")
    if go is None:
        pytest.skip("go is not installed: h2spec needs it")
    source = REPOSITORY / "interop" / "h2spec"
    built = cache_directory() / f"h2spec-{hashlib.sha256((source / 'go.sum').read_bytes()).hexdigest()[:12]}"
    if not built.is_file():
        built.parent.mkdir(parents=True, exist_ok=True)
        done = subprocess.run(
            [go, "build", "-mod=readonly", "-o", str(built), PACKAGE],
            cwd=source,
            capture_output=True,
            text=True,
            check=False,
            timeout=FETCH_TIMEOUT_S,
        )
        if done.returncode != 0:
            pytest.skip(f"h2spec cannot be had: {done.stderr.strip()[-2000:]}")
    return built


async def test_every_test_of_h2spec_passes(h2spec: Path) -> None:
    async with echo_port() as port:
        options = ("-h", "127.0.0.1", "-p", str(port.server.address[1]), "-o", "5")
        process = await asyncio.create_subprocess_exec(str(h2spec), *options, stdout=asyncio.subprocess.PIPE)
        output = (await process.communicate())[0].decode()
    counted = re.search(r"(\d+) tests, (\d+) passed, (\d+) skipped, (\d+) failed", output)
    assert counted, output
    assert int(counted[1]) > 100
    assert counted[4] == "0", output.partition("Failures:")[2]
