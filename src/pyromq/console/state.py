"""Everything the console has: its settings, clusters, users, sessions and audit log. Pages reach it as
`visit.state`.
"""

import asyncio
from functools import partial

from pyromq.clock import Clock, SystemClock
from pyromq.console.alerts import Alerts, poster
from pyromq.console.alerts_file import AlertsFile
from pyromq.console.bodies import Decode
from pyromq.console.clusters import Clusters
from pyromq.console.masking import Masks
from pyromq.console.security.attempts import Attempts
from pyromq.console.security.audit import AuditLog
from pyromq.console.security.openid import OpenId
from pyromq.console.security.origin import Origins
from pyromq.console.security.roles import Person, UserRole
from pyromq.console.security.sessions import BrowserSession, Sessions
from pyromq.console.security.users import Users
from pyromq.console.settings import ConsoleSettings
from pyromq.console.static_files import StaticFiles
from pyromq.console.store_jobs import StoreJobs
from pyromq.console.tailing import Readers
from pyromq.remoting.slices import Slices

ANONYMOUS = "anonymous"
_USERS_S = 1.0


class State:
    def __init__(
        self,
        settings: ConsoleSettings,
        users: Users,
        *,
        clock: Clock | None = None,
        decode: Decode | None = None,
    ) -> None:
        """`decode` reads bodies that name a schema of a registry."""
        self.settings = settings
        self.decode = decode
        self.users = users
        self._users_due_s = 0.0
        self.clock: Clock = clock if clock is not None else SystemClock()
        self.turns = Slices(self.clock)
        """Pages and snapshots are made in turns: many at once do not hold the loop together."""
        self.clusters = Clusters(settings, self.clock, self.turns)
        self.sessions = Sessions(self.clock, settings.session_idle_seconds)
        self.attempts = Attempts(self.clock)
        self.openid = OpenId(settings, self.clock) if settings.oidc_issuer else None
        self.origins = Origins(settings)
        self.static = StaticFiles()
        self.masks = Masks(settings.masked_names())
        self.readers = Readers(self.masks)
        self.store_jobs = StoreJobs(settings.store_directories(), self.clock)
        self.stream_turns = Slices(self.clock)
        self.is_stopping = False
        self.audit = AuditLog(
            settings.audit_file,
            self.clock,
            max_bytes=settings.audit_max_bytes,
            backups=settings.audit_backups,
        )
        self.alerts: Alerts | None = None
        """If the settings have a webhook."""
        if settings.webhook_url:
            self.alerts = Alerts(
                poster(settings.webhook_url),
                settings.webhook_after_seconds,
                AlertsFile(settings.alerts_file),
                self.clusters,
            )
        self._tasks: list[asyncio.Task[None]] = []
        self._named: dict[str, BrowserSession] = {}
        self.anonymous: BrowserSession | None = None
        """The session of everyone who has not logged in, if that is allowed."""
        if settings.anonymous_role != "NONE":
            role = UserRole[settings.anonymous_role]
            person = Person(ANONYMOUS, role, reads_bodies=role >= UserRole.OPERATOR)
            self.anonymous = BrowserSession(person, self.clock.monotonic())

    def __repr__(self) -> str:
        return f"<State {self.clusters!r} {self.users!r}>"

    def named(self, name: str) -> BrowserSession | None:
        """The session of whom a trusted proxy has logged in; None without a name, or for a stranger."""
        person = self.users.person(name) if name else None
        if person is None:
            return None
        session = self._named.get(name)
        if session is None or session.person != person:
            session = self._named[name] = BrowserSession(person, self.clock.monotonic())
        return session

    def follow_users(self) -> None:
        """Have changes of the users file count within a second: who was changed must log in again."""
        now_s = self.clock.monotonic()
        if now_s >= self._users_due_s:
            self._users_due_s = now_s + _USERS_S
            for name in self.users.read_again():
                self.sessions.close_all_of(name)

    def address(self, path: str) -> str:
        """The path of a page as browsers see it."""
        return self.settings.base_path + path

    async def open(self) -> None:
        await self.clusters.open()
        if self.alerts is not None:
            for name, shown in self.clusters.items():
                shown.watch.on_snapshot(partial(self.alerts.look, name))
            self._tasks.append(asyncio.create_task(self.alerts.run(), name="console alerts"))

    async def close(self) -> None:
        self.is_stopping = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.readers.stop()
        await self.store_jobs.stop()
        await self.clusters.close()
