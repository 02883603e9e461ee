"""A schema registry: Confluent's HTTP API, which Apicurio's and Karapace's servers speak as well.

A body is a zero byte, the id of its schema in four bytes, and the value. A schema never changes under its id,
so each is asked for once in a process.
"""

import base64
import json
import threading
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, NamedTuple
from urllib.parse import quote, urlsplit

from pyromq.errors import ConfigError, RemoteProtocolError, TransportError

_HEAD = 5
_TYPE = "application/vnd.schemaregistry.v1+json"
_TIMEOUT_S = 30
_ATTEMPTS = 3


Texts = tuple[tuple[str, str], ...]
"""Schemas that another one refers to: the name that it has for each, and the text."""


class RegisteredSchema(NamedTuple):
    id: int
    text: str
    kind: str
    """AVRO, PROTOBUF or JSON."""
    references: Texts = ()
    """Also those of references; a schema comes behind all that it refers to."""


class Registry:
    """`Registry("http://127.0.0.1:8081", "user:password")`; safe to use from several threads."""

    def __init__(
        self, url: str, auth: str | None = None, *, timeout_s: float = _TIMEOUT_S, attempts: int = _ATTEMPTS
    ) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.username is not None:
            raise ConfigError("schemaRegistry", url, "a URL like http://host:8081")
        self._parts = parts
        self._url = url
        self._timeout_s = timeout_s
        self._attempts = attempts
        self._headers = {"Accept": _TYPE, "Content-Type": _TYPE}
        if auth is not None:
            self._headers["Authorization"] = f"Basic {base64.b64encode(auth.encode()).decode()}"
        self._by_id: dict[int, RegisteredSchema] = {}
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"<Registry {self._url} schemas={len(self._by_id)}>"

    def schema(self, number: int) -> RegisteredSchema:
        with self._lock:
            if number not in self._by_id:
                self._by_id[number] = self._registered(self._ask("GET", f"/schemas/ids/{number}"), number)
            return self._by_id[number]

    def latest(self, subject: str) -> RegisteredSchema:
        answer = self._version(subject, "latest")
        return self._registered(answer, answer["id"])

    def register(
        self, subject: str, text: str, kind: str = "AVRO", references: Mapping[str, str] | None = None
    ) -> RegisteredSchema:
        """This schema with its id; a subject that has it already stays as it is.

        `references` has the subject, of which the latest version is meant, of each name that the schema has
        for another one.
        """
        wanted = [
            {"name": name, "subject": other, "version": self._version(other, "latest")["version"]}
            for name, other in (references or {}).items()
        ]
        body = {"schema": text, "schemaType": kind, "references": wanted}
        answer = self._ask("POST", f"{_path(subject)}/versions", body)
        return self._registered(body, int(answer["id"]))

    def _version(self, subject: str, version: object) -> dict[str, Any]:
        return self._ask("GET", f"{_path(subject)}/versions/{version}")

    def _registered(self, answer: Mapping[str, Any], number: int) -> RegisteredSchema:
        found: dict[str, str] = {}
        self._follow(answer, found)
        return RegisteredSchema(
            number, str(answer["schema"]), str(answer.get("schemaType", "AVRO")), tuple(found.items())
        )

    def _follow(self, answer: Mapping[str, Any], found: dict[str, str]) -> None:
        for each in answer.get("references") or ():
            if each["name"] not in found:
                other = self._version(each["subject"], each["version"])
                self._follow(other, found)
                found[str(each["name"])] = str(other["schema"])

    def _ask(self, method: str, path: str, body: Any = None) -> dict[str, Any]:
        from http.client import HTTPException  # most readers need no HTTP

        content = None if body is None else json.dumps(body).encode()
        for attempt in range(self._attempts):
            try:
                status, answer = self._exchange(method, self._parts.path.rstrip("/") + path, content)
            except (OSError, HTTPException) as problem:
                if attempt == self._attempts - 1:
                    what = f"the schema registry {self._url} does not answer: {problem}"
                    raise TransportError(what) from None
            else:
                if status < 500 or attempt == self._attempts - 1:
                    return self._accepted(status, answer, path)
        raise AssertionError("unreachable")

    def _exchange(self, method: str, path: str, content: bytes | None) -> tuple[int, bytes]:
        from http.client import HTTPConnection, HTTPSConnection

        kind = HTTPSConnection if self._parts.scheme == "https" else HTTPConnection
        connection = kind(self._parts.hostname or "", self._parts.port, timeout=self._timeout_s)
        try:
            connection.request(method, path, content, self._headers)
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def _accepted(self, status: int, answer: bytes, path: str) -> dict[str, Any]:
        try:
            document = json.loads(answer)
        except ValueError:
            document = None
        if status == 200 and isinstance(document, dict):
            return document
        text = answer[:200].decode("utf-8", "replace")
        said = document.get("message", text) if isinstance(document, dict) else text
        what = f"the schema registry {self._url} answered {path} with {status}: {said}"
        # Nothing is known of a body whose schema was not given: it must not count as one that is wrong.
        raise RemoteProtocolError(what) if _is_about(status, document) else TransportError(what)


def _is_about(status: int, document: Any) -> bool:
    """Whether an answer is about what was asked for. Others are those of a proxy, of a registry that is down
    or wants to know who asks, or of a server at the wrong path."""
    code = document.get("error_code") if isinstance(document, dict) else None
    return status in (404, 409, 422) and isinstance(code, int) and code != 404


def _path(subject: str) -> str:
    return f"/subjects/{quote(subject, safe='')}"


@cache
def registry(url: str, auth: str | None) -> Registry:
    """The one of this process."""
    return Registry(url, auth)


def framed(number: int, value: bytes) -> bytes:
    return b"\x00" + number.to_bytes(4, "big") + value


def unframed(body: bytes) -> tuple[int, bytes]:
    """The id of the schema, and the value."""
    if len(body) < _HEAD or body[0] != 0:
        raise RemoteProtocolError(f"{body[:_HEAD]!r} is not a zero and the id of a schema")
    return int.from_bytes(body[1:_HEAD], "big"), body[_HEAD:]


def registered_reader(
    known: Registry, kind: str, reader: Callable[[RegisteredSchema], Callable[[bytes], Any]]
) -> Callable[[bytes], Any]:
    """Reads bodies that name their schemas; `reader` makes the one for the values of a schema."""
    readers: dict[int, Callable[[bytes], Any]] = {}

    def whole(body: bytes) -> Any:
        number, value = unframed(body)
        if number not in readers:
            found = known.schema(number)
            if found.kind != kind:
                raise RemoteProtocolError(f"schema {number} is {found.kind}, not {kind}")
            readers[number] = reader(found)
        return readers[number](value)

    return whole
