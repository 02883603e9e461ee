"""Calls to etcd over its JSON gateway: plain HTTP, so that no library of etcd is needed.

Every call opens its own connection. The peer may close a kept one at any time, which leaves open whether a
call was carried out; a controller makes only a few calls a second.
"""

import asyncio
import json
import ssl
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import h11

from pyromq.errors import ConfigError, StoreError

_MAX_ANSWER_BYTES = 64 * 1024 * 1024
_UNAUTHENTICATED = 401


class Endpoint(NamedTuple):
    host: str
    port: int
    is_tls: bool

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


def endpoints_in(text: str, *, key: str) -> tuple[Endpoint, ...]:
    """The servers in `http://host:port;https://host:port`; raises ConfigError that names `key`."""
    found: list[Endpoint] = []
    for each in filter(None, map(str.strip, text.split(";"))):
        try:
            parts = urlsplit(each)
            host, port = parts.hostname, parts.port
        except ValueError:
            host = port = None
        if parts.scheme not in ("http", "https") or not host or not port or parts.path.strip("/"):
            raise ConfigError(key, text, "http://host:port;http://host:port, or https")
        found.append(Endpoint(host, port, parts.scheme == "https"))
    return tuple(dict.fromkeys(found))


class EtcdGateway:
    """Asks the endpoint that answered last; the next one if that cannot be reached."""

    def __init__(
        self,
        endpoints: Sequence[Endpoint],
        *,
        timeout_s: float,
        tls: ssl.SSLContext | None = None,
        user: str = "",
        password: str = "",
    ) -> None:
        self._endpoints = tuple(endpoints)
        self._timeout_s = timeout_s
        self._tls = tls
        self._user = user
        self._password = password
        self._token = ""
        self._current = 0

    def __repr__(self) -> str:
        return f"<EtcdGateway {';'.join(map(str, self._endpoints))}>"

    async def call(self, path: str, message: Mapping[str, Any]) -> dict[str, Any]:
        """The answer to `POST /v3/<path>`. After a StoreError, it may or may not have been carried out."""
        if self._user and not self._token:
            await self._authenticate()
        status, answer = await self._post(path, message)
        if status == _UNAUTHENTICATED and self._user:  # The token has expired; the call was refused.
            await self._authenticate()
            status, answer = await self._post(path, message)
        return _checked(path, status, answer)

    async def _authenticate(self) -> None:
        self._token = ""
        status, answer = await self._post(
            "auth/authenticate", {"name": self._user, "password": self._password}
        )
        self._token = str(_checked("auth/authenticate", status, answer)["token"])

    async def _post(self, path: str, message: Mapping[str, Any]) -> tuple[int, dict[str, Any]]:
        problems: list[str] = []
        for _ in self._endpoints:
            endpoint = self._endpoints[self._current]
            try:
                async with asyncio.timeout(self._timeout_s):
                    reader, writer = await asyncio.open_connection(
                        endpoint.host, endpoint.port, ssl=self._tls if endpoint.is_tls else None
                    )
            except (OSError, TimeoutError) as problem:
                problems.append(f"{endpoint}: {_in_words(problem)}")
                self._try_next()
                continue
            try:
                async with asyncio.timeout(self._timeout_s):
                    return await self._exchange(endpoint, reader, writer, path, message)
            except (OSError, TimeoutError, EOFError, ValueError, h11.RemoteProtocolError) as problem:
                self._try_next()
                raise StoreError(f"etcd {endpoint} did not answer {path}: {_in_words(problem)}") from problem
            finally:
                writer.close()
        raise StoreError(f"no etcd can be reached: {'; '.join(problems)}")

    def _try_next(self) -> None:
        self._current = (self._current + 1) % len(self._endpoints)

    async def _exchange(
        self,
        endpoint: Endpoint,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        path: str,
        message: Mapping[str, Any],
    ) -> tuple[int, dict[str, Any]]:
        body = json.dumps(message).encode()
        headers = [("Host", str(endpoint)), ("Content-Length", str(len(body))), ("Connection", "close")]
        if self._token:
            headers.append(("Authorization", self._token))
        http = h11.Connection(h11.CLIENT)
        for event in (
            h11.Request(method="POST", target=f"/v3/{path}", headers=headers),
            h11.Data(data=body),
            h11.EndOfMessage(),
        ):
            writer.write(http.send(event) or b"")
        await writer.drain()
        status, received = 0, bytearray()
        while True:
            found = http.next_event()
            if found is h11.NEED_DATA:
                http.receive_data(await reader.read(65536))
            elif isinstance(found, h11.Response):
                status = found.status_code
            elif isinstance(found, h11.Data):
                received += found.data
                if len(received) > _MAX_ANSWER_BYTES:
                    raise ValueError(f"more than {_MAX_ANSWER_BYTES} bytes")
            elif isinstance(found, h11.EndOfMessage):
                return status, _json_object(bytes(received))
            else:
                raise EOFError("the connection closed")


def _in_words(problem: Exception) -> str:
    return str(problem) or "timeout"


def _json_object(data: bytes) -> dict[str, Any]:
    found = json.loads(data or b"{}")
    if not isinstance(found, dict):
        raise ValueError(f"expected a JSON object, not {type(found).__name__}")
    return found


def _checked(path: str, status: int, answer: dict[str, Any]) -> dict[str, Any]:
    if status != 200 or "error" in answer:
        reason = answer.get("message") or answer.get("error") or f"HTTP status {status}"
        raise StoreError(f"etcd refused {path}: {reason}")
    return answer
