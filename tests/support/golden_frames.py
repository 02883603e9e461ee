"""The recorded frames of Java peers, as `tests/golden/frames/capture.py` left them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import msgspec

_DIRECTORY: Final = Path(__file__).resolve().parents[1] / "golden" / "frames"


class GoldenFrame(msgspec.Struct, frozen=True):
    """One recorded frame and what an independent reader found in its header."""

    file: str
    at: int
    length: int
    server: str
    """Whose port it passed: "nameserver" or "broker"."""
    request: int
    """The request code: its own, or that of the request it answers."""
    to_server: bool
    answer: bool
    code: int
    language: str | int
    version: int
    opaque: int
    flag: int
    remark: str | None
    ext: dict[str, str]
    body_length: int

    def __str__(self) -> str:
        kind = f"answer-{self.code}" if self.answer else "request"
        return f"{self.file.removesuffix('.bin')}-{self.server}-{self.request}-{kind}-at-{self.at}"

    @property
    def data(self) -> bytes:
        return (_DIRECTORY / self.file).read_bytes()[self.at : self.at + self.length]


def golden_frames() -> list[GoldenFrame]:
    rows: list[dict[str, Any]] = json.loads((_DIRECTORY / "index.json").read_text())
    return [msgspec.convert(row, GoldenFrame) for row in rows]
