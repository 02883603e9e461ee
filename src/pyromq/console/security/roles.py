"""The rights of a person: a role, whether they may read bodies, and the names they may touch."""

from enum import IntEnum
from fnmatch import fnmatchcase

import msgspec


class UserRole(IntEnum):
    """Each role may do what those before it may."""

    VIEWER = 1
    OPERATOR = 2
    ADMIN = 3

    @property
    def word(self) -> str:
        return self.name.lower()


class Person(msgspec.Struct, frozen=True):
    """A person who is looking. `names` are patterns of topics and groups; none means all of them."""

    name: str
    role: UserRole
    reads_bodies: bool = False
    names: tuple[str, ...] = ()

    def may_touch(self, name: str) -> bool:
        return not self.names or any(fnmatchcase(name, pattern) for pattern in self.names)


def role_of(word: str) -> UserRole:
    """Raises ValueError for an unknown word."""
    try:
        return UserRole[word.upper()]
    except KeyError:
        raise ValueError(f"{word!r} is not a role; expected viewer, operator or admin") from None
