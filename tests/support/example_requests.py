"""One example of every declared request and answer, the same on every run, and the files made from them.

    python -m tests.support.example_requests    (writes tests/golden/requests and docs/reference/requests.md)

The files in `tests/golden/requests` hold a line for each example and header form:

    name  request|answer  JSON|BINARY  the whole frame as a Python bytes literal
"""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from zlib import crc32

import msgspec
from msgspec import inspect

from pyromq.protocol.catalogue import (
    CATALOGUE,
    Answer,
    Declaration,
    Request,
    encode_answer,
    encode_request,
)
from pyromq.protocol.codes import V5_3_3
from pyromq.protocol.frame import HeaderForm
from pyromq.protocol.framing import encode_frame
from pyromq.protocol.requests.reference import markdown

ROOT = Path(__file__).parents[2]
GOLDEN = ROOT / "tests" / "golden" / "requests"
REFERENCE_PAGE = ROOT / "docs" / "reference" / "requests.md"
OPAQUE = 0x01020304


def example_request(declaration: Declaration) -> Request[Any]:
    """A request with every field filled."""
    request: Request[Any] = _struct_example(declaration.request_type, declaration.name)
    return request


def example_answer(declaration: Declaration) -> Answer:
    """A successful answer with every field filled."""
    answer: Answer = _struct_example(declaration.answer_type, declaration.name)
    answer.code = 0
    return answer


def _struct_example(type_: type[msgspec.Struct], path: str) -> Any:
    described = inspect.type_info(type_)
    assert isinstance(described, inspect.StructType)
    return type_(**{field.name: _example(field.type, f"{path}.{field.name}") for field in described.fields})


def _example(described: inspect.Type, path: str) -> Any:
    name = path.rpartition(".")[2]
    number = crc32(path.encode())
    match described:
        case inspect.BoolType():
            return number % 2 == 0
        case inspect.IntType(le=most):
            return number % 1000 - 1 if most == 2**31 - 1 else number * 1001 - 1
        case inspect.FloatType():
            return number % 1000 / 8
        case inspect.StrType():
            return f"{name} é"
        case inspect.BytesType():
            return b"\x00\xff" + name.encode()
        case inspect.EnumType(cls=members):
            return list(members)[number % len(members)]
        case inspect.StructType(cls=inner):
            return _struct_example(inner, path)
        case inspect.ListType(item_type=item):
            return [_example(item, f"{path}.first"), _example(item, f"{path}.second")]
        case inspect.SetType(item_type=item):
            return {_example(item, f"{path}.only")}
        case inspect.DictType(key_type=key, value_type=value):
            return {_example(key, f"{path}.key"): _example(value, f"{path}.value")}
        case inspect.UnionType(types=choices):
            return _example(next(each for each in choices if not isinstance(each, inspect.NoneType)), path)
    raise TypeError(f"no example is known for {described}")


def golden_lines(declaration: Declaration) -> Iterator[str]:
    for form in HeaderForm:
        asked = encode_request(example_request(declaration), OPAQUE, form=form, version=V5_3_3)
        yield _line(declaration.name, "request", form, encode_frame(asked))
        answered = encode_answer(declaration, example_answer(declaration), asked)
        answered.version = V5_3_3
        yield _line(declaration.name, "answer", form, encode_frame(answered))


def _line(name: str, direction: str, form: HeaderForm, frame: bytes) -> str:
    return f"{name} {direction} {form.name} {frame!r}\n"


def golden_files() -> dict[str, str]:
    """The contents of the golden files by name, one for each module of declarations."""
    files: dict[str, str] = {}
    for code in sorted(CATALOGUE):
        declaration = CATALOGUE[code]
        name = declaration.request_type.__module__.rpartition(".")[2] + ".txt"
        files[name] = files.get(name, "") + "".join(golden_lines(declaration))
    return files


def stored_frames() -> dict[tuple[str, str, str], bytes]:
    """What the golden files hold: (name, direction, form) to the bytes of a frame."""
    frames: dict[tuple[str, str, str], bytes] = {}
    for path in sorted(GOLDEN.glob("*.txt")):
        for line in path.read_text("ascii").splitlines():
            name, direction, form, literal = line.split(" ", 3)
            frames[name, direction, form] = ast.literal_eval(literal)
    return frames


def main() -> None:
    GOLDEN.mkdir(parents=True, exist_ok=True)
    for stale in GOLDEN.glob("*.txt"):
        stale.unlink()
    for name, text in golden_files().items():
        (GOLDEN / name).write_text(text, "ascii")
    REFERENCE_PAGE.write_text(markdown(), "utf-8")


if __name__ == "__main__":
    main()
