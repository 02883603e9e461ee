"""Recurring work for programs without an event loop."""

from collections.abc import Callable
from datetime import timedelta
from typing import Unpack

from pyromq.client import schedule
from pyromq.client.blocking import BlockingClient
from pyromq.client.schedule import J
from pyromq.client.settings import ClientOptions


class Schedule(BlockingClient):
    """`@schedule.every(timedelta(minutes=5))` over `def clean_up(due: datetime)`; async functions, too.

    All processes of a group have the same jobs; one of them runs each turn. Needs brokers with timers.
    """

    _aio: schedule.Schedule

    def __init__(
        self,
        group: str,
        namesrv: str | None = None,
        *,
        topic: str | None = None,
        **options: Unpack[ClientOptions],
    ) -> None:
        """`topic`: where the ticks are; by default the group's name with `-schedule`."""
        super().__init__()
        self._aio = schedule.Schedule(group, namesrv, topic=topic, **options)

    def every(self, interval: timedelta, *, name: str | None = None) -> Callable[[J], J]:
        """Call a function at every multiple of the interval (since 1970, UTC), with the time that it is due.

        `name`: of the schedule; by default the function's. A turn that fails is logged.
        """
        return self._aio.every(interval, name=name)

    def cron(self, expression: str, *, tz: str = "UTC", name: str | None = None) -> Callable[[J], J]:
        """Call a function at the times of a cron expression, as in "0 3 * * mon-fri", in a time zone.

        The fields are minute, hour, day of the month, month, day of the week. A time that a change of the
        clocks skips is an hour later; one that comes twice counts once, unless the hour is `*`.
        """
        return self._aio.cron(expression, tz=tz, name=name)
