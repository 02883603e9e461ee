"""Logging in and out; one message for every failure, and no name or password is ever told apart."""

import asyncio

from starlette.exceptions import HTTPException
from starlette.responses import Response

from pyromq.console.page import Data, answer, redirect
from pyromq.console.security.audit import AuditEntry
from pyromq.console.visit import COOKIE, SECURE_COOKIE, Visit


async def show(visit: Visit) -> Data:
    return {"next": _own_path(visit.text("next")), "problem": ""}


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
        data: Data = {"next": _own_path(form.get("next", "")), "problem": visit.texts("login.failed")}
        return answer(visit, "login.html", data, status=401)
    state.attempts.succeeded(name, address)
    state.sessions.close(visit.request.cookies.get(_cookie(visit)))
    session_id, _ = state.sessions.open(person)
    response = redirect(visit, _own_path(form.get("next", "")))
    response.set_cookie(
        _cookie(visit), session_id, path="/", secure=visit.origin.is_secure, httponly=True, samesite="strict"
    )
    return response


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
