"""Logging in and out. One message for every failure: it never says whether the name or the password is
wrong."""

import asyncio
import logging
from urllib.parse import quote

from starlette.exceptions import HTTPException
from starlette.responses import RedirectResponse, Response

from pyromq.console.page import Data, answer, redirect
from pyromq.console.security.audit import AuditEntry
from pyromq.console.security.openid import Begun, OpenId, OpenIdFailed, name_in, person_by_claims
from pyromq.console.security.roles import Person
from pyromq.console.visit import COOKIE, SECURE_COOKIE, Visit

_log = logging.getLogger(__name__)

_BEGUN_S = 600
_IN_ADDRESSES = "/?&=%:,;+~@!$'()*#"


async def show(visit: Visit) -> Data:
    return _form(visit, visit.text("next"))


def _form(visit: Visit, next_path: str, problem: str = "") -> Data:
    has_provider = visit.state.openid is not None
    return {"next": _own_path(next_path), "problem": problem, "has_provider": has_provider}


async def log_in(visit: Visit, form: dict[str, str]) -> Response:
    state, address = visit.state, visit.origin.client
    name = form.get("name", "")
    wait_s = state.attempts.wait_s(name, address)
    if wait_s > 0:
        raise HTTPException(429, visit.texts("login.wait", seconds=round(wait_s + 0.5)))
    person = await asyncio.to_thread(state.users.check, name, form.get("password", ""))
    outcome = "ok" if person is not None else "refused"
    entry = AuditEntry(who=name[:64], where_from=address, what="login", outcome=outcome)
    await asyncio.to_thread(state.audit.write, entry)
    if person is None:
        state.attempts.failed(name, address)
        data = _form(visit, form.get("next", ""), visit.texts("login.failed"))
        return answer(visit, "login.html", data, status=401)
    state.attempts.succeeded(name, address)
    response = redirect(visit, _own_path(form.get("next", "")))
    _open_session(visit, person, response)
    return response


def _open_session(visit: Visit, person: Person, response: Response) -> None:
    sessions = visit.state.sessions
    sessions.close(visit.request.cookies.get(_cookie(visit)))
    session_id, _ = sessions.open(person)
    response.set_cookie(
        _cookie(visit), session_id, path="/", secure=visit.origin.is_secure, httponly=True, samesite="strict"
    )


async def to_provider(visit: Visit) -> Response:
    """Lead the browser to the provider of OpenID Connect."""
    openid = _openid(visit)
    try:
        address, begun = await openid.begin(_callback(visit), _own_path(visit.text("next")))
    except OpenIdFailed as problem:
        _log.warning("a log-in could not begin: %s", problem)
        data = _form(visit, visit.text("next"), visit.texts("login.no_provider"))
        return answer(visit, "login.html", data, status=502)
    response = RedirectResponse(address, 303)
    # The way back begins at the provider: a strict cookie would not come along.
    response.set_cookie(
        _begun_cookie(visit),
        begun.cookie(),
        max_age=_BEGUN_S,
        path="/",
        secure=visit.origin.is_secure,
        httponly=True,
        samesite="lax",
    )
    return response


async def from_provider(visit: Visit) -> Response:
    """The browser is back, with a code or with a refusal."""
    openid, state, address = _openid(visit), visit.state, visit.origin.client
    tried_by = f"oidc {address}"
    wait_s = state.attempts.wait_s(tried_by, address)
    if wait_s > 0:
        raise HTTPException(429, visit.texts("login.wait", seconds=round(wait_s + 0.5)))
    name, next_path, person = "", "/", None
    try:
        begun = Begun.read(visit.request.cookies.get(_begun_cookie(visit)))
        next_path = _own_path(begun.next)
        claims = await openid.finish(begun, visit.query, _callback(visit))
        name = name_in(claims, state.settings)
        by_claims = bool(state.settings.oidc_roles)
        person = person_by_claims(claims, state.settings) if by_claims else state.users.person(name)
        problem = visit.texts("login.no_role", name=name)
    except OpenIdFailed as failure:
        problem = visit.texts("login.not_by_provider", reason=str(failure))
    outcome = "ok" if person is not None else "refused"
    fields = {"issuer": state.settings.oidc_issuer}
    entry = AuditEntry(who=name, where_from=address, what="login.oidc", outcome=outcome, fields=fields)
    await asyncio.to_thread(state.audit.write, entry)
    if person is None:
        state.attempts.failed(tried_by, address)
        response = answer(visit, "login.html", _form(visit, next_path, problem), status=401)
    else:
        state.attempts.succeeded(tried_by, address)
        # Of a redirect the browser would say that it began at the provider, and keep the strict cookie back.
        response = answer(visit, "logged_in.html", {"next": next_path})
        response.headers["Refresh"] = f"0; url={state.address(quote(next_path, safe=_IN_ADDRESSES))}"
        _open_session(visit, person, response)
    response.delete_cookie(
        _begun_cookie(visit), path="/", secure=visit.origin.is_secure, httponly=True, samesite="lax"
    )
    return response


def _openid(visit: Visit) -> OpenId:
    if visit.state.openid is None:
        raise HTTPException(404, visit.texts("error.no_page"))
    return visit.state.openid


def _callback(visit: Visit) -> str:
    return f"{visit.origin}{visit.state.address('/login/oidc/callback')}"


def _begun_cookie(visit: Visit) -> str:
    return f"{_cookie(visit)}_oidc"


async def log_out(visit: Visit, form: dict[str, str]) -> Response:
    visit.state.sessions.close(visit.request.cookies.get(_cookie(visit)))
    response = redirect(visit, "/login")
    response.delete_cookie(
        _cookie(visit), path="/", secure=visit.origin.is_secure, httponly=True, samesite="strict"
    )
    return response


def _cookie(visit: Visit) -> str:
    return SECURE_COOKIE if visit.origin.is_secure else COOKIE


def _own_path(path: str) -> str:
    """A page of ours, whatever was sent: never another site."""
    is_ours = path.startswith("/") and not path.startswith(("//", "/\\")) and path.isprintable()
    return path if is_ours else "/"
