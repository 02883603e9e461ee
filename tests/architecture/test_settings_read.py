"""No option is accepted and forgotten: code reads it, or it is refused, or a notice gives the reason."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from tests.support.places import ROOT

from pyromq.broker.settings import BrokerSettings
from pyromq.client.consumer.settings import PullSettings, PushSettings, SimpleSettings
from pyromq.client.producer_settings import ProducerSettings
from pyromq.client.settings import ClientSettings
from pyromq.config.options import Options, Setting
from pyromq.config.settings import Settings, no_effect
from pyromq.console.settings import ConsoleSettings
from pyromq.controller.settings import ControllerSettings
from pyromq.errors import ConfigError
from pyromq.filterserver.settings import FilterServerSettings
from pyromq.nameserver.settings import NameServerSettings
from pyromq.proxy.settings import ProxySettings
from pyromq.spark.options import Access, ReadOptions, WriteOptions
from pyromq.store.settings import StoreSettings

SOURCE = ROOT / "src/pyromq"
SERVERS: list[type[Settings]] = [
    NameServerSettings,
    BrokerSettings,
    StoreSettings,
    ControllerSettings,
    ProxySettings,
    ConsoleSettings,
    FilterServerSettings,
]
READERS: dict[type[Options], tuple[str, ...]] = {
    NameServerSettings: ("nameserver", "cluster", "remoting", "apps"),
    BrokerSettings: ("broker", "cluster", "remoting", "apps"),
    StoreSettings: ("store", "broker"),
    ControllerSettings: ("controller", "cluster", "remoting", "apps"),
    ProxySettings: ("proxy", "remoting", "apps"),
    FilterServerSettings: ("filterserver", "cluster", "remoting", "apps"),
    ConsoleSettings: ("console", "remoting", "apps"),
    ClientSettings: ("client", "cluster"),
    ProducerSettings: ("client",),
    PushSettings: ("client",),
    PullSettings: ("client",),
    SimpleSettings: ("client",),
    Access: ("spark",),
    ReadOptions: ("spark",),
    WriteOptions: ("spark",),
}
"""The packages that may read the options of a class."""
HOLDERS = ("settings", "now", "live", "options", "access", "parsed")
"""What options are called where they are read."""
READ_BY_KEY = {
    "tls.config.file",  # `Settings.INCLUDED_FILE_KEY`
    "path",  # `write_options` makes it the topic
    "denyByDefault",  # `AccessSettings` makes it authenticationEnabled and authorizationEnabled
    "key_file",  # `ClientSettings.of` reads the credentials from it
}


NAMES = frozenset(
    name for part in READERS for name in (*dir(part), *(each.name for each in part.all_settings()))
)


@cache
def attributes_read(package: str) -> frozenset[str]:
    """The attributes of objects called like settings that a package reads."""
    return frozenset(
        node.attr
        for path in (SOURCE / package).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute)
        and node.attr in NAMES
        and any(holder in ast.unparse(node.value).lower() for holder in HOLDERS)
    )


def derived(part: type[Options]) -> dict[str, set[str]]:
    """The properties and methods of the classes of a part, each with what it reads of the object."""
    found: dict[str, set[str]] = {}
    for each in part.__mro__:
        path = SOURCE.joinpath(*each.__module__.split(".")[1:]).with_suffix(".py")
        if each.__module__.startswith("pyromq.") and not each.__module__.startswith("pyromq.config."):
            for function in functions(path, each.__name__):
                found.setdefault(function.name, set()).update(
                    node.attr
                    for node in ast.walk(function)
                    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)
                )
    return {name: read for name, read in found.items() if name not in ("verify_together", "__post_init__")}


def functions(path: Path, name: str) -> Iterator[ast.FunctionDef]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ClassDef) and node.name == name:
            yield from (each for each in node.body if isinstance(each, ast.FunctionDef))


@pytest.mark.parametrize("part", READERS, ids=lambda part: part.__name__)
def test_every_option_is_read(part: type[Options]) -> None:
    read = {name for package in READERS[part] for name in attributes_read(package)}
    steps = derived(part)
    while more := {name for step in steps.keys() & read for name in steps[step]} - read:
        read |= more
    forgotten = [
        each.key
        for each in part.all_settings()
        if each.has_effect and each.name not in read and each.key not in READ_BY_KEY
    ]
    assert forgotten == [], "read it, or move it to the part's file in config/inert with the reason"


@pytest.mark.parametrize("part", SERVERS, ids=lambda part: part.__name__)
def test_a_key_without_effect_has_a_reason_and_says_so(part: type[Settings]) -> None:
    for each in part.all_settings():
        if not each.has_effect:
            assert len(each.sentence) > 10, each.key
            assert each.sentence.rstrip(".") in str(no_effect([each]))
    assert not [key for key in part.INERT if (found := part.find(key)) is None or found.has_effect]


def other_value(each: Setting) -> str:
    """A value of the same kind that is not the default."""
    if isinstance(each.default, bool):
        return "false" if each.default else "true"
    return str(each.default + 1) if isinstance(each.default, int) else "other"


REFUSED = [
    pytest.param(part, known, id=f"{part.PART} {key}")
    for part in SERVERS
    for key, inert in part.INERT.items()
    if inert.is_refused and (known := part.find(key)) is not None
]


@pytest.mark.parametrize(("part", "known"), REFUSED)
def test_a_promise_that_is_not_kept_is_refused(part: type[Settings], known: Setting) -> None:
    assert part().updated({known.key: known.default_text}).value_of(known) == known.default
    with pytest.raises(ConfigError, match=f"{known.key}={other_value(known)}: expected .*, because "):
        part().updated({known.key: other_value(known)})
