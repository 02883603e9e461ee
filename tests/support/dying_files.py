"""A file system that is killed before one of its operations, and can then lose power."""

from typing import Any

from tests.support.faulty_files import FaultyFiles


class Killed(BaseException):
    """Not an Exception: nobody catches it, as nobody catches a kill."""


class DyingFiles(FaultyFiles):
    """Killed before one of its operations; counts them."""

    operations = 0
    dies_at = 1 << 62

    def _count(self) -> None:
        self.operations += 1
        if self.operations > self.dies_at:
            raise Killed


def _dying(name: str) -> Any:
    def operate(self: DyingFiles, *arguments: Any, **named: Any) -> Any:
        self._count()
        return getattr(FaultyFiles, name)(self, *arguments, **named)

    return operate


for _name in (
    "create",
    "resize",
    "zero_after",
    "sync",
    "write",
    "overwrite",
    "rename",
    "remove",
    "remove_tree",
    "_sync_directory_now",
):
    setattr(DyingFiles, _name, _dying(_name))
