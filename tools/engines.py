"""Our Delta and Iceberg tables, read by DuckDB and Polars.

    python -m tools.engines

Needs PyPI (into the user's cache directory). Exit status 3 says that the engines could not be had; everything
else that is not 0 is our own fault.
"""

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_type
from tests.support.apache_releases import UNAVAILABLE, PeerUnavailable, cache_directory, say

from pyromq.spark.ddl import parse_type
from pyromq.spark.pipelines.lake import DELTA, ICEBERG, table_at
from pyromq.spark.pipelines.lake_files import DELETED

DUCKDB: Final = "1.5.5"
"""The newest one whose extensions are on PyPI."""
POLARS: Final = "2.1.0"
EXTENSIONS: Final = ("avro", "delta", "iceberg")
PACKAGES: Final = (
    *(f"duckdb{part}=={DUCKDB}" for part in ("", "-extensions", *map("-extension-{}".format, EXTENSIONS))),
    f"polars=={POLARS}",
    "pyarrow",
    "deltalake==1.6.6",
    "pyiceberg==0.12.0",
)
ENGINES: Final = ("duckdb", "polars")
ROWS: Final = 300
_COLUMNS: Final = (
    "id: bigint, part: string, count: int, amount: decimal(38, 10), at: timestamp, day: date, note: string,"
    " tags: array<string>, inner: struct<n: int, text: string>"
)
_GROWN: Final = _COLUMNS.replace("count: int", "count: bigint") + ", added: string"
_READ: Final = """
import json, sys
engine, form, place = sys.argv[1:]
if engine == "duckdb":
    import duckdb
    from duckdb_extensions import import_extension
    lake = duckdb.connect()
    for name in ("delta",) if form == "delta" else ("avro", "iceberg"):
        import_extension(name, con=lake)
        lake.execute(f"LOAD {name}")
    lake.execute("SET TimeZone = 'UTC'")
    rows = lake.execute(f"SELECT * FROM {form}_scan('{place}')").to_arrow_table().to_pylist()
else:
    import polars
    if form == "delta":
        rows = polars.read_delta(place).to_arrow().to_pylist()
    else:
        from pyiceberg.table import StaticTable
        rows = polars.scan_iceberg(StaticTable.from_metadata(place)).collect().to_arrow().to_pylist()
print("FOUND " + json.dumps(rows, default=str))
"""


def main() -> int:
    try:
        python = _python()
    except PeerUnavailable as problem:
        say(f"NOT RUN: {problem}")
        return UNAVAILABLE
    with tempfile.TemporaryDirectory(prefix="pyromq-engines-") as scratch:
        for form in (DELTA, ICEBERG):
            place = Path(scratch) / form
            for step, expected in steps(form, place):
                for engine in ENGINES:
                    found = _rows(python, engine, form, place)
                    if found != expected:
                        wrong = [pair for pair in zip(found, expected, strict=False) if pair[0] != pair[1]]
                        say(f"{engine}, {form}, {step}: {len(found)} rows, {len(wrong)} differ: {wrong[:2]}")
                        return 1
                    say(f"{engine} reads the {form} table {step}: {len(found)} rows")
    return 0


def steps(form: str, place: Path) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """A table that changes, and the rows that it has then."""
    rows = {number: _row(number) for number in range(ROWS)}
    table_at(str(place), form).apply(
        _changes(_COLUMNS, rows.values()), ["id"], 0, cleared=False, partition_by=["part"]
    )
    yield "at first", _told(rows)
    changed = {
        number: _row(number) | {"count": 2**40 + number, "added": "new"} for number in range(0, ROWS, 3)
    }
    gone = {number: rows.pop(number) | {DELETED: True} for number in range(1, ROWS, 7)}
    rows |= changed
    for number in gone.keys() & changed.keys():
        del rows[number], changed[number]
    table = table_at(str(place), form)
    table.apply(_changes(_GROWN, [*changed.values(), *gone.values()]), ["id"], 1, cleared=False)
    rows = {number: {**row, "added": row.get("added")} for number, row in rows.items()}
    yield "after changes", _told(rows)


def changed(form: str, place: Path) -> list[dict[str, Any]]:
    """Make such a table; the rows that it has at the end."""
    *_, (_, rows) = steps(form, place)
    return rows


def _row(number: int) -> dict[str, Any]:
    return {
        "id": number,
        "part": f"part {number % 3}" if number % 10 else None,
        "count": number,
        "amount": Decimal(f"{number}1234567890123456789012345.0123456789"),
        "at": datetime.fromtimestamp(number * 100_000 + 0.25, UTC),
        "day": date.fromordinal(700_000 + number),
        "note": None if number % 5 == 0 else f"ünï {number}",
        "tags": ["a", None, str(number)],
        "inner": {"n": number, "text": None},
    }


def _changes(columns: str, rows: Any) -> pa.Table:
    kinds = to_arrow_type(parse_type(f"struct<{columns}>"), timezone="UTC")
    schema = pa.schema([*kinds, pa.field(DELETED, pa.bool_())])
    return pa.Table.from_pylist([{DELETED: False} | row for row in rows], schema)


def _told(rows: dict[int, dict[str, Any]]) -> list[dict[str, Any]]:
    told: list[dict[str, Any]] = json.loads(json.dumps([rows[key] for key in sorted(rows)], default=str))
    return told


def _rows(python: Path, engine: str, form: str, place: Path) -> list[dict[str, Any]]:
    done = subprocess.run(
        [python, "-c", _READ, engine, form, str(place)], capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise RuntimeError(f"{engine} cannot read the {form} table: {done.stderr[-2000:]}")
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("FOUND ")]
    found: list[dict[str, Any]] = json.loads(line.removeprefix("FOUND "))
    return sorted(found, key=lambda row: int(row["id"]))


def _python() -> Path:
    """A Python that has the engines; made once."""
    home = cache_directory().parent / "engines"
    python, wanted = home / "bin" / "python", home / "wanted"
    if wanted.exists() and wanted.read_text() == " ".join(PACKAGES):
        return python
    say("installing DuckDB and Polars ...")
    subprocess.run([sys.executable, "-m", "venv", "--clear", str(home)], check=True)
    done = subprocess.run(
        [python, "-m", "pip", "install", "-q", *PACKAGES], capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise PeerUnavailable(f"could not install the engines: {done.stderr.strip()[-500:]}")
    wanted.write_text(" ".join(PACKAGES))
    return python


if __name__ == "__main__":
    sys.exit(main())
