"""A page: one function, one template, two forms. Browsers get HTML, `Accept: application/json` the same
data as JSON.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlencode

import msgspec
from starlette.responses import JSONResponse, RedirectResponse, Response

from pyromq.console.languages import LANGUAGES
from pyromq.console.rendering import render, render_in_turns, segment
from pyromq.console.security.roles import UserRole
from pyromq.console.visit import Visit

THEMES = ("auto", "light", "dark")
HTML = "text/html; charset=utf-8"
Data = dict[str, Any]
Show = Callable[[Visit], Awaitable[Data | Response]]

NAVIGATION = (
    ("overview", "", "o"),
    ("problems", "problems", "p"),
    ("topics", "topics", "t"),
    ("groups", "groups", "g"),
    ("dlq", "dlq", "d"),
    ("brokers", "brokers", "b"),
    ("nameservers", "nameservers", "n"),
    ("controllers", "controllers", "r"),
    ("clients", "clients", "c"),
    ("pipelines", "pipelines", "l"),
)
"""The rail: the key of the text, the path below the cluster, and the second key after `g`."""


@dataclass(frozen=True, slots=True)
class Page:
    path: str
    show: Show
    template: str
    needs: UserRole | None = UserRole.VIEWER
    """None for pages that need no login."""
    live: bool = False
    """Whether the page fetches itself again with each new snapshot; only pages that send no requests to the
    cluster may."""

    @property
    def section(self) -> str:
        """The entry of the rail that leads here."""
        first = self.path.removeprefix("/c/{cluster}").strip("/").partition("/")[0]
        return first or "overview"


def wants_json(visit: Visit) -> bool:
    accepted = visit.request.headers.get("accept", "")
    return visit.query.get("format") == "json" or (
        "application/json" in accepted and "text/html" not in accepted
    )


def answer(
    visit: Visit, template: str, data: Data, *, section: str = "", live: bool = False, status: int = 200
) -> Response:
    """The data of a page in the form that was asked for."""
    if wants_json(visit):
        return _json(data, status)
    return Response(
        render(template, context(visit, section) | {"live": live} | data), status, media_type=HTML
    )


async def answer_in_turns(visit: Visit, page: Page, data: Data) -> Response:
    """The same for a page that may be long: others have their turns while it is made."""
    if wants_json(visit):
        return _json(data)
    values = context(visit, page.section) | {"live": page.live} | data
    return Response(await render_in_turns(page.template, values, visit.state.turns), media_type=HTML)


def _json(data: Data, status: int = 200) -> Response:
    plain = {key: value for key, value in data.items() if not key.startswith("_")}
    return Response(msgspec.json.encode(plain, enc_hook=_plain), status, media_type="application/json")


def _plain(value: object) -> object:
    if hasattr(value, "facts"):
        return value.facts()
    if isinstance(value, set | frozenset):
        return sorted(value)
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    try:
        return dict(value)  # type: ignore[call-overload]
    except (TypeError, ValueError):
        return str(value)


def name_of_person(visit: Visit) -> str:
    """The text for the open place of a shared page."""
    return render("person.html", {"t": visit.texts, **_who(visit)})


def _who(visit: Visit) -> Data:
    return {
        "outside": lambda path, **query: visit.state.address(path) + _query(query),
        "person": None if visit.session is None else visit.session.person,
    }


def context(visit: Visit, section: str) -> Data:
    """The names that every template may use besides its own data."""
    state = visit.state

    def url(*parts: object, **query: object) -> str:
        """A page of the cluster in view; `url("topics", name, q="x")`."""
        path = "/".join(segment(part) for part in parts if part != "")
        base = f"/c/{segment(visit.cluster_name)}/" if visit.shown is not None else "/"
        return state.address(base + path) + _query(query)

    def here(**changes: object) -> str:
        """This page with some parameters of its URL changed; the others stay."""
        kept = {key: value for key, value in visit.query.items() if key not in ("lang", "theme")}
        wanted = {key: value for key, value in (kept | changes).items() if value not in (None, "")}
        return state.address(quote(visit.request.scope["path"])) + _query(wanted)

    return {
        "t": visit.texts,
        "lang": visit.texts.language,
        "languages": LANGUAGES,
        "theme": visit.theme,
        "themes": THEMES,
        "is_shared": visit.is_shared,
        "csrf": "" if visit.session is None or visit.is_shared else visit.session.token,
        "is_anonymous": visit.session is not None and visit.session is state.anonymous,
        "read_only": state.settings.read_only,
        "cluster_name": visit.cluster_name,
        "clusters": list(state.clusters),
        "snapshot": visit.shown.snapshot if visit.shown is not None else None,
        "unanswered": sorted(visit.asked.unanswered) if visit.asked is not None else [],
        "now_ms": visit.now_ms,
        "navigation": NAVIGATION,
        "section": section,
        "static": {
            name: state.address(f"/static/{address}") for name, address in state.static.addresses.items()
        },
        "url": url,
        **_who(visit),
        "here": here,
        "sees": lambda role: visit.session is not None and visit.person.role >= UserRole[role],
        "may": lambda role: (
            visit.session is not None
            and visit.person.role >= UserRole[role]
            and (not state.settings.read_only or UserRole[role] is UserRole.VIEWER)
        ),
    }


def _query(query: dict[str, Any]) -> str:
    wanted = {key: value for key, value in query.items() if value is not False and value not in (None, "")}
    return f"?{urlencode(wanted)}" if wanted else ""


def redirect(visit: Visit, path: str, **query: object) -> Response:
    """To another page of ours; a GET, whatever this was."""
    return RedirectResponse(visit.state.address(path) + _query(query), 303)


def refuse(visit: Visit, status: int, text: str, hint: str = "") -> Response:
    """A page that says what went wrong, in the form that was asked for."""
    data: Data = {"status": status, "error": text, "hint": hint}
    if wants_json(visit):
        return JSONResponse(data, status)
    return answer(visit, "error.html", data, status=status)
