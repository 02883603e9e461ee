"""Users and policies in `access.json`; `access.key` next to it encrypts the passwords.

The file may be shared by several servers on one machine: each reads it again when another has changed it.
"""

from collections.abc import Mapping
from pathlib import Path

from pyromq.chance import process_id
from pyromq.config.durable_file import DurableFile
from pyromq.errors import ConfigError, PyroError
from pyromq.filesystem import Files
from pyromq.protocol import json_body
from pyromq.protocol.requests.access import AccessTable
from pyromq.security.sealing import KEY_BYTES, new_key, seal, unseal
from pyromq.security.users import Policies, UserRules, acl_info, policies_of, subject_name, user_info, user_of

Stamp = tuple[tuple[str, int, int], ...]
"""Distinguishes a file from its earlier and later contents."""


def stamp_of(*paths: Path) -> Stamp:
    found = []
    for path in paths:
        try:
            status = path.stat()
        except OSError:
            continue
        found.append((str(path), status.st_mtime_ns, status.st_size))
    return tuple(found)


def table_of(rules: UserRules) -> AccessTable:
    return AccessTable(
        users=[user_info(user, shows_passwords=True) for user in rules.users.values()],
        acls=[acl_info(name, policies) for name, policies in rules.policies.items() if policies],
    )


def rules_in(table: AccessTable, like: UserRules) -> UserRules:
    """The rules in a table, in the cluster of others; raises ConfigError."""
    users = {name: user_of(info, name) for info in table.users if (name := info.username or "")}
    policies: Mapping[str, Policies] = {subject_name(acl.subject): policies_of(acl) for acl in table.acls}
    return UserRules(users, dict(policies), like.cluster, like.decides)


class UsersFile:
    """Blocking."""

    def __init__(self, directory: Path, files: Files | None = None) -> None:
        self._files = files or Files()
        self._file = DurableFile(directory / "access.json", self._files)
        self._key_path = directory / "access.key"

    def __repr__(self) -> str:
        return f"<UsersFile {self._file.path}>"

    def stamp(self) -> Stamp:
        return stamp_of(self._file.path)

    @property
    def place(self) -> str:
        """The same for servers that use the same directory, and for no others."""
        return self._files.place(self._file.path.parent)

    def load(self, empty: UserRules) -> UserRules:
        """Raises ConfigError if there is a file but it cannot be read: better no server than an open one."""
        problems = []
        for path, data in self._file.contents():
            try:
                table = json_body.decode(data, AccessTable)
                for info in table.users:
                    info.password = unseal(info.password or "", self._key(), info.username or "")
                    if info.old_password:
                        info.old_password = unseal(info.old_password, self._key(), info.username or "")
                return rules_in(table, empty)
            except PyroError as problem:
                problems.append(f"{path}: {problem}")
        if problems:
            raise ConfigError(str(self._file.path), "", f"a table of users ({'; '.join(problems)})")
        return empty

    def save(self, rules: UserRules) -> None:
        table = table_of(rules)
        for info in table.users:
            info.password = seal(info.password or "", self._key(), info.username or "")
            if info.old_password:
                info.old_password = seal(info.old_password, self._key(), info.username or "")
        self._file.save(json_body.encode(table))
        self._file.path.chmod(0o600)

    def _key(self) -> bytes:
        try:
            key = self._files.read(self._key_path)
        except FileNotFoundError:
            return self._new_key()
        if len(key) != KEY_BYTES:
            raise ConfigError(str(self._key_path), f"{len(key)} bytes", f"{KEY_BYTES} bytes")
        return key

    def _new_key(self) -> bytes:
        if self._file.path.exists():
            raise ConfigError(
                str(self._key_path), "", f"the key of {self._file.path}; restore it from a backup"
            )
        fresh = self._key_path.with_name(f"{self._key_path.name}.{process_id()}")
        self._files.write(fresh, key := new_key(), 0o600)
        try:
            self._files.link(fresh, self._key_path)
        except FileExistsError:  # by another server, a moment ago
            return self._files.read(self._key_path)
        finally:
            self._files.remove(fresh)
        self._files.sync_all_directories()
        return key
