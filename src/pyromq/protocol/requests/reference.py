"""The catalogue as people read it: one page, derived from the declarations alone."""

import sys
from collections.abc import Iterable
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin

from msgspec import Struct
from msgspec.structs import FieldInfo
from msgspec.structs import fields as struct_fields

from pyromq.protocol.catalogue import (
    CATALOGUE,
    Declaration,
    Int32,
    Int64,
    Peer,
    RoutedRequest,
    TopicRequest,
)
from pyromq.protocol.codes import ResponseCode
from pyromq.protocol.requests.undeclared import UNDECLARED

_TYPE_NAMES = {str: "text", bool: "bool", float: "double", Int32: "int32", Int64: "int64"}
_PEER_NAMES = {
    Peer.NAMESERVER: "name server",
    Peer.BROKER: "broker",
    Peer.CLIENT: "client",
    Peer.CONTROLLER: "controller",
}
_COMMON_FIELDS = {field.encode_name for field in struct_fields(TopicRequest)}
_OPENING = """\
# Requests

Derived from the declarations in `pyromq.protocol.requests`; edit those, not this page.

Every field travels as text under the name given here. A `?` marks one that may be missing; a value after
`=` stands for a missing one. *Routed* requests also accept `ns` text, `nsd` bool, `bname` text and `oway`
bool; *topic* requests accept these and `lo` bool. A body is raw bytes, UTF-8 text, or the JSON of the named
type. *One-way* requests are normally sent without waiting for an answer. *Needs* are the rights that access
control asks for: one of the actions, on the topic, the group or the cluster that is named. An answer has
code 0 unless its column names other codes; any other code is a refusal.
"""


def markdown() -> str:
    """The reference page; complete if all declarations are imported."""
    groups: dict[str, list[Declaration]] = {}
    for code in sorted(CATALOGUE):
        groups.setdefault(CATALOGUE[code].request_type.__module__, []).append(CATALOGUE[code])
    lines = [_OPENING]
    for module in sorted(groups):
        lines += [
            f"## {module.rpartition('.')[2].capitalize()}",
            "",
            _first_sentence(sys.modules[module].__doc__ or ""),
            "",
            "| code | request | to | needs | carries | answered with |",
            "|---|---|---|---|---|---|",
            *map(_row, groups[module]),
            "",
        ]
    lines += [
        "## Not declared",
        "",
        "Codes that Apache names and this catalogue does not. A server answers them with",
        "`REQUEST_CODE_NOT_SUPPORTED`.",
        "",
        "| code | why |",
        "|---|---|",
        *(f"| {code} | {reason} |" for code, reason in sorted(UNDECLARED.items())),
    ]
    return "\n".join(lines) + "\n"


def _first_sentence(docstring: str) -> str:
    return docstring.strip().partition("\n\n")[0].replace("\n", " ")


def _row(declaration: Declaration) -> str:
    request_type = declaration.request_type
    marks = [
        "topic" if issubclass(request_type, TopicRequest) else "",
        "routed"
        if issubclass(request_type, RoutedRequest) and not issubclass(request_type, TopicRequest)
        else "",
        "one-way" if declaration.oneway else "",
        "extension" if declaration.extension else "",
    ]
    marked = ", ".join(filter(None, marks))
    name = f"**{declaration.name}**" + (f" *({marked})*" if marked else "")
    to = ", ".join(who for peer, who in _PEER_NAMES.items() if peer in declaration.to)
    needs = "<br>".join(map(str, declaration.needs))
    carried = _contents(
        field for field in struct_fields(request_type) if field.encode_name not in _COMMON_FIELDS
    )
    answered = _contents(
        field for field in struct_fields(declaration.answer_type) if field.name not in ("code", "remark")
    )
    others = sorted(declaration.accepts - {ResponseCode.SUCCESS})
    if others:
        answered = "; ".join(filter(None, [answered, "codes 0, " + ", ".join(map(str, others))]))
    return (
        f"| {declaration.code} | {name}<br>{declaration.summary} | {to} | {needs} | {carried} | {answered} |"
    )


def _contents(fields: Iterable[FieldInfo]) -> str:
    header: list[str] = []
    frame: list[str] = []
    for field in fields:
        type_, may_be_none = _without_none(field.type)
        if field.name == "body":
            frame.append(f"body {_body(type_)}" + ("?" if may_be_none else ""))
        elif field.name == "remark":
            frame.append("remark text?")
        else:
            header.append(f"`{field.encode_name}` {_TYPE_NAMES[type_]}{_default(field)}")
    return ", ".join(header + frame)


def _default(field: FieldInfo) -> str:
    if field.required:
        return ""
    if field.default is None:
        return "?"
    if isinstance(field.default, bool):
        return f"={str(field.default).lower()}"
    return f"={field.default}" if field.default != "" else '=""'


def _body(type_: Any) -> str:
    if type_ is bytes:
        return "bytes"
    if type_ is str:
        return "text"
    return f"`{_spelled(type_)}`"


def _spelled(type_: Any) -> str:
    if isinstance(type_, type) and issubclass(type_, Struct):
        return type_.__name__
    inner = ", ".join(_spelled(argument) for argument in get_args(type_))
    return f"{get_origin(type_).__name__}[{inner}]" if inner else type_.__name__


def _without_none(annotation: Any) -> tuple[Any, bool]:
    if get_origin(annotation) in (UnionType, Union):
        (inner,) = (choice for choice in get_args(annotation) if choice is not NoneType)
        return inner, True
    return annotation, False
