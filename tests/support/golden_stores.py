"""The small stores Apache's brokers wrote, as `tests/golden/store/capture.py` left them."""

from __future__ import annotations

import base64
import json
import lzma
import tarfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pyromq.store.settings import StoreSettings

_DIRECTORY: Final = Path(__file__).resolve().parents[1] / "golden" / "store"


@dataclass(frozen=True)
class GoldenStore:
    """One archive; `unpack` gives a copy of the directory to work with."""

    name: str
    is_clean: bool
    """Whether the broker stopped in good order; otherwise it was killed."""
    messages: list[dict[str, Any]]
    """What Java's client read from it, queue after queue."""
    java_settings: dict[str, str]

    def __str__(self) -> str:
        return self.name

    def unpack(self, target: Path) -> StoreSettings:
        with tarfile.open(_DIRECTORY / f"{self.name}.tar.xz") as archive:
            archive.extractall(target, filter="data")
        return StoreSettings(
            root=target,
            log_segment_bytes=int(self.java_settings["mappedFileSizeCommitLog"]),
            queue_file_bytes=int(self.java_settings["mappedFileSizeConsumeQueue"]),
            index_slots=int(self.java_settings["maxHashSlotNum"]),
            index_units=int(self.java_settings["maxIndexNum"]),
            message_delay_levels=self.java_settings["messageDelayLevel"],
            disk_warning_percent=100,
        )


def golden_stores() -> list[GoldenStore]:
    stores = []
    for path in sorted(_DIRECTORY.glob("*.json.xz")):
        document = json.loads(lzma.decompress(path.read_bytes()))
        for message in document["messages"]:
            message["body"] = base64.b64decode(message["body"])
        stores.append(
            GoldenStore(
                path.name.removesuffix(".json.xz"),
                document["clean"],
                document["messages"],
                document["settings"],
            )
        )
    return stores
