"""`Admin` for programs without an event loop."""

from collections.abc import Iterable
from typing import Unpack

from pyromq.admin import facade
from pyromq.client.blocking import Blocking, awaited
from pyromq.client.settings import ClientOptions


class Admin(Blocking):
    """`with Admin("127.0.0.1:9876") as admin: admin.create_topic("Orders")`.

    `NotFound` says that a topic or a group does not exist. Everything else is in `mqadmin`.
    """

    _aio: facade.Admin

    def __init__(self, namesrv: str | Iterable[str] | None = None, **options: Unpack[ClientOptions]) -> None:
        """`namesrv`: addresses of name servers or a URL, None: PYROMQ_URL or NAMESRV_ADDR."""
        super().__init__()
        self._aio = facade.Admin(namesrv, **options)

    create_topic = awaited(facade.Admin.create_topic)
    topics = awaited(facade.Admin.topics)
    describe_topic = awaited(facade.Admin.describe_topic)
    delete_topic = awaited(facade.Admin.delete_topic)
    groups = awaited(facade.Admin.groups)
    lag = awaited(facade.Admin.lag)
    delete_group = awaited(facade.Admin.delete_group)
    purge = awaited(facade.Admin.purge)
    erase = awaited(facade.Admin.erase)
    erasures = awaited(facade.Admin.erasures)
    reset_offsets = awaited(facade.Admin.reset_offsets)
