"""The reference of the public face, made from its source: what is documented there is documented here.

python -m tools.api_reference    (writes docs/reference/api)
"""

import ast
import dataclasses
import inspect
import re
import shutil
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from enum import Enum
from functools import cache
from pathlib import Path
from types import ModuleType, NoneType
from typing import Any, get_overloads

import pyromq
from pyromq import aio, testing
from pyromq.client.consumer.settings import PullSettings, PushSettings, SimpleSettings
from pyromq.client.producer_settings import ProducerSettings
from pyromq.client.pulled_message import InterpretedMessage, PulledMessage
from pyromq.client.settings import ClientSettings
from pyromq.config.options import Options

FOLDER = Path(__file__).parents[1] / "docs" / "reference" / "api"

_INTRODUCTION = """\
# Python API

Generated from the source by `python -m tools.api_reference`; do not edit.

`pyromq` is for programs without an event loop, `pyromq.aio` has the same names for asyncio; messages,
results and [errors](errors.md) are the same for both. [Options](options.md) are keyword arguments of clients.
How to use them: [producing](../../howto/producer.md), [consuming](../../howto/consumer.md),
[managing topics and groups](../../howto/admin.md#from-python), [testing](../../howto/testing.md).
Names that are not listed here may change without notice.
"""

_OPTIONS: dict[str, type[Options]] = {
    "Of producers": ProducerSettings,
    "Of push consumers": PushSettings,
    "Of pull consumers": PullSettings,
    "Of simple consumers": SimpleSettings,
    "Of every client": ClientSettings,
}
_OPTIONS_INTRODUCTION = """\
# Options

Keyword arguments of producers and consumers: those of its kind, and those of every client.
"""
_CLIENTS = (
    "Producer",
    "TransactionProducer",
    "PushConsumer",
    "PullConsumer",
    "SimpleConsumer",
    "LiteConsumer",
    "Reader",
    "Admin",
)

_FOR_BROKERS = ("check_transaction",)
_MADE_BY_US = ("PoppedMessage", "ReceivedMessage", "RunningCluster")

# Names that mean something only where they stand.
_COROUTINE = re.compile(r"Coroutine\[Any, Any, (.*)\]")
_SHOWN_AS = {"aio.": "", "push.": "", "pull.": "", "aio_transactions.": "", "_NO_PROPERTIES": "{}"}

Function = ast.FunctionDef | ast.AsyncFunctionDef


def pages() -> dict[str, str]:
    """A page for each class and function, one for all options, one for all errors; the first lists them."""
    errors = [name for name in pyromq.__all__ if _is_error(getattr(pyromq, name))]
    values = [name for name in pyromq.__all__ if name not in (*errors, *_CLIENTS)]
    constants = [name for name in values if not callable(getattr(pyromq, name))]
    sections: tuple[tuple[str, ModuleType, Sequence[str]], ...] = (
        ("pyromq: blocking clients", pyromq, _CLIENTS),
        ("pyromq.aio: the same for asyncio", aio, _CLIENTS),
        ("Messages, results and other values", pyromq, [name for name in values if name not in constants]),
        ("pyromq.testing: clusters for tests", testing, testing.__all__),
    )
    index = [_INTRODUCTION]
    found = {}
    for title, module, names in sections:
        index.append(f"## {title}\n")
        for name in names:
            place = "/".join([*module.__name__.split(".")[1:], f"{name}.md"])
            index.append(f"- [`{module.__name__}.{name}`]({place})")
            found[place] = _page(_named(f"# `{module.__name__}.{name}`", getattr(module, name)))
        if module is pyromq and names is not _CLIENTS:
            index += [f"- `pyromq.{name}`: {inspect.getdoc(getattr(pyromq, name))}" for name in constants]
        index.append("")
    options = (text for title, type_ in _OPTIONS.items() for text in (f"## {title}\n", _options(type_)))
    refusals = (text for name in errors for text in _named(f"## `pyromq.{name}`", getattr(pyromq, name)))
    return {
        "README.md": _page(index),
        "options.md": _page([_OPTIONS_INTRODUCTION, *options]),
        "errors.md": _page(["# Errors\n", *refusals]),
        **found,
    }


def _page(parts: Iterable[str]) -> str:
    return re.sub(r"\n{3,}", "\n\n", "\n".join(parts)).rstrip("\n") + "\n"


def _is_error(value: object) -> bool:
    return isinstance(value, type) and issubclass(value, BaseException)


def _named(heading: str, value: object) -> Iterator[str]:
    if isinstance(value, type):
        yield from _class(heading, value)
    else:
        function = _tree(inspect.unwrap(value))  # type: ignore[arg-type]
        assert isinstance(function, Function)
        yield f"{heading}\n"
        yield _function(function)


# Classes


def _class(heading: str, type_: type) -> Iterator[str]:
    bases = [base.__name__ for base in type_.__bases__ if base.__module__.startswith("pyromq")]
    above = f" ({', '.join(bases)})" if _is_error(type_) and bases else ""
    yield f"{heading}{above}\n"
    yield _documentation(_class_tree(type_))
    if type_.__bases__[0].__name__ in _CLIENTS:
        yield f"It has everything that a `{type_.__bases__[0].__name__}` has, and:\n"
    members = _members(type_)
    constructor = members.pop("__init__", None)
    if constructor is not None and not _is_error(type_) and type_.__name__ not in _MADE_BY_US:
        yield _function(constructor, type_.__name__)
    yield _attributes(type_, [each for each in members.values() if _is_property(each)])
    for name, function in members.items():
        if not name.startswith("_") and name not in _FOR_BROKERS and not _is_property(function):
            yield _function(function)


def _members(type_: type) -> dict[str, Function]:
    """Its own methods in the order of the source, then those that it inherits from a class of ours."""
    found: dict[str, Function] = {}
    for owner in type_.__mro__:
        if not owner.__module__.startswith("pyromq") or (owner is not type_ and owner.__name__ in _CLIENTS):
            break
        for node in _class_tree(owner).body:
            if isinstance(node, Function) and "overload" not in map(ast.unparse, node.decorator_list):
                found.setdefault(node.name, _with_options(node, getattr(owner, node.name)))
            elif _is_blocking_form(node):
                found.setdefault(_target(node), _blocking_form(getattr(owner, _target(node))))
    return found


def _is_blocking_form(node: ast.stmt) -> bool:
    return isinstance(node, ast.Assign) and ast.unparse(node.value).startswith(
        ("awaited(", "first_on_this_thread(", "on_the_loop(")
    )


def _blocking_form(method: object) -> ast.FunctionDef:
    """An asyncio method as it is for programs without an event loop."""
    function = _tree(inspect.unwrap(method))  # type: ignore[arg-type]
    assert isinstance(function, Function)
    function = _with_options(function, inspect.unwrap(method))  # type: ignore[arg-type]
    fields = {name: getattr(function, name) for name in function._fields}
    if (awaited := _COROUTINE.fullmatch(ast.unparse(fields["returns"]))) is not None:
        fields["returns"] = ast.parse(awaited[1], mode="eval").body
    return ast.FunctionDef(**fields)


def _with_options(function: Function, method: Any) -> Function:
    """A function that passes its options on, with the options that its overloads name."""
    overloads = [_tree(each) for each in get_overloads(method)] if function.args.kwarg is not None else []
    named = [each.args for each in overloads if isinstance(each, Function)]
    if named:
        widest, own = max(named, key=lambda each: len(each.kwonlyargs)), function.args
        own.kwonlyargs, own.kw_defaults, own.kwarg = widest.kwonlyargs, widest.kw_defaults, None
    return function


def _attributes(type_: type, properties: Sequence[Function] = ()) -> str:
    """Each field with its default and the words that follow it in the source; then the properties."""
    rows = [(name, kind, "", "") for name, kind in _slots(type_)]
    body = _class_tree(type_).body
    for node, after in zip(body, [*body[1:], None], strict=True):
        if isinstance(node, ast.AnnAssign):
            name, kind = ast.unparse(node.target), ast.unparse(node.annotation)
        elif isinstance(node, ast.Assign) and not _is_blocking_form(node):
            name, kind = ast.unparse(node.targets[0]), ""
        else:
            continue
        if not name.startswith("_"):
            rows.append((name, kind, _default(type_, name, node.value), " ".join(_words(after).split())))
    for each in properties:
        kind = ast.unparse(each.returns) if each.returns is not None else ""
        rows.append((each.name, kind, "", " ".join((ast.get_docstring(each) or "").split())))
    if not rows:
        return ""
    lines = ["| name | type | default | |", "|---|---|---|---|"]
    for *cells, words in rows:
        shown = " | ".join(f"`{cell}`".replace("|", "\\|") if cell else "" for cell in cells)
        lines.append(f"| {shown} | {words} |")
    return "\n".join([*lines, ""])


def _options(type_: type[Options]) -> str:
    """Each option with its type, its default, the values it takes and what it means."""
    kinds = {
        ast.unparse(node.target): ast.unparse(node.annotation)
        for owner in type_.__mro__[::-1]
        if issubclass(owner, Options)
        for node in _class_tree(owner).body
        if isinstance(node, ast.AnnAssign)
    }
    lines = ["| option | type | default | values | meaning |", "|---|---|---|---|---|"]
    for each in type_.all_settings():
        kind = kinds[each.name].replace("|", "\\|")
        values = each.check.expected if each.check is not None else ""
        lines.append(f"| `{each.name}` | `{kind}` | `{_shown(each.default)}` | {values} | {each.sentence} |")
    return "\n".join([*lines, ""])


def _shown(value: object) -> str:
    return str(value) if isinstance(value, Enum) else repr(value)


def _slots(type_: type) -> Iterator[tuple[str, str]]:
    """Attributes of a class that lists them; each is what its constructor is given under the same name."""
    listed = InterpretedMessage if PulledMessage in type_.__bases__ else type_
    kinds = (
        inspect.signature(listed).parameters if "__slots__" in map(_target, _class_tree(listed).body) else {}
    )
    for name in kinds:
        if name in getattr(listed, "__slots__", ()):
            yield name, str(kinds[name].annotation).rpartition(".")[2].removesuffix(" | None").strip("'<>")


def _target(node: ast.stmt) -> str:
    return ast.unparse(node.targets[0]) if isinstance(node, ast.Assign) else ""


def _default(type_: type, name: str, written: ast.expr | None) -> str:
    """What the default is, rather than how it is written, where that can be told in a word."""
    if written is None:
        return ""
    value: object = written
    if issubclass(type_, Enum):
        value = type_[name].value
    elif dataclasses.is_dataclass(type_):
        value = next(field.default for field in dataclasses.fields(type_) if field.name == name)
    if type(value) in (int, float, str, bool, NoneType):
        return repr(value)
    return ast.unparse(written)


def _words(node: ast.stmt | None) -> str:
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return str(node.value.value)
    return ""


# Functions


def _function(function: Function, name: str | None = None) -> str:
    arguments = _arguments(function)
    returned = ast.unparse(function.returns).strip("'") if function.returns is not None else ""
    is_async = isinstance(function, ast.AsyncFunctionDef) and not _makes_context(function)
    if (awaited := _COROUTINE.fullmatch(returned)) is not None:  # of a plain function
        is_async, returned = True, awaited[1]
    before = "async " if is_async else ""
    after = "" if name is not None else f" -> {returned}"
    head = f"{before}{name or function.name}"
    shown = f"{head}({', '.join(arguments)}){after}"
    if len(shown) > 110:
        lines = "".join(f"    {argument},\n" for argument in arguments)
        shown = f"{head}(\n{lines}){after}"
    for name_there, name_here in _SHOWN_AS.items():
        shown = shown.replace(name_there, name_here)
    return f"```python\n{shown}\n```\n\n{_documentation(function)}"


def _is_property(function: Function) -> bool:
    return any(ast.unparse(each) == "property" for each in function.decorator_list)


def _makes_context(function: Function) -> bool:
    return any("contextmanager" in ast.unparse(each) for each in function.decorator_list)


def _arguments(function: Function) -> list[str]:
    given = function.args
    positional = [*given.posonlyargs, *given.args]
    defaults = [None] * (len(positional) - len(given.defaults)) + list(given.defaults)
    shown = [
        _argument(argument, default)
        for argument, default in zip(positional, defaults, strict=True)
        if argument.arg not in ("self", "cls")
    ]
    if given.vararg is not None:
        shown.append(f"*{_argument(given.vararg, None)}")
    elif given.kwonlyargs:
        shown.append("*")
    shown += [
        _argument(each, default) for each, default in zip(given.kwonlyargs, given.kw_defaults, strict=True)
    ]
    if given.kwarg is not None:
        shown.append(f"**{given.kwarg.arg}")
    return shown


def _argument(argument: ast.arg, default: ast.expr | None) -> str:
    kind = f": {ast.unparse(argument.annotation)}" if argument.annotation is not None else ""
    if default is None:
        return f"{argument.arg}{kind}"
    return f"{argument.arg}{kind}{' = ' if kind else '='}{ast.unparse(default)}"


# Source


def _class_tree(type_: type) -> ast.ClassDef:
    # A compiled class has no source to read; its twin has the same members.
    tree = _tree(InterpretedMessage if type_ is PulledMessage else type_)
    assert isinstance(tree, ast.ClassDef)
    return tree


@cache
def _tree(value: object) -> ast.stmt:
    return ast.parse(textwrap.dedent(inspect.getsource(value))).body[0]  # type: ignore[arg-type]


def _documentation(node: ast.stmt) -> str:
    assert isinstance(node, ast.ClassDef | Function)
    text = ast.get_docstring(node)
    return f"{text}\n" if text else ""


if __name__ == "__main__":
    shutil.rmtree(FOLDER, ignore_errors=True)
    for place, text in pages().items():
        (FOLDER / place).parent.mkdir(parents=True, exist_ok=True)
        (FOLDER / place).write_text(text)
