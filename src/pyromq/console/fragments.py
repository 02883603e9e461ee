"""Live pages, rendered once for all viewers of the same URL, language, colours and role.

They depend on the snapshot, and the next one makes them old. Only the place of the person's name is left
open; it is filled in for each viewer.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Final

from starlette.responses import Response

from pyromq.console.page import HTML, Page, name_of_person, wants_json
from pyromq.console.rendering import OPEN_PLACE
from pyromq.console.visit import Visit

_KEPT: Final = 256

Key = tuple[object, ...]


class Fragments:
    def __init__(self) -> None:
        self._kept: OrderedDict[Key, list[bytes]] = OrderedDict()
        """The parts of a page around the open place."""
        self._making: dict[Key, asyncio.Lock] = {}

    def __repr__(self) -> str:
        return f"<Fragments {len(self._kept)}>"

    async def answer(
        self, visit: Visit, page: Page, render: Callable[[Visit], Awaitable[Response]]
    ) -> Response:
        """The page: a live one from what is kept, if it is there, anything else rendered anew."""
        if not page.live or wants_json(visit):
            return await render(visit)
        key = (
            visit.request.url.path,
            str(visit.query),
            visit.texts.language,
            visit.theme,
            visit.person.role,
            visit.snapshot.version,
        )
        parts = self._kept.get(key)
        if parts is None:
            # Viewers that ask for it meanwhile wait, and do not have it rendered again.
            async with self._making.setdefault(key, asyncio.Lock()):
                parts = self._kept.get(key)
                if parts is None:
                    try:
                        rendered = await render(replace(visit, is_shared=True))
                    finally:
                        self._making.pop(key, None)
                    if rendered.status_code != 200:
                        return rendered
                    parts = self._kept[key] = bytes(rendered.body).split(OPEN_PLACE.encode())
                    while len(self._kept) > _KEPT:
                        self._kept.popitem(last=False)
        return Response(name_of_person(visit).encode().join(parts), media_type=HTML)
