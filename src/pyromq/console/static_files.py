"""Scripts and styles: a content hash in the name, so that browsers keep them for ever; compressed once, at
the start.
"""

import gzip
import hashlib
import mimetypes
from dataclasses import dataclass
from importlib import resources

from starlette.requests import Request
from starlette.responses import Response

_KEPT = "public, max-age=31536000, immutable"
_HASH_CHARACTERS = 12
JOINED = {
    "console.js": ("vendor/htmx.min.js", "vendor/hx-sse.min.js", "app.js"),
    "console.css": ("vendor/uPlot.min.css", "app.css"),
}
"""The files that every page needs are one script and one style: a first page waits for two files. Also, htmx
would start before an extension that is still loading."""
FILES = ("tail.js", "favicon.svg", "vendor/uPlot.iife.min.js")


@dataclass(frozen=True, slots=True)
class StaticFile:
    content: bytes
    packed: bytes
    media_type: str


class StaticFiles:
    def __init__(self) -> None:
        root = resources.files("pyromq.console").joinpath("static")

        def read(name: str) -> bytes:
            return root.joinpath(*name.split("/")).read_bytes()

        contents = {name: read(name) for name in FILES}
        for name, parts in JOINED.items():
            contents[name] = (b";\n" if name.endswith(".js") else b"\n").join(map(read, parts))
        self._by_address: dict[str, StaticFile] = {}
        self.addresses: dict[str, str] = {}
        """The address of each file, below /static/."""
        for name, content in contents.items():
            stem, _, ending = name.rpartition("/")[2].rpartition(".")
            address = f"{stem}.{hashlib.sha256(content).hexdigest()[:_HASH_CHARACTERS]}.{ending}"
            kind = mimetypes.guess_type(name)[0] or "application/octet-stream"
            self._by_address[address] = StaticFile(content, gzip.compress(content, 9, mtime=0), kind)
            self.addresses[name.rpartition("/")[2]] = address

    def __repr__(self) -> str:
        return f"<StaticFiles {sorted(self.addresses)}>"

    async def serve(self, request: Request) -> Response:
        found = self._by_address.get(request.path_params["name"])
        if found is None:
            return Response("there is no such file", 404, media_type="text/plain")
        headers = {"Cache-Control": _KEPT, "Vary": "Accept-Encoding"}
        if "gzip" in request.headers.get("accept-encoding", ""):
            return Response(
                found.packed, headers=headers | {"Content-Encoding": "gzip"}, media_type=found.media_type
            )
        return Response(found.content, headers=headers, media_type=found.media_type)
