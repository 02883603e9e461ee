"""One list of messages that touches every field a record of the commit log can carry from a Java producer."""

from __future__ import annotations

import random
from typing import Any


def varied_messages(
    topic: str, seed: int = 1, fillers: int = 0, big_bytes: int = 3_000
) -> list[dict[str, Any]]:
    """Messages as `ApacheClient.send` takes them; `fillers` more small ones at the end let files roll.

    Delayed messages are not among them: the broker stores them in another topic first.
    """
    chance = random.Random(seed)
    messages: list[dict[str, Any]] = [
        {"body": b"plain", "queue": 0},
        {"body": b"tagged", "tags": "TagA", "queue": 0},
        {"body": b"keyed", "tags": "TagB", "keys": "order-1 order-2 order-3", "queue": 1},
        {
            "body": "中文消息".encode(),
            "tags": "中文",
            "keys": "钥匙",
            "properties": {"城市": "杭州"},
            "queue": 1,
        },
        {"body": b"flagged", "flag": 7, "queue": 2},
        {"body": b"negative flag", "flag": -1, "queue": 2},
        {"body": b"not waited for", "wait": "false", "queue": 3},
        {"body": b"x", "properties": {"size": "1", "empty-ish": " ", "long": "v" * 300}, "queue": 3},
        {"body": bytes(range(256)), "keys": "binary", "queue": 0},
        # Compressible and over 4 KiB: the producer compresses it.
        {
            "body": b"the same sentence again and again. " * 200,
            "tags": "Zipped",
            "keys": "zipped",
            "queue": 1,
        },
        # Incompressible: compressed all the same, and no smaller for it.
        {"body": chance.randbytes(big_bytes), "keys": "big", "queue": 2},
        *(
            {"body": b"batched %d" % i, "tags": f"Batch{i}", "keys": f"batch-{i}", "batch": f"batch-{seed}"}
            for i in range(4)
        ),
        *(
            {"body": b"filler %d" % i, "tags": f"Tag{i % 5}", "keys": f"filler-{i}", "queue": i % 4}
            for i in range(fillers)
        ),
    ]
    for number, message in enumerate(messages):
        # A message id of the machine's own address would make golden files tell where they were made.
        uniq_key = f"7F000001000018B4AAC2{seed & 0xFFFF:04X}{number:08X}"
        message["properties"] = {**message.get("properties", {}), "UNIQ_KEY": uniq_key}
        message["topic"] = topic
    return messages
