"""Chromium, Playwright and axe-core for the browser tests, or a plain reason why they cannot be had here.

python -m tools.chromium (installs what is missing, where it may: Chromium by apt, axe-core by
npm's registry)

Exit status 3 says that they cannot be had; everything else that is not 0 is our own fault.
"""

import base64
import hashlib
import io
import os
import shutil
import subprocess
import sys
import tarfile
import urllib.request
from importlib.util import find_spec
from pathlib import Path
from typing import Final

UNAVAILABLE: Final = 3
PACKAGES: Final = ("chromium", "fonts-noto-cjk")
AXE: Final = "https://registry.npmjs.org/axe-core/-/axe-core-4.14.0.tgz"
AXE_INTEGRITY: Final = (
    "9WTZxEjsZ7b13TH8JPmbV2z8CHbl80/2hm3XPEG4JgNdQLK81IBRXmSxHfMAOkSqQeRxT/0dwNDz2GOm3zzpcQ=="
)
_TIMEOUT_S: Final = 600


class Unavailable(Exception):
    """Something is missing; the text says what."""


def chromium() -> str:
    """The path of Chromium."""
    for name in ("chromium", "chromium-browser", "google-chrome"):
        if (found := shutil.which(name)) is not None:
            return found
    raise Unavailable("there is no Chromium: apt-get install --no-install-recommends chromium fonts-noto-cjk")


def axe_file() -> Path:
    return (
        Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "pyromq-tests" / "axe-4.14.0.min.js"
    )


def axe() -> str:
    """The source of axe-core, which judges whether a page can be used by everybody."""
    if not axe_file().exists():
        raise Unavailable("axe-core has not been fetched: python -m tools.chromium")
    return axe_file().read_text()


def fetch_axe() -> None:
    if axe_file().exists():
        return
    try:
        with urllib.request.urlopen(AXE, timeout=60) as answer:
            packed = answer.read()
    except OSError as problem:
        raise Unavailable(f"axe-core cannot be fetched from {AXE}: {problem}") from None
    if base64.b64encode(hashlib.sha512(packed).digest()).decode() != AXE_INTEGRITY:
        raise Unavailable(f"what {AXE} has is not axe-core 4.14.0")
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        member = archive.extractfile("package/axe.min.js")
        assert member is not None
        axe_file().parent.mkdir(parents=True, exist_ok=True)
        axe_file().write_bytes(member.read())


def install_chromium() -> None:
    """By apt, if this is a machine where we may."""
    try:
        chromium()
    except Unavailable:
        apt = shutil.which("apt-get")
        if apt is None or os.geteuid() != 0:
            raise
        install = [apt, "install", "-y", "--no-install-recommends", *PACKAGES]
        for command in (install, [apt, "update"], install):
            done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
        if done.returncode:
            raise Unavailable(f"{' '.join(install)}: {done.stderr.strip()[-300:]}") from None
        chromium()


def require_playwright() -> None:
    if find_spec("playwright") is None:
        raise Unavailable("the package playwright is missing: pip install 'pyromq[browser]'")


def main() -> int:
    try:
        require_playwright()
        install_chromium()
        fetch_axe()
    except Unavailable as reason:
        sys.stderr.write(f"{reason}\n")
        return UNAVAILABLE
    return 0


if __name__ == "__main__":
    sys.exit(main())
