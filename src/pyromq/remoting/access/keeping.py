"""The rules of one server: read from their files, read again when these change, changed by requests.

A changed file that cannot be read changes nothing: the server keeps the rules it has, and logs a warning.
"""

import asyncio
import hmac
import logging
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Final

from pyromq.clock import Clock
from pyromq.errors import ConfigError, Refused
from pyromq.filesystem import Files
from pyromq.protocol.catalogue import Answer
from pyromq.protocol.codes import ResponseCode
from pyromq.protocol.requests.access import AccessTable
from pyromq.remoting.access.account_files import AccountFiles
from pyromq.remoting.access.control import AccessControl, Strictness
from pyromq.remoting.access.settings import AccessSettings
from pyromq.remoting.access.users_file import Stamp, UsersFile, rules_in, table_of
from pyromq.security.decision import Rules
from pyromq.security.migration import migrated
from pyromq.security.signature import Credentials
from pyromq.security.users import UserRules

_log = logging.getLogger(__name__)

_CHECK_S: Final = 1.0


class AccessRules:
    """`control` is the server's admission, None if access control is off."""

    def __init__(
        self,
        settings: AccessSettings,
        clock: Clock,
        *,
        directory: Path,
        cluster: str = "",
        files: Files | None = None,
    ) -> None:
        """`directory`: where users are kept unless settings say otherwise. Raises ConfigError."""
        self.accounts = AccountFiles(settings.acl_file, clock.now_ms) if settings.acl_enable else None
        self._users_file = (
            UsersFile(settings.auth_config_path or directory, files) if settings.authentication else None
        )
        self._listeners: list[Callable[[], None]] = []
        self.copied: Callable[[], Callable[[], Awaitable[str | None]]] | None = None
        """Gives a function that waits for the replicas that must have a change, too, and returns a remark for
        the answer."""
        self._writing = asyncio.Lock()
        self._told = ""
        self._own: Credentials | None = None
        self._own_problem = ""
        self.is_new = False
        """It has its first users only, and has taken over none."""
        self._stamp: Stamp = ()
        self.users = UserRules(cluster=cluster, decides=settings.authorization)
        self.control: AccessControl | None = None
        if not settings.controls_access:
            return
        self._stamp = self._stamp_now()
        rules = self._load()
        self.is_new = not self.users.users
        if self._users_file is not None:
            self.users = self._with_first_users(self.users, settings, clock)
            rules = self.users
        own = self._own = settings.credentials
        strictness = Strictness(
            free_codes=settings.free_codes,
            unchecked_codes=settings.unchecked_codes,
            certificate_users=settings.users_of_certificates,
            inner_user=own.access_key if own is not None else "",
            trusts_plain_connections=settings.trust_plain_connections,
            requires_full_signatures=settings.require_full_signature,
            allows_admin_without_tls=settings.allow_admin_without_tls,
            max_request_age_ms=settings.max_request_age_ms,
            max_send_age_ms=settings.max_send_age_ms,
            max_call_age_ms=settings.max_call_age_ms,
            is_version_1=settings.acl_enable,
        )
        self.control = AccessControl(rules, clock, strictness)
        self._check_own()

    def __repr__(self) -> str:
        return f"<AccessRules {self.control!r} users={len(self.users.users)}>"

    def _with_first_users(self, rules: UserRules, settings: AccessSettings, clock: Clock) -> UserRules:
        users = {user.name: user for user in settings.first_users} | rules.users
        wanted = UserRules(users, rules.policies, rules.cluster, rules.decides)
        if settings.migrate_accounts:
            wanted = migrated(AccountFiles(settings.acl_file, clock.now_ms).load(), wanted)
        if not wanted.users:
            raise ConfigError("initAuthenticationUser", "", "the first user, because there are no users yet")
        if wanted != rules:
            assert self._users_file is not None
            self._users_file.save(wanted)
            self._stamp = self._stamp_now()
        return wanted

    def attributes_of(self, user: str) -> Mapping[str, str]:
        found = self.users.users.get(user)
        return {} if found is None else found.attributes

    def on_change(self, listener: Callable[[], None]) -> None:
        """Call `listener` when users or policies have changed."""
        self._listeners.append(listener)

    # Files that others change

    async def run(self) -> None:
        while self.control is not None:
            await asyncio.sleep(_CHECK_S)
            await self.check_files()
        await asyncio.Event().wait()  # nothing to watch

    async def check_files(self) -> None:
        """Read files that have changed; a broken one is reported once and changes nothing."""
        async with self._writing:
            await self._check_files()

    async def _check_files(self) -> None:
        stamp = await asyncio.to_thread(self._stamp_now)
        if stamp == self._stamp:
            return
        try:
            rules = await asyncio.to_thread(self._load)
        except ConfigError as problem:
            if self._told != str(problem):
                self._told = str(problem)
                _log.warning("access rules not read again, the old ones still hold: %s", problem)
            return
        self._stamp, self._told = stamp, ""
        self._apply(rules)
        _log.info("access rules read again files=%d", len(stamp))

    def _stamp_now(self) -> Stamp:
        if self.accounts is not None:
            return self.accounts.stamp()
        return self._users_file.stamp() if self._users_file is not None else ()

    def _load(self) -> Rules:
        if self.accounts is not None:
            return self.accounts.load()
        assert self._users_file is not None
        loaded = self._users_file.load(UserRules(cluster=self.users.cluster, decides=self.users.decides))
        if self.control is None:
            self.users = loaded
        return loaded

    def _apply(self, rules: Rules) -> None:
        if isinstance(rules, UserRules):
            self.users = rules
        if self.control is not None:
            self.control.replace(rules)
        self._check_own()
        for listener in self._listeners:
            listener()

    def _check_own(self) -> None:
        """Servers have the same users: if this one could not sign in here, the others refuse it, too."""
        if self._own is None or not self.keeps_users:
            return
        name, problem = self._own.access_key, ""
        known = [
            hmac.compare_digest(secret.encode(), self._own.secret_key.encode())
            for secret in self.users.secrets_of(name)
        ]
        if True not in known:
            problem = "is not the one in the table of users: servers with the same table refuse this one"
        elif not known[0]:
            problem = "is the old one: put the new one into the file and start this server again"
        elif not self.users.is_administrator(name):
            problem = "belongs to a user who is not a super user: servers refuse this one"
        if problem != self._own_problem:
            if problem:
                _log.warning("the password of %s in innerClientAuthenticationCredentials %s", name, problem)
            else:
                _log.info("the password of %s in innerClientAuthenticationCredentials is right", name)
            self._own_problem = problem

    # Changes by requests

    async def change_users(self, change: Callable[[UserRules], UserRules]) -> Answer:
        """Replace users and policies; on return the change is safe, unless the answer has a remark. `change`
        may refuse it. Raises Refused if the disk does."""
        copied = self.copied() if self.copied is not None else None
        async with self._writing:
            await self._check_files()
            new = change(self.users)
            assert self._users_file is not None
            try:
                await asyncio.to_thread(self._users_file.save, new)
                self._stamp = await asyncio.to_thread(self._stamp_now)
            except OSError as problem:
                # If the file is there all the same, the next look at it lets it take effect.
                raise Refused(
                    ResponseCode.SYSTEM_ERROR,
                    f"the users cannot be written: {problem}. See whether the change counts, and try again",
                ) from problem
            self._apply(new)
        return Answer(remark=await copied() if copied is not None else None)

    async def change_accounts(self, change: Callable[[AccountFiles], bool]) -> bool:
        """Change the account files; whether there was something to change."""
        async with self._writing:
            assert self.accounts is not None
            is_changed = await asyncio.to_thread(change, self.accounts)
            await self._check_files()
            return is_changed

    def refused(self) -> int:
        """How many requests were refused."""
        return 0 if self.control is None else self.control.refused

    # Replicas

    @property
    def keeps_users(self) -> bool:
        return self._users_file is not None

    def table(self) -> AccessTable:
        table = table_of(self.users)
        table.place = self._users_file.place if self._users_file is not None else None
        return table

    async def copy(self, table: AccessTable) -> None:
        """Take over the users and policies of the master, unless both use the same file: what the master has
        sent may be older than what is there."""
        if self._users_file is not None and table.place != self._users_file.place:
            await self.change_users(lambda rules: rules_in(table, rules))
            self.is_new = False
