"""Files that commands read and write."""

from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import click
import msgspec

from pyromq.errors import RemoteProtocolError
from pyromq.protocol import json_body

T = TypeVar("T")


def read_json(path: Path, type_: type[T]) -> T:
    """Read a value from a JSON file, standard or as Java's tools write it."""
    try:
        return json_body.decode(path.read_bytes(), type_)
    except OSError as problem:
        raise click.ClickException(f"cannot read {path}: {problem.strerror}") from problem
    except RemoteProtocolError as problem:
        raise click.ClickException(f"{path} has unexpected content: {problem}") from problem


def read_list(path: Path, type_: type[T], table: str) -> list[T]:
    """Read a JSON list, or a table of what `exportMetadata` wrote."""
    with suppress(OSError):
        if path.read_bytes().lstrip().startswith(b"{"):
            tables = read_json(path, dict[str, Any])
            if not isinstance(tables.get(table), dict):
                raise click.ClickException(f"{path} has neither a list nor a {table}")
            try:
                return [msgspec.convert(each, type_) for each in tables[table].values()]
            except msgspec.ValidationError as problem:
                raise click.ClickException(f"{path} has unexpected content: {problem}") from problem
    return read_json(path, list[type_])  # type: ignore[valid-type]


def write_json(directory: Path, name: str, value: Any) -> Path:
    """Write a value as indented JSON; returns the path."""
    path = directory / name
    try:
        directory.mkdir(parents=True, exist_ok=True)
        path.write_bytes(msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n")
    except OSError as problem:
        raise click.ClickException(
            f"cannot write {path}: {problem.strerror}; choose a directory with -f DIR"
        ) from problem
    return path
