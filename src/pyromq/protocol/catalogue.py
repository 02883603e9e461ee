"""A request is one declaration; everything else is derived from it.

The fields of a declaration are the extension fields of its frame. Three names mean parts of the frame
itself: `body`, `remark` and, on answers, `code`. The type of `body` says how it is written: `bytes` as it
is, `str` as UTF-8, anything else as JSON in Java's dialect; `| None` means that it may be missing.
"""

import re
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from enum import Flag, auto
from operator import attrgetter
from types import NoneType, UnionType
from typing import Annotated, Any, Generic, TypeVar, Union, cast, dataclass_transform, get_args, get_origin

import msgspec
from msgspec import field as wire
from msgspec.structs import fields as struct_fields

from pyromq.errors import LocalProtocolError, Refused, RemoteProtocolError
from pyromq.protocol import json_body
from pyromq.protocol.body import Int32, Int64, KeywordOnly
from pyromq.protocol.codes import CURRENT_VERSION, Language, ResponseCode
from pyromq.protocol.frame import ONEWAY_FLAG, RESPONSE_FLAG, Frame, HeaderForm
from pyromq.protocol.needs import Need, Needs, is_administrative

__all__ = [
    "BROKER",
    "CATALOGUE",
    "CLIENT",
    "CONTROLLER",
    "FILTER_SERVER",
    "NAMESERVER",
    "Answer",
    "BodyAnswer",
    "Declaration",
    "Int32",
    "Int64",
    "Peer",
    "RawAnswer",
    "Request",
    "RoutedRequest",
    "TopicRequest",
    "decode_answer",
    "decode_request",
    "encode_answer",
    "encode_request",
    "request",
    "wire",
]


class Peer(Flag):
    """The kinds of peers that a request may be addressed to."""

    NAMESERVER = auto()
    BROKER = auto()
    CLIENT = auto()
    CONTROLLER = auto()
    FILTER_SERVER = auto()


NAMESERVER, BROKER, CLIENT, CONTROLLER, FILTER_SERVER = Peer


FRAME_LEVEL = frozenset({"body", "remark", "code"})
"""Fields that are not extension fields. The code of a request is its declaration's."""

T = TypeVar("T")


@dataclass_transform(kw_only_default=True, field_specifiers=(msgspec.field,))
class Answer(msgspec.Struct, metaclass=KeywordOnly, rename="camel"):
    """The parent of every answer; itself an answer with only a code."""

    code: int = ResponseCode.SUCCESS
    remark: str | None = None


class BodyAnswer(Answer, Generic[T]):
    """An answer with only a body; `| None` in its type means that it may be missing."""

    body: T


class RawAnswer(msgspec.Struct, gc=False):
    """An answer whose body is already encoded, for handlers that keep encoded bodies."""

    body: bytes = b""
    ext: dict[str, str] = {}
    code: int = ResponseCode.SUCCESS
    remark: str | None = None


A = TypeVar("A", bound=Answer)
R = TypeVar("R", bound="Request[Any]")


@dataclass_transform(kw_only_default=True, field_specifiers=(msgspec.field,))
class Request(msgspec.Struct, Generic[A], metaclass=KeywordOnly, rename="camel"):
    """The parent of every declaration; the type argument is the answer."""


class RoutedRequest(Request[A], Generic[A]):
    """A request that a proxy may forward: it can name its namespace and its destination broker."""

    namespace_name: str | None = wire(name="ns", default=None)
    is_namespaced: bool | None = wire(name="nsd", default=None)
    target_broker_name: str | None = wire(name="bname", default=None)
    is_oneway_hint: bool | None = wire(name="oway", default=None)


class TopicRequest(RoutedRequest[A], Generic[A]):
    """A routed request about a topic, whose queue id may be a logical one."""

    is_logical_queue: bool | None = wire(name="lo", default=None)


class _Part:
    """The frame-level and extension fields of one declared type, compiled once."""

    def __init__(
        self, type_: type[msgspec.Struct], frame_level: frozenset[str], budget: json_body.DecodeBudget
    ) -> None:
        self.type = type_
        self._make = get_origin(type_) or type_
        self._budget = budget
        declared = struct_fields(type_)
        names = {field.name for field in declared}
        self.has_body = "body" in names
        self.has_remark = "remark" in names
        self.has_code = "code" in names & frame_level
        self.body_type: Any = bytes
        self.body_may_be_missing = False
        self.written: list[tuple[str, str, Callable[[Any], str]]] = []
        header_fields: list[Any] = []
        for field in declared:
            if field.name == "body":
                self.body_type, self.body_may_be_missing = without_none(field.type)
            elif field.name not in frame_level:
                scalar, _ = without_none(field.type)
                self.written.append((field.name, field.encode_name, _text_writer(type_, field.name, scalar)))
                default = {"default": field.default} if not field.required else {}
                header_fields.append((field.name, field.type, wire(name=field.encode_name, **default)))
        # Incoming headers are decoded into a type that has only extension fields.
        self.header_type = msgspec.defstruct(f"{type_.__name__}Header", header_fields, kw_only=True, gc=False)
        self._is_plain = len(self.written) == len(declared)
        self.needs_frame_level = any(field.required for field in declared if field.name in frame_level)
        self._writers = [(wire_name, text) for _, wire_name, text in self.written]
        self._contents = _getter([name for name, _, _ in self.written])

    def write_ext(self, value: msgspec.Struct) -> dict[str, str]:
        return {
            wire_name: content if type(content) is str else text(content)
            for (wire_name, text), content in zip(self._writers, self._contents(value), strict=True)
            if content is not None
        }

    def write_body(self, value: Any) -> bytes:
        if not self.has_body:
            return b""
        body = value.body
        if body is None:
            return b""
        if self.body_type is bytes:
            return cast(bytes, body)
        if self.body_type is str:
            try:
                return cast(str, body).encode()
            except UnicodeEncodeError as problem:
                raise LocalProtocolError(f"the body cannot be written as UTF-8: {problem}") from None
        return json_body.encode(body)

    def read_body(self, data: bytes) -> Any:
        if not data and self.body_may_be_missing:
            return None
        if self.body_type is bytes:
            return data
        if self.body_type is str:
            try:
                return data.decode()
            except UnicodeDecodeError as problem:
                raise RemoteProtocolError(f"the body is not UTF-8 text: {problem}") from None
        return json_body.decode(data, self.body_type, self._budget)

    def read(self, frame: Frame) -> Any:
        """The value in a frame; raises msgspec.ValidationError or RemoteProtocolError."""
        if self._is_plain:
            return msgspec.convert(frame.ext, self.type, strict=False)
        if not self.needs_frame_level:
            try:
                return self.complete(msgspec.convert(frame.ext, self.type, strict=False), frame)
            except msgspec.ValidationError:
                pass  # perhaps only because an unknown extension field has the name of a part of the frame
        header = msgspec.convert(frame.ext, self.header_type, strict=False)
        values = {name: getattr(header, name) for name, _, _ in self.written}
        if self.has_body:
            values["body"] = self.read_body(frame.body)
        return self.complete(self._make(**values), frame)

    def complete(self, value: Any, frame: Frame) -> Any:
        """The value whose extension fields have been read, with the parts of the frame."""
        if self.has_body:
            value.body = self.read_body(frame.body)
        if self.has_remark:
            value.remark = frame.remark
        if self.has_code:
            value.code = frame.code
        return value


def _getter(names: list[str]) -> Callable[[Any], tuple[Any, ...]]:
    """All of these attributes of a value."""
    if not names:
        return lambda _: ()
    if len(names) == 1:
        (name,) = names
        return lambda value: (getattr(value, name),)
    return attrgetter(*names)


def without_none(annotation: Any) -> tuple[Any, bool]:
    """The type of a field that may be missing, without None, and whether it may."""
    if get_origin(annotation) in (UnionType, Union):
        alternatives = [choice for choice in get_args(annotation) if choice is not NoneType]
        if len(alternatives) == 1 and len(get_args(annotation)) == 2:
            return alternatives[0], True
    return annotation, False


def _write_bool(value: bool) -> str:
    return "true" if value else "false"


def _text_writer(owner: type, name: str, annotation: Any) -> Callable[[Any], str]:
    if annotation is int:
        raise LocalProtocolError(f"{owner.__name__}.{name}: int has no width, expected Int32 or Int64")
    scalar = get_args(annotation)[0] if get_origin(annotation) is Annotated else annotation
    if scalar is bool:
        return _write_bool
    if scalar in (str, int, float):
        return str
    raise LocalProtocolError(f"{owner.__name__}.{name}: {annotation} cannot be an extension field")


_WORD_START = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


@dataclass(eq=False, repr=False)
class Declaration:
    code: int
    request_type: type[Request[Any]]
    to: Peer
    _: KW_ONLY
    needs: Needs
    oneway: bool
    accepts: frozenset[int]
    extension: bool
    java_name: str
    """java: the constant of RequestCode in lower case, the label of a request in Apache's metrics. Empty if
    it is our name in other letters."""

    def __post_init__(self) -> None:
        self.answer_type: type[Answer] = _answer_type(self.request_type)
        self.is_administrative = is_administrative(self.needs)
        self.name = self.request_type.__name__
        self.java_name = self.java_name or _WORD_START.sub("_", self.name).lower()
        self.summary = (self.request_type.__doc__ or "").strip().partition("\n")[0]
        self.request_part = _Part(self.request_type, FRAME_LEVEL - {"code"}, json_body.REQUEST)
        self.answer_part = _Part(self.answer_type, FRAME_LEVEL, json_body.OWN)

    def __repr__(self) -> str:
        return f"<{self.name} code={self.code} to={self.to}>"

    def needs_of(self, request: "Request[Any]") -> list[Need]:
        return [need for rule in self.needs for need in rule.needs_of(request)]


def _answer_type(request_type: type[Request[Any]]) -> Any:
    bases: tuple[Any, ...] = getattr(request_type, "__orig_bases__", ())
    for base in bases:
        for argument in get_args(base):
            declared = get_origin(argument) or argument
            if isinstance(declared, type) and issubclass(declared, Answer):
                return argument
    raise LocalProtocolError(f"{request_type.__name__} does not declare its answer type")


CATALOGUE: dict[int, Declaration] = {}
"""Every declared request by its code; complete once `pyromq.protocol.requests` is imported."""

_DECLARED: dict[type[Request[Any]], Declaration] = {}


def request(
    code: int,
    *,
    to: Peer,
    needs: Needs,
    oneway: bool = False,
    accepts: tuple[int, ...] = (ResponseCode.SUCCESS,),
    extension: bool = False,
    java_name: str | None = None,
) -> Callable[[type[R]], type[R]]:
    """Declare a request.

    `needs`: the rights that a sender must have. `oneway`: senders normally want no answer. `accepts`: the
    codes that are answers and not refusals. `extension`: PyroMQ's own, unknown to Apache's peers.
    `java_name`: Apache's constant in lower case, where it cannot be derived from our name.
    """

    def declare(request_type: type[R]) -> type[R]:
        if code in CATALOGUE:
            raise LocalProtocolError(
                f"{request_type.__name__} and {CATALOGUE[code].name} both claim code {code}"
            )
        declaration = Declaration(
            code,
            request_type,
            to,
            needs=needs,
            oneway=oneway,
            accepts=frozenset(accepts),
            extension=extension,
            java_name=java_name or "",
        )
        CATALOGUE[code] = _DECLARED[request_type] = declaration
        return request_type

    return declare


def declaration_of(request_type: type[Request[Any]]) -> Declaration:
    return _DECLARED[request_type]


def encode_request(
    value: Request[Any],
    opaque: int,
    *,
    form: int = HeaderForm.JSON,
    oneway: bool = False,
    language: int = Language.PYTHON,
    version: int = CURRENT_VERSION,
) -> Frame:
    declaration = _DECLARED[type(value)]
    part = declaration.request_part
    return Frame(
        declaration.code,
        opaque,
        ONEWAY_FLAG if oneway else 0,
        language,
        version,
        cast(Any, value).remark if part.has_remark else None,
        part.write_ext(value),
        part.write_body(value),
        form,
    )


def decode_request(declaration: Declaration, frame: Frame) -> Request[Any]:
    """The request in a frame; raises Refused, which names the error."""
    part = declaration.request_part
    try:
        sent = frame.request
        request: Request[Any] = part.read(frame) if sent is None else part.complete(sent, frame)
    except (msgspec.ValidationError, RemoteProtocolError) as problem:
        raise Refused(ResponseCode.SYSTEM_ERROR, f"{declaration.name}: {problem}") from None
    return request


def encode_answer(declaration: Declaration, answer: Answer | RawAnswer, to: Frame) -> Frame:
    if type(answer) is RawAnswer:
        ext, body = answer.ext, answer.body
    else:
        part = declaration.answer_part
        ext, body = part.write_ext(answer), part.write_body(answer)
    return Frame(
        answer.code,
        to.opaque,
        RESPONSE_FLAG,
        Language.PYTHON,
        CURRENT_VERSION,
        answer.remark,
        ext,
        body,
        to.form,
    )


def decode_answer(request_type: type[Request[A]], frame: Frame, server: str = "") -> A:
    """The typed answer of the server at this address; raises Refused for a refusal, RemoteProtocolError if
    it cannot be decoded."""
    declaration = _DECLARED[request_type]
    if frame.code not in declaration.accepts:
        raise Refused(frame.code, frame.remark, server)
    part = declaration.answer_part
    try:
        reply = frame.reply
        answer: A = part.read(frame) if reply is None else part.complete(reply, frame)
    except msgspec.ValidationError as problem:
        raise RemoteProtocolError(f"answer to {declaration.name}: {problem}") from None
    return answer
