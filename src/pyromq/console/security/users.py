"""The users file: scrypt hashes, readable by its owner alone; an unknown name costs as much as a wrong
password.
"""

import hashlib
import hmac
import logging
import os
from pathlib import Path
from secrets import token_bytes, token_urlsafe

import msgspec

from pyromq.console.security.roles import Person, UserRole, role_of
from pyromq.errors import ConfigError

_log = logging.getLogger(__name__)

FIRST_ADMIN = "admin"
MIN_PASSWORD = 10

_COST = {"n": 2**14, "r": 8, "p": 1}
_HASH_BYTES = 32
_OPEN_TO_OTHERS = 0o077


class ConsoleUser(msgspec.Struct, frozen=True, rename="camel"):
    """One line of the file. `names` are patterns of the topics and groups this user may change."""

    name: str
    role: str
    salt: str
    hash: str
    reads_bodies: bool = False
    names: tuple[str, ...] = ()

    def person(self) -> Person:
        return Person(self.name, role_of(self.role), self.reads_bodies, self.names)

    def has_password(self, password: str) -> bool:
        return hmac.compare_digest(_scrypt(password, bytes.fromhex(self.salt)).hex(), self.hash)


class ConsoleUsersFile(msgspec.Struct):
    users: list[ConsoleUser] = []


_NOBODY = ConsoleUser("", "viewer", "00" * 16, "00" * _HASH_BYTES)


class Users:
    """`Users(path).load()`, then `check(name, password)`; changes are written at once."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._users: dict[str, ConsoleUser] = {}
        self._stamp: tuple[int, int, int] | None = None

    def __repr__(self) -> str:
        return f"<Users {self.path} {len(self._users)}>"

    def __len__(self) -> int:
        return len(self._users)

    def names(self) -> list[str]:
        return sorted(self._users)

    def load(self) -> "Users":
        """Read the file, if there is one; ConfigError if others may read it, or if it makes no sense."""
        try:
            mode, content = self.path.stat().st_mode, self.path.read_bytes()
        except FileNotFoundError:
            return self
        self._stamp = self._stamp_now()
        if mode & _OPEN_TO_OTHERS:
            raise ConfigError(str(self.path), oct(mode & 0o777), f"mode 600: chmod 600 {self.path}")
        try:
            found = msgspec.json.decode(content, type=ConsoleUsersFile).users
            for user in found:
                role_of(user.role)
        except (msgspec.MsgspecError, ValueError) as problem:
            raise ConfigError(str(self.path), "", f"a users file: {problem}") from None
        self._users = {user.name: user for user in found}
        return self

    def read_again(self) -> set[str]:
        """Read the file if it has changed; returns the names of users whose rights or password did.

        A file that is gone or makes no sense changes nothing; the log says so, once.
        """
        stamp = self._stamp_now()
        if stamp == self._stamp:
            return set()
        self._stamp = stamp
        before = self._users
        try:
            if stamp is None:
                raise ConfigError(str(self.path), "", "a users file; it is gone")
            self.load()
        except (ConfigError, OSError) as problem:
            _log.warning("users not read again, the old ones still hold: %s", problem)
            return set()
        _log.info("users read again count=%d", len(self._users))
        return {name for name, user in before.items() if self._users.get(name) != user}

    def _stamp_now(self) -> tuple[int, int, int] | None:
        try:
            found = self.path.stat()
        except OSError:
            return None
        return found.st_mtime_ns, found.st_size, found.st_ino

    def put(
        self,
        name: str,
        password: str,
        role: UserRole,
        *,
        reads_bodies: bool = False,
        names: tuple[str, ...] = (),
    ) -> None:
        """Add a user, or change one."""
        if not name.isprintable() or not 1 <= len(name) <= 64:
            raise ConfigError("user", name, "a name of 1 to 64 printable characters")
        if len(password) < MIN_PASSWORD:
            raise ConfigError("password", "******", f"at least {MIN_PASSWORD} characters")
        salt = token_bytes(16)
        hashed = _scrypt(password, salt).hex()
        self._users[name] = ConsoleUser(name, role.word, salt.hex(), hashed, reads_bodies, names)
        self._save()

    def remove(self, name: str) -> None:
        if name not in self._users:
            raise ConfigError("user", name, f"one of {', '.join(self.names()) or 'no users yet'}")
        del self._users[name]
        self._save()

    def make_first(self) -> str:
        """Add the first administrator; returns the password, which is kept nowhere."""
        password = token_urlsafe(18)
        self.put(FIRST_ADMIN, password, UserRole.ADMIN, reads_bodies=True)
        return password

    def person(self, name: str) -> Person | None:
        user = self._users.get(name)
        return None if user is None else user.person()

    def check(self, name: str, password: str) -> Person | None:
        """The user with this name and password. Blocking: about 50 ms of computing, whoever asks."""
        user = self._users.get(name, _NOBODY)
        is_right = user.has_password(password)
        return user.person() if is_right and user is not _NOBODY else None

    def _save(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        fresh = self.path.with_name(self.path.name + ".new")
        fresh.unlink(missing_ok=True)
        content = msgspec.json.format(msgspec.json.encode(ConsoleUsersFile(list(self._users.values()))))
        with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(self.path)
        self._stamp = self._stamp_now()


def _scrypt(password: str, salt: bytes) -> bytes:
    return hashlib.scrypt(
        password.encode("utf-8", "surrogatepass"),
        salt=salt,
        dklen=_HASH_BYTES,
        maxmem=64 * 1024 * 1024,
        **_COST,
    )
