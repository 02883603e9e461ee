"""A browser without a screen: asks the app directly, keeps cookies, and sends what browsers send."""

import asyncio
import re
from collections.abc import Mapping
from http.cookies import SimpleCookie
from typing import Any
from unittest.mock import patch
from urllib.parse import unquote, urlencode

import msgspec
from starlette.applications import Starlette
from starlette.types import Message

CHEAP_HASHES = patch.dict("pyromq.console.security.users._COST", n=16)
"""Passwords that nobody attacks; the tests of the users file have those that cost what they should."""

TOKEN = re.compile(r'name="csrf" value="([^"]+)"')
JSON = "application/json"


class Page:
    def __init__(self, status: int, headers: list[tuple[bytes, bytes]], body: bytes) -> None:
        self.status = status
        self.headers = {name.decode().lower(): value.decode() for name, value in headers}
        self.cookies = [value.decode() for name, value in headers if name.lower() == b"set-cookie"]
        self.body = body

    def __repr__(self) -> str:
        return f"<Page {self.status} {self.text[:300]!r}>"

    @property
    def text(self) -> str:
        return self.body.decode()

    @property
    def json(self) -> Any:
        return msgspec.json.decode(self.body)

    @property
    def token(self) -> str:
        found = TOKEN.search(self.text)
        assert found, f"no form with a token: {self!r}"
        return found[1]


class Browser:
    def __init__(
        self, app: Starlette, host: str = "127.0.0.1:8088", client: str = "127.0.0.1", scheme: str = "http"
    ) -> None:
        self._app = app
        self.host, self.client, self.scheme = host, client, scheme
        self.cookies: dict[str, str] = {}

    async def get(self, path: str, accept: str = "text/html", **headers: str) -> Page:
        return await self._ask("GET", path, b"", {"accept": accept, **headers})

    async def get_and_leave(self, path: str) -> Page:
        """Close the tab before the answer is there."""
        return await self._ask("GET", path, b"", {"accept": "text/html"}, leaves_early=True)

    async def get_json(self, path: str, **headers: str) -> Page:
        return await self.get(path, accept=JSON, **headers)

    async def post(
        self, path: str, form: Mapping[str, Any], accept: str = "text/html", **headers: str
    ) -> Page:
        """As a form of our own page sends it, unless `headers` say otherwise; an empty one is not sent."""
        sent = {
            "accept": accept,
            "content-type": "application/x-www-form-urlencoded",
            "sec-fetch-site": "same-origin",
            **{name.replace("_", "-"): text for name, text in headers.items()},
        }
        return await self._ask("POST", path, urlencode(form).encode(), sent)

    async def log_in(self, name: str, password: str) -> Page:
        return await self.post("/login", {"name": name, "password": password, "next": "/me"})

    async def token(self) -> str:
        return (await self.get("/me")).token

    async def _ask(
        self, method: str, path: str, body: bytes, headers: Mapping[str, str], *, leaves_early: bool = False
    ) -> Page:
        where, _, query = path.partition("?")
        sent = {"host": self.host, **headers}
        if body:
            sent.setdefault("content-length", str(len(body)))
        if self.cookies:
            sent["cookie"] = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
        scope = {
            "type": "http",
            "http_version": "1.1",
            "method": method,
            "scheme": self.scheme,
            "path": unquote(where),
            "raw_path": where.encode(),
            "query_string": query.encode(),
            "root_path": "",
            "headers": [
                (name.replace("_", "-").encode(), text.encode()) for name, text in sent.items() if text
            ],
            "client": (self.client, 50000),
            "server": ("127.0.0.1", 8088),
        }
        messages: list[Message] = []
        waiting: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]
        has_seen = asyncio.Event()
        if leaves_early:
            has_seen.set()

        async def receive() -> Message:
            """It leaves when it has the answer, or the beginning of a stream."""
            if waiting:
                return waiting.pop(0)
            await has_seen.wait()
            return {"type": "http.disconnect"}

        async def send(message: Message) -> None:
            messages.append(message)
            if message["type"] == "http.response.start":
                is_stream.append((b"content-type", b"text/event-stream; charset=utf-8") in message["headers"])
            elif is_stream[0] or not message.get("more_body"):
                has_seen.set()

        is_stream: list[bool] = []

        await self._app(scope, receive, send)
        start = next(each for each in messages if each["type"] == "http.response.start")
        content = b"".join(each.get("body", b"") for each in messages if each["type"] == "http.response.body")
        page = Page(start["status"], start["headers"], content)
        for line in page.cookies:
            for name, morsel in SimpleCookie(line).items():
                if morsel["max-age"] == "0":
                    self.cookies.pop(name, None)
                else:
                    self.cookies[name] = morsel.value
        return page
