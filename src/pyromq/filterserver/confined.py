"""The process of one filter: `python -I -m pyromq.filterserver.confined KIND MEMORY_BYTES PARENT`.

It imports what filters may use, confines itself, and only then reads the filter. It ends with its pipe.
"""

import builtins
import importlib
import os
import sys
from typing import Any, Final, NoReturn

import msgspec

from pyromq.client.values import ReceivedMessage
from pyromq.errors import PyroError
from pyromq.filterserver.confinement import confine, end_with_parent
from pyromq.filterserver.exchange import (
    ERROR,
    EXHAUSTED,
    HEAD,
    LENGTH,
    LOAD,
    MAX_TEXT_BYTES,
    QUEUE_ID,
    VERDICTS,
    BadFilter,
    FilterSource,
    Match,
    packed,
)
from pyromq.filterserver.modules import BEHIND, ENCODINGS, MODULES
from pyromq.filterserver.web_assembly import WebAssembly
from pyromq.protocol.body import MessageQueue
from pyromq.protocol.message import open_message
from pyromq.protocol.record import decode_records

_QUESTIONS, _ANSWERS = 0, 1
_FILE: Final = "<filter>"
_READ_BYTES: Final = 1024 * 1024


class FilterContext(msgspec.Struct, frozen=True):
    """For whom a filter runs."""

    group: str
    topic: str


class _Nowhere:
    """Takes what a filter prints."""

    def write(self, text: str) -> int:
        return len(text)

    def flush(self) -> None:
        return


def main(kind: str, memory_bytes: str, parent: str) -> None:
    end_with_parent(int(parent))
    for module in (*MODULES, *BEHIND):
        importlib.import_module(module)
    for encoding in ENCODINGS:
        "".encode(encoding)
    sys.stdin = None
    sys.stdout = sys.stderr = _Nowhere()
    try:
        runtime = WebAssembly(int(memory_bytes)) if kind == "module" else None
        confine(int(memory_bytes))
    except (PyroError, BadFilter) as problem:
        _answer(0, ERROR, str(problem).encode())
        _end()
    _answer(0, VERDICTS, b"")
    _serve(runtime)


def _serve(runtime: WebAssembly | None) -> NoReturn:
    source: FilterSource | None = None
    match: Match | None = None
    while True:
        length = LENGTH.unpack(_read(LENGTH.size))[0]
        frame = LENGTH.pack(length) + _read(length)
        _, number, kind = HEAD.unpack_from(frame)
        content = frame[HEAD.size :]
        try:
            if kind == LOAD:
                source = msgspec.json.decode(content, type=FilterSource)
                match = _loaded(source) if runtime is None else runtime.loaded(source.source)
                verdicts = b""
            else:
                assert source is not None
                assert match is not None
                verdicts = _matched(source, match, content)
        except MemoryError:
            match = source = None
            _answer(number, EXHAUSTED, b"it needs more memory than filters may have")
            _end()
        except BaseException as problem:  # also SystemExit and KeyboardInterrupt: the filter raised it
            words = (runtime.in_words(problem) if runtime is not None else None) or _in_words(problem)
            _answer(number, ERROR, words.encode("utf-8", "replace")[:MAX_TEXT_BYTES])
        else:
            _answer(number, VERDICTS, verdicts)


def _loaded(source: FilterSource) -> Match:
    names: dict[str, Any] = {"__builtins__": builtins, "__name__": "filter"}
    exec(compile(source.source, _FILE, "exec"), names)
    function = names.get("match")
    code = getattr(function, "__code__", None)
    if function is None or code is None or code.co_argcount not in (1, 2):
        raise BadFilter("the source has no function match(message, context)")
    if code.co_argcount == 1:
        return lambda message: function(message)
    context = FilterContext(source.group, source.topic)
    return lambda message: function(message, context)


def _matched(source: FilterSource, match: Match, content: bytes) -> bytes:
    queue = MessageQueue(source.topic, source.broker_name, QUEUE_ID.unpack_from(content)[0])
    verdicts = bytearray()
    for record in decode_records(content[QUEUE_ID.size :]):
        (opened,) = open_message(record, on_problem=lambda _: None)
        verdict = match(ReceivedMessage(opened, queue))
        if type(verdict) is not bool:  # a forgotten `return` would hide every message
            raise BadFilter(f"match returned {type(verdict).__name__}, not True or False")
        verdicts.append(verdict)
    return bytes(verdicts)


def _in_words(problem: BaseException) -> str:
    if isinstance(problem, BadFilter):
        return str(problem)
    lines = []
    trace = problem.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == _FILE:
            lines.append(trace.tb_lineno)
        trace = trace.tb_next
    if isinstance(problem, SyntaxError):
        line = f"line {problem.lineno}: " if problem.lineno is not None else ""
        return f"the source is not Python: {line}{problem.msg}"
    where = f"line {lines[-1]}: " if lines else ""
    try:
        text = f"{type(problem).__name__}: {problem}"
    except BaseException:
        text = type(problem).__name__
    if isinstance(problem, ImportError):
        text += f" (filters may import {', '.join(sorted(MODULES))})"
    return where + text


def _read(size: int) -> bytes:
    pieces = []
    while size:
        piece = os.read(_QUESTIONS, min(size, _READ_BYTES))
        if not piece:
            _end()
        pieces.append(piece)
        size -= len(piece)
    return b"".join(pieces)


def _answer(number: int, kind: bytes, content: bytes) -> None:
    rest = memoryview(packed(number, kind, content))
    while rest:
        rest = rest[os.write(_ANSWERS, rest) :]


def _end() -> NoReturn:
    os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
