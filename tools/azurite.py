"""Azurite, Microsoft's emulator of Azure's object store, and the tests of ours that use it.

    python -m tools.azurite

Needs Node.js, npm and its registry; the emulator is kept in the user's cache directory. Exit status 3 says
that it could not be had; everything else that is not 0 is our own fault.
"""

import base64
import hashlib
import hmac
import os
import shutil
import subprocess
import sys
import tempfile
from email.utils import formatdate
from pathlib import Path
from typing import Final
from urllib.request import Request, urlopen

from tests.support.apache import free_ports
from tests.support.apache_releases import (
    FETCH_TIMEOUT_S,
    UNAVAILABLE,
    PeerUnavailable,
    cache_directory,
    say,
)
from tools.peers import running

VERSION: Final = "3.37.0"
ACCOUNT: Final = "devstoreaccount1"
KEY: Final = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
"""Known to all: every Azurite has it."""
EMPTY_HEADERS: Final = 12 * "\n"
"""A signature covers them, too."""
TESTS: Final = "tests/integration/pipelines/test_azure.py"


def main() -> int:
    try:
        program, port = _fetched(), free_ports()
        url = f"http://127.0.0.1:{port}"
        with tempfile.TemporaryDirectory(prefix="pyromq-azurite-") as place:
            listening = ["--blobHost", "127.0.0.1", "--blobPort", str(port), "--location", place]
            with running([str(program), *listening, "--silent", "--skipApiVersionCheck"], {}, url):
                _make_container(f"{url}/{ACCOUNT}/container")
                say(f"Azurite {VERSION} answers at {url}")
                leads = {
                    "AZURE_STORAGE_USE_EMULATOR": "true",
                    "AZURITE_BLOB_STORAGE_URL": url,
                    "AZURE_ALLOW_HTTP": "true",
                }
                return subprocess.run(
                    [sys.executable, "-m", "pytest", "-v", TESTS], env=os.environ | leads, check=False
                ).returncode
    except PeerUnavailable as problem:
        say(f"NOT RUN: {problem}")
        return UNAVAILABLE


def _fetched() -> Path:
    npm, home = shutil.which("npm"), cache_directory().parent / "azurite" / VERSION
    if npm is None:
        raise PeerUnavailable("npm is not installed")
    program = home / "node_modules" / ".bin" / "azurite-blob"
    if not (home / "complete").exists():
        say(f"fetching Azurite {VERSION} with npm ...")
        command = [npm, "install", "--prefix", str(home), f"azurite@{VERSION}"]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=FETCH_TIMEOUT_S)
        if done.returncode != 0 or not program.exists():
            raise PeerUnavailable(f"npm could not install Azurite: {done.stderr.strip()[-500:]}")
        (home / "complete").touch()
    return program


def _make_container(url: str) -> None:
    version, date = "2021-08-06", formatdate(usegmt=True)
    path = f"/{ACCOUNT}{url[url.index(f'/{ACCOUNT}') :]}"
    dated = f"x-ms-date:{date}\nx-ms-version:{version}"
    signed = f"PUT{EMPTY_HEADERS}{dated}\n{path}\nrestype:container"
    signature = hmac.digest(base64.b64decode(KEY), signed.encode(), hashlib.sha256)
    headers = {
        "x-ms-date": date,
        "x-ms-version": version,
        "Authorization": f"SharedKey {ACCOUNT}:{base64.b64encode(signature).decode()}",
    }
    urlopen(Request(f"{url}?restype=container", method="PUT", headers=headers), timeout=60).close()


if __name__ == "__main__":
    sys.exit(main())
