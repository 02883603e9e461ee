"""The disks of a campaign: they fill up, slow down, fail, lose power and rot.

A store lies in a real directory, so that a killed process leaves what the kernel has. Next to it, in
`<name>.synced`, lies a copy of each file as of its last sync. After a loss of power every page that differs
from that copy may be the old one or the new one. Names count as safe: the simulation loses these, too.
"""

import contextlib
import errno
import os
import re
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path
from random import Random

from pyromq.filesystem import Files

_PAGE_BYTES = 4096
_MAPPED = ("commitlog", "consumequeue", "index")
"""Below these a file that was never synced has lost pages; other files are written and synced at once."""


_PADDING = b" " * 32
"""Bodies of the load end with spaces."""


def _synced(directory: Path) -> Path:
    return directory.parent / f"{directory.name}.synced"


class BreakableFiles(Files):
    """The machine's files below a directory; what is synced is copied."""

    def __init__(self, directory: Path) -> None:
        super().__init__()
        self._directory = directory
        self.delay_s = 0.0
        """How much longer each sync takes."""
        self.fails = False
        """Whether each sync fails."""

    def _copy(self, path: Path) -> Path:
        return _synced(self._directory) / path.relative_to(self._directory)

    def _keep(self, path: Path) -> None:
        """The copy is complete before anyone learns of the sync; a kill leaves the last one."""
        copy = self._copy(path)
        copy.parent.mkdir(parents=True, exist_ok=True)
        unfinished = copy.with_name(f"{copy.name}.{threading.get_ident()}.unfinished")
        shutil.copyfile(path, unfinished)
        unfinished.replace(copy)

    def _may_sync(self) -> None:
        time.sleep(self.delay_s)
        if self.fails:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    def sync(self, path: Path) -> None:
        self._may_sync()
        super().sync(path)
        self._keep(path)

    def write(self, path: Path, content: bytes, mode: int | None = None) -> None:
        self._may_sync()
        super().write(path, content, mode)
        self._keep(path)

    def overwrite(self, path: Path, position: int, content: bytes) -> None:
        self._may_sync()
        super().overwrite(path, position, content)
        self._keep(path)

    def rename(self, source: Path, target: Path) -> None:
        super().rename(source, target)
        copy = self._copy(source)
        if copy.exists():
            copy.replace(self._copy(target))

    def remove(self, path: Path) -> None:
        super().remove(path)
        self._copy(path).unlink(missing_ok=True)

    def remove_tree(self, path: Path) -> None:
        super().remove_tree(path)
        shutil.rmtree(self._copy(path), ignore_errors=True)


def lose_power(directory: Path, chance: Random) -> int:
    """The broker of this directory was killed, and its machine lost power. How many pages were lost."""
    lost = 0
    for path in sorted(directory.rglob("*")):
        copy = _synced(directory) / (place := path.relative_to(directory))
        if path.is_file() and (copy.exists() or not set(_MAPPED).isdisjoint(place.parts)):
            lost += _tear(path, copy.read_bytes() if copy.exists() else b"", chance)
    return lost


def _tear(path: Path, safe: bytes, chance: Random) -> int:
    """Give some pages of a file the content that was synced."""
    lost = 0
    with path.open("r+b") as file:
        size_bytes = os.fstat(file.fileno()).st_size
        for start in range(0, size_bytes, _PAGE_BYTES):
            page = os.pread(file.fileno(), _PAGE_BYTES, start)
            old = safe[start : start + _PAGE_BYTES].ljust(len(page), b"\0")
            if page != old and chance.random() < 0.5:
                os.pwrite(file.fileno(), old, start)
                lost += 1
    return lost


def bit_of_body(data: bytes, chance: Random) -> tuple[int, int] | None:
    """The place of a byte in a body of the load, and one of its bits; None if there is no body. Only bodies
    have checksums in RocketMQ's format."""
    bodies = [match.start() for match in re.finditer(_PADDING, data)]
    if not bodies:
        return None
    return chance.choice(bodies) + chance.randrange(len(_PADDING)), 1 << chance.randrange(8)


def flip_bit(directory: Path, chance: Random) -> str:
    """One bit of a body in the commit log turns over. Says where."""
    path = chance.choice(sorted((directory / "store" / "commitlog").iterdir()))
    content = path.read_bytes()
    if (flipped := bit_of_body(content, chance)) is None:
        return "nothing"
    position, bit = flipped
    with path.open("r+b") as file:
        os.pwrite(file.fileno(), bytes([content[position] ^ bit]), position)
    return f"{path.name}:{position}"


def remove_tables(directory: Path) -> None:
    """Topics, groups and offsets, with their backups."""
    for path in (directory / "store" / "config").glob("*.json*"):
        path.unlink()


class Disk:
    """A small disk under a directory, which can be filled: a tmpfs, if we may mount one."""

    def __init__(self, directory: Path, size_mib: int) -> None:
        self.directory = directory
        self._size_mib = size_mib
        self._ballast = directory / "ballast"
        self.is_mounted = False

    def mount(self) -> bool:
        self.directory.mkdir(parents=True, exist_ok=True)
        if sys.platform == "linux" and os.geteuid() == 0 and shutil.which("mount"):
            option = f"size={self._size_mib}m"
            command = ["mount", "-t", "tmpfs", "-o", option, "pyromq-chaos", str(self.directory)]
            self.is_mounted = subprocess.run(command, check=False, capture_output=True).returncode == 0
        return self.is_mounted

    def fill(self) -> None:
        """Not a byte more fits."""
        with contextlib.suppress(OSError), self._ballast.open("ab", buffering=0) as ballast:
            while True:
                ballast.write(bytes(1 << 16))

    def free(self) -> None:
        self._ballast.unlink(missing_ok=True)

    def unmount(self) -> None:
        if self.is_mounted:
            subprocess.run(["umount", "-l", str(self.directory)], check=False, capture_output=True)
            self.is_mounted = False
