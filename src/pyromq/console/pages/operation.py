"""A form for every operation: GET shows it, filled from the URL; POST previews or applies it."""

import typing
from hashlib import sha256
from types import NoneType
from typing import Any, Literal

import msgspec
from starlette.exceptions import HTTPException

from pyromq.admin.failures import PartlyFailed
from pyromq.console import perform
from pyromq.console.operations.operation import Operation
from pyromq.console.page import Data
from pyromq.console.visit import Visit

_WHERE = ("in_cluster", "at")
"""Fields that come last."""


def inputs(kind: type[Operation], given: dict[str, str]) -> list[dict[str, Any]]:
    """The form's questions, from the fields of the class."""
    found: list[dict[str, Any]] = []
    for each in msgspec.structs.fields(kind):
        default = "" if each.default in (msgspec.NODEFAULT, None) else each.default
        options = [part for part in typing.get_args(each.type) if part is not NoneType]
        if typing.get_origin(each.type) is Literal:
            form = "choice"
        elif each.type is bool:
            form = "box"
        elif each.type is int or int in options:
            form = "number"
        else:
            form = "lines" if each.name in kind.LONG else "secret" if each.name == kind.SECRET else "text"
        value: object = default if form == "secret" else given.get(each.name, default)
        if form == "box":
            value = value in (True, "true", "on", "1", "True")
        found.append(
            {
                "name": each.name,
                "form": form,
                "value": value,
                "options": options if form == "choice" else [],
                "required": each.required,
            }
        )
    return sorted(found, key=lambda each: each["name"] in _WHERE)


async def form(visit: Visit) -> Data:
    kind = perform.find(visit, visit.path["operation"])
    (now,) = await visit.cluster.known([kind.fields_now(visit.cluster, visit.query)])
    return _form(visit, kind, {**(now or {}), **visit.query})


def _form(visit: Visit, kind: type[Operation], given: dict[str, str]) -> Data:
    fields = inputs(kind, given)
    return {
        "operation": kind.NAME,
        "section": kind.SECTION,
        "fields": fields,
        "boxes": " ".join(each["name"] for each in fields if each["form"] == "box"),
        "line": "",
        "plan": None,
        "done": None,
        "typed": "",
        "problem": "",
        "entry": "",
        "previewed": "",
        "can_be_undone": kind.CAN_BE_UNDONE,
    }


async def post(visit: Visit, sent: dict[str, str]) -> Data:
    """`step=preview` shows what would happen; `step=apply` does it."""
    kind = perform.find(visit, visit.path["operation"])
    operation = perform.read(visit, kind, sent)
    given = {key: str(value) for key, value in operation.told_fields().items() if value is not None}
    data = _form(visit, kind, given)
    assert visit.shown is not None
    data |= {"line": operation.line(visit.shown.namesrv), "typed": operation.typed()}
    # A form applies what was previewed, and nothing else; scripts send no such field.
    data["previewed"] = sha256(msgspec.json.encode(sorted(given.items()))).hexdigest()
    is_seen = sent.get("previewed", data["previewed"]) == data["previewed"]
    if sent.get("step") != "apply" or not is_seen:
        return data | {"plan": await perform.plan(visit, operation)}
    if operation.typed() and sent.get("confirm", "").strip() != operation.typed():
        problem = visit.texts("operation.type_it", text=operation.typed())
        return data | {"plan": await perform.plan(visit, operation), "problem": problem, "_status": 409}
    try:
        entry, done = await perform.apply(visit, operation)
    except PartlyFailed as partly:
        raise HTTPException(502, str(partly)) from partly
    return data | {"done": done, "entry": entry}
