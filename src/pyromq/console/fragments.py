"""Pages that refresh themselves, rendered once for all viewers of the same URL, language and role.

A refresh takes only the list from the answer, so it is rendered without the person; the next snapshot
makes it old.
"""

from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import replace

from starlette.responses import Response

from pyromq.console.page import Page, wants_json
from pyromq.console.visit import Visit

_KEPT = 256


class Fragments:
    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[object, ...], bytes] = OrderedDict()

    def __repr__(self) -> str:
        return f"<Fragments {len(self._kept)}>"

    async def answer(
        self, visit: Visit, page: Page, render: Callable[[Visit], Awaitable[Response]]
    ) -> Response:
        """The page: a refresh from what is kept, if there is one, anything else rendered anew."""
        if not page.live or visit.request.headers.get("hx-request") != "true" or wants_json(visit):
            return await render(visit)
        key = (
            visit.request.url.path,
            str(visit.query),
            visit.texts.language,
            visit.theme,
            visit.person.role,
            visit.snapshot.version,
        )
        content = self._kept.get(key)
        if content is None:
            rendered = await render(replace(visit, is_refresh=True))
            if rendered.status_code != 200:
                return rendered
            content = self._kept[key] = bytes(rendered.body)
            while len(self._kept) > _KEPT:
                self._kept.popitem(last=False)
        return Response(content, media_type="text/html; charset=utf-8")
