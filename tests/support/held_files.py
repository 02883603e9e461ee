"""Files that a test keeps from becoming safe."""

import threading
from pathlib import Path

from pyromq.filesystem import Files

MAX_HELD_S = 60.0


class HeldFiles(Files):
    """While `let` is cleared, nothing becomes safe on disk."""

    def __init__(self) -> None:
        super().__init__()
        self.let = threading.Event()
        self.let.set()

    def sync(self, path: Path) -> None:
        assert self.let.wait(MAX_HELD_S)
        super().sync(path)
