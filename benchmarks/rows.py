"""Records to Arrow rows and back, as Spark's executors do it, without Spark: CPU time per row.

python -m benchmarks.rows [--json FILE]
"""

import argparse
import json
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from pyromq.protocol.record import Host, StoredMessage, encode_record
from pyromq.spark import encode
from pyromq.spark.columns import read_columns

ROWS: Final = 8192
TRIES: Final = 15
PROPERTIES: Final = "KEYS\x01key%d\x02UNIQ_KEY\x017F0000010B2A18B4AAC20B5F%08X\x02TAGS\x01a\x02"
COLUMNS: Final = ("value", "topic", "queueId", "offset", "timestamp", "key", "tags", "properties")
CONSTANTS: Final = {"topic": pa.scalar("rows"), "queueId": pa.scalar(0)}
HOST: Final = Host.of("127.0.0.1", 10_911)


def record(number: int, body: bytes) -> bytes:
    return encode_record(
        StoredMessage(
            topic="rows",
            queue_id=0,
            queue_offset=number,
            log_offset=number * 400,
            body=body,
            properties=(PROPERTIES % (number, number)).encode(),
            born_timestamp=1_700_000_000_000,
            born_host=HOST,
            store_timestamp=1_700_000_000_000,
            store_host=HOST,
        )
    )


def least_cpu_us(work: Callable[[], Any]) -> float:
    """Of several tries, per row: others on the machine can only make a try longer."""
    tries = []
    for _ in range(TRIES):
        began = time.process_time()
        work()
        tries.append(time.process_time() - began)
    return min(tries) / ROWS * 1e6


# The class had another name once, and older checkouts are measured with this file as well.
OUTGOING: Final = next(
    each for each in vars(encode).values() if isinstance(each, type) and hasattr(each, "entries")
)


def to_messages(batch: pa.RecordBatch, ids: encode.Ids) -> None:
    OUTGOING(batch, ids).entries()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path)
    figures: dict[str, float] = {}
    for size in (100, 1024):
        body = bytes(size)
        data = memoryview(b"".join(record(number, body) for number in range(ROWS)))
        batch = pa.RecordBatch.from_pydict(
            {"value": [body] * ROWS, "key": [f"key{number}" for number in range(ROWS)], "tags": ["a"] * ROWS}
        )
        figures[f"rows of {size} B from records: CPU µs"] = least_cpu_us(
            partial(read_columns, [data], COLUMNS, CONSTANTS, 0, ROWS)
        )
        figures[f"rows of {size} B to messages: CPU µs"] = least_cpu_us(
            partial(to_messages, batch, encode.Ids("0"))
        )
    for name, value in figures.items():
        print(f"| {name} | {value:.3f} |")
    if (path := parser.parse_args().json) is not None:
        path.write_text(json.dumps({"figures": figures}) + "\n")


if __name__ == "__main__":
    main()
