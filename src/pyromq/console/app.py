"""The app: a route for each page and one for all operations, and who may pass.

A page is never shown before the session is known; a write is refused unless our own page sent it.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any
from urllib.parse import quote

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Match, Route

from pyromq.admin.failures import NotFound
from pyromq.console.all_pages import PAGES, STREAMS
from pyromq.console.forms import read_form, sent_token
from pyromq.console.fragments import Fragments
from pyromq.console.gate import Gate
from pyromq.console.languages import LANGUAGES, Texts, chosen_language
from pyromq.console.metering import console_metrics
from pyromq.console.page import THEMES, Page, answer, answer_in_turns, redirect, refuse, wants_json
from pyromq.console.pages import downloads, login, operation, probes
from pyromq.console.security.audit import CannotAudit
from pyromq.console.security.origin import has_token, why_forged
from pyromq.console.security.sessions import TooMany
from pyromq.console.state import State
from pyromq.console.visit import COOKIE, SECURE_COOKIE, Visit
from pyromq.errors import ConfigError, PyroError, Refused
from pyromq.protocol.codes import ResponseCode

_log = logging.getLogger(__name__)

_YEAR_S = 365 * 86_400
_NOBODY_WAITS = 499
_STATUS_OF_REFUSALS: dict[int, int] = {
    ResponseCode.MESSAGE_ILLEGAL: 400,
    ResponseCode.SUBSCRIPTION_PARSE_FAILED: 400,
    ResponseCode.INVALID_PARAMETER: 400,
    ResponseCode.TOPIC_NOT_EXIST: 404,
    ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST: 404,
}
"""A server that refuses what somebody asked for has answered as expected; 502 for other refusals."""
Answer = Callable[[Visit], Awaitable[Response]]


def make_app(state: State) -> Starlette:
    fragments = Fragments()
    routes = [
        Route("/static/{name}", state.static.serve, methods=["GET"]),
        Route("/health", probes.health(state), methods=["GET"]),
        Route("/ready", probes.ready(state), methods=["GET"]),
        Route("/metrics", probes.metrics(console_metrics(state)), methods=["GET"]),
        Route("/login", _posting(state, login.log_in, needs_session=False), methods=["POST"]),
        Route("/login/oidc", _entering(state, login.to_provider), methods=["GET"]),
        Route("/login/oidc/callback", _entering(state, login.from_provider), methods=["GET"]),
        Route("/logout", _posting(state, login.log_out), methods=["POST"]),
        Route("/c/{cluster}/do/{operation}", _posting(state, _operate), methods=["POST"]),
        *(Route(page.path, _showing(state, page, fragments), methods=["GET"]) for page in PAGES),
        *(
            Route(path, _streaming(state, stream), methods=["GET"])
            for path, stream in (STREAMS | downloads.ALL).items()
        ),
    ]
    app = Starlette(
        routes=routes,
        middleware=[Middleware(Gate, settings=state.settings, origins=state.origins)],
        exception_handlers={HTTPException: _not_found(state), 500: _broken},
    )
    # Starlette would lead to the address that a proxy uses, without the base path.
    app.router.redirect_slashes = False
    return app


def _visit(state: State, request: Request) -> Visit:
    state.follow_users()
    origin = state.origins.of(request)
    cookies = request.cookies
    cookie = cookies.get(SECURE_COOKIE if origin.is_secure else COOKIE)
    # A proxy that logs people in knows better than an old cookie.
    session = state.named(origin.user) or state.sessions.find(cookie) or state.anonymous
    asked, theme = request.query_params.get("lang"), request.query_params.get("theme")
    language = chosen_language(asked, cookies.get("lang"), request.headers.get("accept-language", ""))
    kept = {}
    if asked in LANGUAGES:
        kept["lang"] = asked
    if theme in THEMES:
        kept["theme"] = theme
    chosen = theme if theme in THEMES else cookies.get("theme", "auto")
    visit = Visit(
        request, state, origin, session, Texts(language), chosen if chosen in THEMES else "auto", cookies=kept
    )
    name = request.path_params.get("cluster")
    if name is not None and session is not None:
        visit.shown = state.clusters.get(name)
        if visit.shown is not None:
            visit.asked = visit.shown.cluster.apart()
    return visit


async def _answered(visit: Visit, work: Callable[[], Awaitable[Response]]) -> Response:
    """The page, or one that says what went wrong."""
    if visit.request.path_params.get("cluster") is not None and visit.shown is None:
        return refuse(visit, 404, visit.texts("error.no_cluster", name=visit.request.path_params["cluster"]))
    try:
        response = await work()
    except HTTPException as refusal:
        response = refuse(visit, refusal.status_code, str(refusal.detail))
    except NotFound as missing:
        response = refuse(visit, 404, str(missing))
    except ConfigError as wrong:
        response = refuse(visit, 400, str(wrong))
    except TooMany:
        response = refuse(visit, 429, visit.texts("error.too_many"))
    except CannotAudit as problem:
        response = refuse(visit, 503, str(problem))
    except Refused as refusal:
        response = refuse(visit, _STATUS_OF_REFUSALS.get(refusal.code, 502), str(refusal))
    except PyroError as problem:
        response = refuse(visit, 502, str(problem), visit.texts("error.cluster_hint"))
    _keep_choices(visit, response)
    return response


def _keep_choices(visit: Visit, response: Response) -> None:
    for key, value in visit.cookies.items():
        response.set_cookie(
            key,
            value,
            max_age=_YEAR_S,
            path=visit.state.address("/"),
            secure=visit.origin.is_secure,
            httponly=True,
            samesite="strict",
        )


def _to_login(visit: Visit) -> Response:
    if wants_json(visit):
        return JSONResponse({"status": 401, "error": visit.texts("error.log_in")}, 401)
    return redirect(visit, "/login", next=quote(visit.request.scope["path"]) + _sent_query(visit.request))


def _sent_query(request: Request) -> str:
    query = request.scope["query_string"].decode("latin-1")
    return f"?{query}" if query else ""


def _showing(state: State, page: Page, fragments: Fragments) -> Callable[[Request], Awaitable[Response]]:
    async def show(request: Request) -> Response:
        await state.turns.wait_for_turn()
        visit = _visit(state, request)
        if page.needs is not None and visit.session is None:
            return _to_login(visit)

        async def work() -> Response:
            if page.needs is not None and visit.person.role < page.needs:
                raise HTTPException(
                    403, visit.texts("error.role", role=visit.texts(f"role.{page.needs.word}"))
                )
            return await fragments.answer(visit, page, render)

        async def render(seen: Visit) -> Response:
            data = await page.show(seen)
            if isinstance(data, Response):
                return data
            await state.turns.wait_for_turn()
            return await answer_in_turns(seen, page, data)

        return await _answered(visit, work if page.live else lambda: _while_waited_for(request, work()))

    return show


async def _while_waited_for(request: Request, work: Coroutine[Any, Any, Response]) -> Response:
    """The answer of a page that asks the cluster; if its tab is closed before, the asking ends, too."""
    making, leaving = asyncio.create_task(work), asyncio.create_task(_left(request))
    try:
        await asyncio.wait((making, leaving), return_when=asyncio.FIRST_COMPLETED)
        return making.result() if making.done() else Response(status_code=_NOBODY_WAITS)
    finally:
        for task in (making, leaving):
            task.cancel()
        await asyncio.gather(making, leaving, return_exceptions=True)


async def _left(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _streaming(
    state: State, stream: Callable[[Visit], Awaitable[Response]]
) -> Callable[[Request], Awaitable[Response]]:
    async def show(request: Request) -> Response:
        visit = _visit(state, request)
        if visit.session is None:
            return _to_login(visit)
        return await _answered(visit, lambda: stream(visit))

    return show


def _entering(
    state: State, work: Callable[[Visit], Awaitable[Response]]
) -> Callable[[Request], Awaitable[Response]]:
    """For those who are about to log in."""

    async def show(request: Request) -> Response:
        visit = _visit(state, request)
        return await _answered(visit, lambda: work(visit))

    return show


def _posting(
    state: State,
    work: Callable[[Visit, dict[str, str]], Awaitable[Response]],
    *,
    needs_session: bool = True,
) -> Callable[[Request], Awaitable[Response]]:
    async def post(request: Request) -> Response:
        visit = _visit(state, request)
        if needs_session and visit.session is None:
            return _to_login(visit)
        forged = why_forged(request, visit.origin)
        if forged is not None:
            return refuse(visit, 403, visit.texts("error.forged"), forged)

        async def checked() -> Response:
            form = await read_form(request)
            if needs_session:
                assert visit.session is not None
                if not has_token(sent_token(request, form), visit.session.token):
                    return refuse(visit, 403, visit.texts("error.token"))
            return await work(visit, form)

        return await _answered(visit, checked)

    return post


async def _operate(visit: Visit, form: dict[str, str]) -> Response:
    data = await operation.post(visit, form)
    return answer(visit, "operation.html", data, section=data["section"], status=data.pop("_status", 200))


def _not_found(state: State) -> Callable[[Request, Exception], Awaitable[Response]]:
    async def handle(request: Request, problem: Exception) -> Response:
        assert isinstance(problem, HTTPException)
        visit = _visit(state, request)
        if problem.status_code == 404:
            meant = _with_slash_or_without(request)
            if meant is not None:
                return RedirectResponse(state.address(meant) + _sent_query(request), 303)
            return refuse(visit, 404, visit.texts("error.no_page"))
        return refuse(visit, problem.status_code, str(problem.detail))

    return handle


def _with_slash_or_without(request: Request) -> str | None:
    """The page that is meant by an address with a slash too many at its end, or too few."""
    path = request.scope["path"]
    other = path.rstrip("/") if path.endswith("/") else f"{path}/"
    if request.method not in ("GET", "HEAD") or not other or other.startswith("//"):
        return None
    scope = {**request.scope, "path": other}
    routes: list[BaseRoute] = request.app.router.routes
    return quote(other) if any(route.matches(scope)[0] is Match.FULL for route in routes) else None


async def _broken(request: Request, problem: Exception) -> Response:
    """A mistake of ours: the log has it, the answer does not."""
    _log.error("a page failed path=%s", request.url.path, exc_info=problem)
    return Response("the console failed; its log says why", 500, media_type="text/plain")
