"""The one way to change anything: every operation passes here, wherever it comes from.

In order: it exists (a read-only console has none), the role, the patterns of names, the audit log, and
only then the cluster.
"""

import asyncio
from collections.abc import Mapping
from typing import Any, Literal, get_args, get_origin

import msgspec
from starlette.exceptions import HTTPException

from pyromq.console.operations.all_operations import operations
from pyromq.console.operations.offsets import UndoReset
from pyromq.console.operations.operation import Done, Operation, OperationPlan, Surroundings
from pyromq.console.security.audit import AuditEntry
from pyromq.console.visit import Visit
from pyromq.errors import PyroError


def find(visit: Visit, name: str) -> type[Operation]:
    """403 for a role that may not, before anything is said about the fields."""
    state = visit.state
    kind = operations(read_only=state.settings.read_only).get(name)
    if kind is None:
        raise HTTPException(404, visit.texts("error.no_operation", name=name))
    if visit.person.role < kind.ROLE:
        raise HTTPException(403, visit.texts("error.role", role=visit.texts(f"role.{kind.ROLE.word}")))
    return kind


def read(visit: Visit, kind: type[Operation], fields: Mapping[str, str]) -> Operation:
    """The operation with its fields; 400 says which ones are wrong."""
    wanted = {each.name for each in msgspec.structs.fields(kind)}
    given: dict[str, Any] = {
        key: value if key in (*kind.LONG, kind.SECRET) else value.strip()
        for key, value in fields.items()
        if key in wanted and value.strip()
    }
    # A box that is not ticked is not sent: the form says which ones it had.
    for name in fields.get("boxes", "").split():
        if name in wanted:
            given.setdefault(name, "false")
    try:
        operation = msgspec.convert(_plain(given), kind, strict=False)
    except msgspec.ValidationError:
        raise HTTPException(400, _why_wrong(visit, kind, _plain(given))) from None
    for name in operation.touched():
        if not visit.person.may_touch(name):
            raise HTTPException(403, visit.texts("error.name", name=name))
    return operation


def _why_wrong(visit: Visit, kind: type[Operation], given: Mapping[str, Any]) -> str:
    """The fields that are missing or cannot be read, by the names that the form has for them."""
    texts, reasons = visit.texts, []
    for each in msgspec.structs.fields(kind):
        name = texts(f"field.{each.name}")
        if each.name in given:
            try:
                msgspec.convert(given[each.name], each.type, strict=False)
            except msgspec.ValidationError:
                choices = ", ".join(map(str, filter(None, get_args(each.type))))
                expected = (
                    texts("error.one_of", choices=choices)
                    if get_origin(each.type) is Literal
                    else texts("error.yes_or_no" if each.type is bool else "error.a_number")
                )
                reasons.append(
                    texts("error.field_wrong", field=name, value=given[each.name], expected=expected)
                )
        elif each.required:
            reasons.append(texts("error.field_missing", field=name))
    return " ".join(reasons)


def _plain(given: dict[str, Any]) -> dict[str, Any]:
    return {key: {"on": "true"}.get(value, value) for key, value in given.items()}


async def plan(visit: Visit, operation: Operation) -> OperationPlan:
    return await operation.plan(await _surroundings(visit, operation))


async def apply(visit: Visit, operation: Operation) -> tuple[str, Done]:
    """Do it; returns the id in the audit log and what was done."""
    around = await _surroundings(visit, operation)
    planned = await operation.plan(around)
    audit, person = visit.state.audit, visit.person

    async def write(**more: Any) -> str:
        entry = AuditEntry(
            who=person.name,
            where_from=visit.origin.client,
            what=operation.NAME,
            cluster=visit.cluster_name,
            **more,
        )
        return await asyncio.to_thread(audit.write, entry)

    entry = await write(fields=operation.told_fields(), before=planned.before)
    try:
        done = await operation.run(around)
    except PyroError as problem:
        await write(id=entry, outcome=str(problem))
        raise
    except BaseException as problem:
        await write(id=entry, outcome=f"not finished: {problem!r}")
        raise
    await write(id=entry, outcome="ok" if not done.failed else f"failed at {', '.join(done.failed)}")
    assert visit.shown is not None
    visit.shown.watch.changed_something()
    return entry, done


async def _surroundings(visit: Visit, operation: Operation) -> Surroundings:
    undone = None
    if isinstance(operation, UndoReset):
        undone = await asyncio.to_thread(visit.state.audit.intention, operation.id)
        if undone is not None and undone.cluster != visit.cluster_name:
            undone = None
    return Surroundings(visit.cluster, visit.state.store_jobs, visit.person.name, undone)
