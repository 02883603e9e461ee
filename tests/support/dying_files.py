"""A file system that is killed before one of its operations, and can then lose power."""

from pathlib import Path

from tests.support.faulty_files import FaultyFiles


class Killed(BaseException):
    """Not an Exception: nobody catches it, as nobody catches a kill."""


class DyingFiles(FaultyFiles):
    """Killed before one of its operations; counts them."""

    operations = 0
    dies_at = 1 << 62

    def _before(self, operation: str, path: Path) -> None:
        if operation not in ("map", "allocate"):  # these change nothing that a disk holds
            self.operations += 1
            if self.operations > self.dies_at:
                raise Killed
        super()._before(operation, path)
