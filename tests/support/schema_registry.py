"""A schema registry in memory, over real HTTP: the part of Confluent's API that clients of ours use."""

import base64
import json
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote

REAL = "PYROMQ_REGISTRY"


class StandInRegistry(ThreadingHTTPServer):
    """`failures` answers with 503 come first; `auth` is demanded if it is set."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.schemas: list[dict[str, Any]] = []
        self.subjects: dict[str, list[int]] = {}
        self.auth: str | None = None
        self.failures = 0
        self.requests: list[str] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def answer(self, method: str, path: str, body: Any) -> tuple[int, Any]:
        self.requests.append(f"{method} {path}")
        match path.strip("/").split("/"):
            case ["schemas", "ids", number] if 0 < int(number) <= len(self.schemas):
                return 200, self.schemas[int(number) - 1]
            case ["schemas", "ids", _]:
                return 404, {"error_code": 40403, "message": "Schema not found"}
            case ["subjects", subject, "versions"] if method == "POST":
                if "schemaType" not in body or body["schemaType"] == "AVRO":
                    try:
                        json.loads(body["schema"])
                    except ValueError as problem:
                        return 422, {"error_code": 42201, "message": f"Invalid schema: {problem}"}
                # As Confluent's server: what is Avro, or refers to nothing, does not say so.
                found = {
                    name: value
                    for name, value in body.items()
                    if value and (name, value) != ("schemaType", "AVRO")
                }
                if found not in self.schemas:
                    self.schemas.append(found)
                made = self.schemas.index(found) + 1
                versions = self.subjects.setdefault(unquote(subject), [])
                if made not in versions:
                    versions.append(made)
                return 200, {"id": made}
            case ["subjects", subject, "versions", version] if (name := unquote(subject)) in self.subjects:
                known = self.subjects[name]
                place = len(known) if version == "latest" else int(version)
                last = known[place - 1]
                return 200, {"subject": name, "version": place, "id": last} | self.schemas[last - 1]
            case ["subjects", *_]:
                return 404, {"error_code": 40401, "message": f"Subject not found: {path}"}
        return 404, {"error_code": 404, "message": "HTTP 404 Not Found"}


class _Handler(BaseHTTPRequestHandler):
    server: StandInRegistry

    def do_GET(self) -> None:
        self._answer(None)

    def do_POST(self) -> None:
        self._answer(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

    def _answer(self, body: Any) -> None:
        wanted = self.server.auth
        expected = wanted and f"Basic {base64.b64encode(wanted.encode()).decode()}"
        if self.server.failures:
            self.server.failures -= 1
            status, document = 503, {"message": "not now"}
        elif expected and self.headers["Authorization"] != expected:
            status, document = 401, {"message": "Unauthorized"}
        else:
            status, document = self.server.answer(self.command, self.path, body)
        content = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *arguments: Any) -> None:
        """Nobody wants to read it."""


@contextmanager
def some_registry() -> Iterator[str]:
    """The URL of the real one that `make registry` has started, or of a stand-in."""
    if REAL in os.environ:
        yield os.environ[REAL]
    else:
        with stand_in_registry() as server:
            yield server.url


@contextmanager
def stand_in_registry() -> Iterator[StandInRegistry]:
    server = StandInRegistry()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
