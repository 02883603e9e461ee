"""`make image`: the container image of deploy/container, built by buildah, and a cluster that starts in it.

python -m tools.image [--wheels DIR] (apt installs buildah, and debootstrap, where it may)

The base is Python's own image with the version of this interpreter. Where that cannot be had, a small
Debian is made for it. Exit status 3 says that the image cannot be built here; 1 that it is wrong.
"""

import argparse
import os
import shutil
import ssl
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tests.support.places import ROOT

UNAVAILABLE: Final = 3
WORK: Final = ROOT / "build" / "image"
CONTEXT: Final = WORK / "context"
FILE: Final = ROOT / "deploy" / "container" / "Containerfile"
VERSION: Final = f"{sys.version_info[0]}.{sys.version_info[1]}"
PUBLISHED: Final = f"docker.io/library/python:{VERSION}-slim"
OWN_BASE: Final = "localhost/pyromq-base"
DEBIAN: Final = ("bookworm", "python3,python3-venv,python-is-python3,ca-certificates")
TRUST: Final = "/etc/ssl/certs/ca-certificates.crt"
# What standalone says when it is ready, then how it ends.
START: Final = (
    "timeout --foreground --preserve-status -s TERM 20"
    " pyromq standalone --namesrv-port 0 --broker-port 0 --grpc-port 0 --store /tmp/store"
)
_TIMEOUT_S: Final = 1800


class Unavailable(Exception):
    """Something is missing; the text says what."""


def ran(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
    if done.returncode:
        raise subprocess.SubprocessError(f"{' '.join(command)}: {(done.stdout + done.stderr).strip()[-800:]}")
    return done.stdout


def need(program: str) -> str:
    """Its path; apt installs it where that is allowed."""
    if shutil.which(program) is None:
        if shutil.which("apt-get") is None or os.geteuid() != 0:
            raise Unavailable(f"there is no {program}")
        try:
            ran("apt-get", "install", "-y", "--no-install-recommends", program)
        except subprocess.SubprocessError as problem:
            raise Unavailable(str(problem)) from None
    found = shutil.which(program)
    assert found is not None
    return found


def buildah(*words: str) -> str:
    """With images below build/image, and without a namespace of its own for each step."""
    places = ("--storage-driver", "vfs", "--root", str(WORK / "images"), "--runroot", str(WORK / "running"))
    return ran(need("buildah"), *places, *words).strip()


def base() -> str:
    """An image with this version of Python."""
    try:
        buildah("pull", "--quiet", PUBLISHED)
        return PUBLISHED
    except subprocess.SubprocessError as problem:
        reason = str(problem)
    root = WORK / "debian"
    try:
        if not root.exists():
            ran(need("debootstrap"), "--variant=minbase", f"--include={DEBIAN[1]}", DEBIAN[0], f"{root}.new")
            Path(f"{root}.new").rename(root)
        found = ran("chroot", str(root), "python", "-c", "import sys; print(*sys.version_info[:2], sep='.')")
    except subprocess.SubprocessError as problem:
        raise Unavailable(f"{reason}; {problem}") from None
    if found.strip() != VERSION:
        raise Unavailable(f"{reason}; Debian has Python {found.strip()}, not {VERSION}")
    made = buildah("from", "scratch")
    buildah("add", "--quiet", made, str(root), "/")
    buildah("commit", "--quiet", "--rm", made, OWN_BASE)
    return OWN_BASE


def built(wheels: Path | None) -> str:
    """The image's name."""
    shutil.rmtree(CONTEXT, ignore_errors=True)
    (CONTEXT / "dist").mkdir(parents=True)
    shutil.copy(ROOT / ".dockerignore", CONTEXT)
    if wheels is None:
        pip = (sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "-w", str(CONTEXT / "dist"))
        ran(*pip, str(ROOT), str(ROOT / "native"))
    else:
        for each in wheels.glob("*.whl"):
            shutil.copy(each, CONTEXT / "dist")
    # The network of this machine may have an authority that only this machine trusts.
    trusted = ssl.get_default_verify_paths().cafile or TRUST
    (WORK / "pip.conf").write_text(f"[global]\ncert = {TRUST}\n")
    volumes = ("-v", f"{trusted}:{TRUST}:ro", "-v", f"{WORK / 'pip.conf'}:/etc/pip.conf:ro")
    how = ("--isolation", "chroot", "--network", "host", "--build-arg", f"BASE={base()}")
    buildah("bud", *how, *volumes, "-f", str(FILE), "-t", "localhost/pyromq", str(CONTEXT))
    return "localhost/pyromq"


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="image", description=__doc__)
    parser.add_argument("--wheels", type=Path, help="use these, and build none")
    chosen = parser.parse_args(arguments)
    WORK.mkdir(parents=True, exist_ok=True)
    try:
        need("buildah")
        container = buildah("from", built(chosen.wheels))
    except Unavailable as reason:
        sys.stderr.write(f"image: nothing was built: {reason}\n")
        return UNAVAILABLE
    try:
        inside = ("run", "--isolation", "chroot", container, "--")
        version = buildah(*inside, "pyromq", "--version")
        said = buildah(*inside, *START.split())
    finally:
        buildah("rm", container)
    sys.stdout.write(f"image: {version}\nimage: {said}\n")
    return int("compiled core" not in version or "PyroMQ is ready" not in said)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
