"""A filter that filter servers run: a Python function whose source is uploaded, or a module in WebAssembly.

The source must be all that there is. What else the function uses is imported or repeated in front of it, or
the function is refused: a mistake is found before any server is asked.
"""

import builtins
import dis
import inspect
import sys
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any, Final
from zlib import crc32

from pyromq.errors import ConfigError

FilterCode = Callable[..., bool] | Path
"""`def match(message, context) -> bool`, or of the message alone; or the file of a module in WebAssembly."""

_PLAIN: Final = (bool, int, float, str, bytes, type(None))
_MODULE_BEGIN: Final = b"\0asm"
_TAKES_POSITIONS: Final = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


@dataclass(frozen=True, slots=True)
class ServerFilter:
    name: str
    source: bytes

    @property
    def crc(self) -> int:
        """java: CRCs have no sign"""
        return crc32(self.source) & 0x7FFF_FFFF

    @classmethod
    def of(cls, code: FilterCode) -> "ServerFilter":
        """Raises ConfigError if the source is not the whole filter, or the file is not a module."""
        if isinstance(code, Path):
            return cls(code.stem, _module(code))
        return cls._of_function(code)

    @classmethod
    def _of_function(cls, function: Callable[..., bool]) -> "ServerFilter":
        name = getattr(function, "__name__", repr(function))
        if not isinstance(function, FunctionType) or not name.isidentifier():
            raise _bad(name, "a function made with `def`: filter servers get its source")
        if names := function.__code__.co_freevars:
            raise _bad(name, f"a function that uses nothing of the functions around it: {', '.join(names)}")
        kinds = [each.kind for each in inspect.signature(function).parameters.values()]
        if len(kinds) not in (1, 2) or any(kind not in _TAKES_POSITIONS for kind in kinds):
            raise _bad(name, "a function of (message, context), or of the message alone")
        try:
            own = textwrap.dedent(inspect.getsource(function))
        except OSError:
            raise _bad(name, "a function in a file: the source of this one cannot be read") from None
        if not own.startswith("def "):
            raise _bad(name, "a function that is not async and has no decorators")
        # Annotations may name types that filter servers do not have.
        lines = ["from __future__ import annotations", *_used(function), own]
        if name != "match":
            lines.append(f"match = {name}\n")
        return cls(name, "\n".join(lines).encode())


def _module(path: Path) -> bytes:
    try:
        source = path.read_bytes()
    except OSError as problem:
        raise _bad(path, f"the file of a module in WebAssembly: {problem.strerror}") from None
    if not source.startswith(_MODULE_BEGIN):
        raise _bad(path, "the file of a module in WebAssembly, which begins with the bytes 00 61 73 6d")
    return source


def _used(function: FunctionType) -> Iterator[str]:
    """Lines that provide what the function uses of its module."""
    for name in sorted(_globals_in(function.__code__)):
        if name == function.__name__:
            continue
        if name not in function.__globals__:
            if not hasattr(builtins, name):
                raise _bad(function.__name__, f"{name} to be defined")
            continue
        value = function.__globals__[name]
        if isinstance(value, ModuleType):
            yield f"import {value.__name__} as {name}"
        elif _is_plain(value):
            yield f"{name} = {value!r}"
        elif (module := _module_of(value)) is not None:
            yield f"from {module} import {value.__name__} as {name}"
        else:
            raise _bad(
                function.__name__,
                "only modules, constants and Python's own functions from outside the function:"
                f" define {name} in it",
            )


def _globals_in(code: CodeType) -> set[str]:
    found = {
        step.argval
        for step in dis.get_instructions(code)
        if step.opname in ("LOAD_GLOBAL", "LOAD_NAME") and isinstance(step.argval, str)
    }
    return found.union(*(_globals_in(each) for each in code.co_consts if isinstance(each, CodeType)))


def _is_plain(value: object) -> bool:
    if isinstance(value, tuple | frozenset):
        return type(value) in (tuple, frozenset) and all(map(_is_plain, value))
    return type(value) in _PLAIN and value == value  # NaN has no text that reads as it


def _module_of(value: Any) -> str | None:
    """The module of the standard library that this function or class can be imported from."""
    module, name = getattr(value, "__module__", None), getattr(value, "__name__", None)
    if not isinstance(module, str) or not isinstance(name, str):
        return None
    is_pythons = module.partition(".")[0] in sys.stdlib_module_names and module != "__main__"
    return module if is_pythons and getattr(sys.modules.get(module), name, None) is value else None


def _bad(name: object, expected: str) -> ConfigError:
    return ConfigError("filter", name, expected)
