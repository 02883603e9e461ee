"""A schema registry: Confluent's HTTP API, which Apicurio's and Karapace's servers speak as well.

A body is a zero byte, the id of its schema in four bytes, and the value. A schema never changes under its id,
so each is asked for once in a process.
"""

import base64
import json
import threading
from functools import cache
from typing import Any, NamedTuple
from urllib.parse import quote, urlsplit

from pyromq.errors import ConfigError, RemoteProtocolError, TransportError

_HEAD = 5
_TYPE = "application/vnd.schemaregistry.v1+json"
_TIMEOUT_S = 30
_ATTEMPTS = 3


class Registered(NamedTuple):
    id: int
    text: str
    kind: str
    """AVRO, PROTOBUF or JSON."""


class Registry:
    """`Registry("http://127.0.0.1:8081", "user:password")`; safe to use from several threads."""

    def __init__(self, url: str, auth: str | None = None) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.username is not None:
            raise ConfigError("schemaRegistry", url, "a URL like http://host:8081")
        self._parts = parts
        self._url = url
        self._headers = {"Accept": _TYPE, "Content-Type": _TYPE}
        if auth is not None:
            self._headers["Authorization"] = f"Basic {base64.b64encode(auth.encode()).decode()}"
        self._by_id: dict[int, Registered] = {}
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"<Registry {self._url} schemas={len(self._by_id)}>"

    def schema(self, number: int) -> Registered:
        with self._lock:
            if number not in self._by_id:
                self._by_id[number] = _registered(self._ask("GET", f"/schemas/ids/{number}"), number)
            return self._by_id[number]

    def latest(self, subject: str) -> Registered:
        answer = self._ask("GET", f"/subjects/{quote(subject, safe='')}/versions/latest")
        return _registered(answer, answer["id"])

    def register(self, subject: str, text: str, kind: str = "AVRO") -> int:
        """The id of this schema; a subject that has it already stays as it is."""
        body = {"schema": text, "schemaType": kind}
        answer = self._ask("POST", f"/subjects/{quote(subject, safe='')}/versions", body)
        return int(answer["id"])

    def _ask(self, method: str, path: str, body: Any = None) -> dict[str, Any]:
        from http.client import HTTPException  # most readers need no HTTP

        content = None if body is None else json.dumps(body).encode()
        for attempt in range(_ATTEMPTS):
            try:
                status, answer = self._exchange(method, self._parts.path.rstrip("/") + path, content)
            except (OSError, HTTPException) as problem:
                if attempt == _ATTEMPTS - 1:
                    what = f"the schema registry {self._url} does not answer: {problem}"
                    raise TransportError(what) from None
            else:
                if status < 500 or attempt == _ATTEMPTS - 1:
                    return self._accepted(status, answer, path)
        raise AssertionError("unreachable")

    def _exchange(self, method: str, path: str, content: bytes | None) -> tuple[int, bytes]:
        from http.client import HTTPConnection, HTTPSConnection

        kind = HTTPSConnection if self._parts.scheme == "https" else HTTPConnection
        connection = kind(self._parts.hostname or "", self._parts.port, timeout=_TIMEOUT_S)
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
        raise RemoteProtocolError(f"the schema registry {self._url} answered {path} with {status}: {said}")


def _registered(answer: dict[str, Any], number: int) -> Registered:
    if answer.get("references"):
        raise RemoteProtocolError(f"schema {number} refers to other subjects, which is not supported")
    return Registered(number, str(answer["schema"]), str(answer.get("schemaType", "AVRO")))


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
